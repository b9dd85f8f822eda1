"""Planted defects of changes of the leader and of its clock, each with the check that notices it.

The patches and their table; see `mutations` and `mutant_table`.
"""

from typing import Final

from beanpole.replication.pysyncobj.core import Core
from beanpoled.shared.clock import ClusterClock
from tests.sim import schedules as s
from tests.sim import schedules_node as n
from tests.sim.mutant import Mutant, storm
from tests.sim.mutations import Patch, nothing


def transfers_last() -> list[Patch]:
    """A member that could not campaign when it was asked to does it later."""
    return [(Core, "forget_transfer", nothing)]


def forgotten_term() -> list[Patch]:
    """A leader does not know afterwards that its own entries are older than its clock."""
    lead = ClusterClock.lead

    def wrong(self: ClusterClock, term: int, start_us: int) -> None:
        lead(self, self.term, start_us)

    return [(ClusterClock, "lead", wrong)]


def half_turns() -> list[Patch]:
    """Only half of the time counts in which the leader can serve."""
    advance = ClusterClock.advance

    def wrong(self: ClusterClock, step_us: int, majority_answers: bool) -> None:
        advance(self, step_us // 2, majority_answers)

    return [(ClusterClock, "advance", wrong)]


LEADERS: Final = (
    Mutant(
        "transfers_last",
        "C4: a member that was paused campaigns late for a transfer that was given up",
        s.a_member_pauses_when_it_is_to_lead,
        r"led in 1, now it is",
        transfers_last,
    ),
    Mutant(
        "forgotten_term",
        "time: the newest entry of a node that led sets its clock back",
        n.an_idle_leader_loses_its_majority,
        r"cluster time went on by .* which ran for",
        forgotten_term,
    ),
    Mutant(
        "half_turns",
        "time: cluster time is slow",
        storm,
        r"cluster time went on by .* which ran for",
        half_turns,
        seed=1,
    ),
)
