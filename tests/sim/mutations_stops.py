"""Planted defects of the stop of a node whose workers hold jobs.

The patches and their table; see `mutations` and `mutant_table`. Lives of whole nodes catch all.
"""

from typing import Final

from beanpoled.frontends.clients import Clients
from beanpoled.origin.outbox import Origin
from beanpoled.turn.stopping import Stopping
from tests.sim.mutant import in_lives
from tests.sim.mutations import Patch, nothing


def holders_are_closed() -> list[Patch]:
    """A stop also closes clients that hold jobs."""
    return [(Clients, "holds", lambda self, connection: False)]


def stops_give_out_jobs() -> list[Patch]:
    """A stopping node continues to give out jobs."""
    return [(Clients, "leave", nothing), (Clients, "drop_free", lambda self: 1)]


def holders_get_more() -> list[Patch]:
    """A stopping node closes clients without a job, and gives more jobs to the others."""
    return [(Origin, "leave", nothing)]


def stops_never_end() -> list[Patch]:
    """A stop waits for its clients without a limit."""

    def wrong(self: Stopping, holders: int, waited_us: int) -> None:
        return

    return [(Stopping, "_drain", wrong)]


STOPS: Final = (
    in_lives(
        "holders_are_closed",
        "stops: a client with a job is closed at once",
        r"stops, and closes a client with the jobs",
        holders_are_closed,
    ),
    in_lives(
        "stops_give_out_jobs",
        "stops: a client gets a job at a node that stops",
        r"was told to stop at [\d.]+: client",
        stops_give_out_jobs,
    ),
    in_lives(
        "holders_get_more",
        "stops: a client that holds a job gets more at a node that stops",
        r"was told to stop at [\d.]+: client",
        holders_get_more,
    ),
    in_lives(
        "stops_never_end",
        "stops: the time of a stop has no limit",
        r"and still runs|not all nodes serve",
        stops_never_end,
        seed=4,
    ),
)
