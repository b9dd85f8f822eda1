"""Planted defects of limits: what is not weighed, or has no bound. See `mutations`."""

from beanpole import commands as c
from beanpole.core import machine
from beanpoled.frontends.beanstalk import tubes
from beanpoled.links import frames
from beanpoled.origin import outbox as origin
from tests.sim.mutations import Patch


def jobs_weigh_nothing() -> list[Patch]:
    """A batch is measured by the number of its commands, and nobody looks at what it became."""

    def wrong(command: c.Command) -> int:
        return 24

    return [
        (origin, "packed_bytes", wrong),
        (origin, "BATCH_ROOM_BYTES", 2**40),
        (frames, "BATCH_MAX_BYTES", 2**40),
    ]


def boundless_kicks() -> list[Patch]:
    """An entry kicks whatever its commands ask for, and all of them are in it."""
    return [(machine, "KICKS_PER_ENTRY_MAX", 2**40), (tubes, "LIGHT_MAX", 2**40)]


def boundless_deaths() -> list[Patch]:
    """The jobs of a session that ends return in one entry."""
    return [(machine, "TRANSITIONS_PER_ENTRY_MAX", 2**40)]
