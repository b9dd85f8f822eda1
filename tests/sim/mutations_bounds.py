"""Planted defects of limits: missing weights and bounds. See `mutations`."""

from beanpole import commands as c
from beanpole.core import machine
from beanpoled.frontends.beanstalk import tubes
from beanpoled.links import frames
from beanpoled.origin import outbox as origin
from tests.sim.mutations import Patch


def jobs_weigh_nothing() -> list[Patch]:
    """A batch is measured by the number of its commands, and its packed size is not checked."""

    def wrong(command: c.Command) -> int:
        return 24

    return [
        (origin, "packed_bytes", wrong),
        (origin, "BATCH_ROOM_BYTES", 2**40),
        (frames, "BATCH_MAX_BYTES", 2**40),
    ]


def boundless_kicks() -> list[Patch]:
    """An entry executes all kicks of its commands, without a bound."""
    return [(machine, "KICKS_PER_ENTRY_MAX", 2**40), (tubes, "LIGHT_MAX", 2**40)]


def boundless_deaths() -> list[Patch]:
    """All jobs of a session that ends return in one entry."""
    return [(machine, "TRANSITIONS_PER_ENTRY_MAX", 2**40)]
