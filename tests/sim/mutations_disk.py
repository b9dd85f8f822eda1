"""Planted defects in the handling of full disks, and their table.

The other mutants are in `mutations` and `mutant_table`.
"""

from typing import Any, Final

from beanpole.replication.pysyncobj import snapshots
from beanpole.replication.pysyncobj.room import Room
from beanpole.replication.pysyncobj.snapshots import Snapshots
from beanpole.storage.ballast import Ballast
from tests.sim import schedules_disk as d
from tests.sim import world
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch


def full_is_fatal() -> list[Patch]:
    """A snapshot that finds no room is taken for a broken disk."""
    return [(snapshots, "is_full", lambda error: False)]


def puts_never_end() -> list[Patch]:
    """No disk space is reserved."""
    judge = vars(Room)["_judge"]

    def wrong(self: Room) -> None:
        judge(self)
        self.low = False

    return [(Room, "_judge", wrong)]


def snapshots_at_leisure() -> list[Patch]:
    """The log is not cut sooner on a full disk."""

    def is_due(self: Any) -> bool:
        covered, size = (0, 0) if self._latest is None else self._latest[:3:2]
        limit = max(self._shared.config.snapshot_bytes_min, size)
        return bool(self._shared.journal.bytes_after(covered) > limit)

    return [(Snapshots, "_is_due", is_due)]


def log_without_end() -> list[Patch]:
    """The log is written until a write fails."""
    return [(Room, "full", property(lambda self: False))]


def no_ballast() -> list[Patch]:
    """The ballast is never released."""
    return [
        (world, "make_room_to_start", lambda files, directory: False),
        (Ballast, "release", lambda self: False),
    ]


def cut_unapplied() -> list[Patch]:
    """The log is cut behind the newest snapshot, installed or not."""
    trim = vars(Snapshots)["_trim"]

    def wrong(self: Any) -> None:
        trim(self)
        if self._latest is not None and self._latest.index - 1 > self._shared.journal.first:
            self._shared.journal.trim(self._latest.index - 1)

    return [(Snapshots, "_trim", wrong)]


def unreadable_for_ever() -> list[Patch]:
    """Nothing is done about a snapshot that a reader could not read."""
    return [(Snapshots, "_doubt", lambda self, info, reason: None)]


DISKS: Final = (
    Mutant(
        "full_is_fatal",
        "full disk: a snapshot that finds no room ends the node",
        d.a_snapshot_meets_a_full_disk,
        r"ended the node",
        full_is_fatal,
    ),
    Mutant(
        "full_fetch_is_fatal",
        "full disk: a fetched snapshot that finds no room ends the node",
        d.a_fetch_meets_a_full_disk,
        r"ended the node",
        full_is_fatal,
    ),
    Mutant(
        "puts_never_end",
        "full disk: puts go on until nothing else can",
        d.full_disks_end_puts_and_nothing_else,
        r"replies after|not answered",
        puts_never_end,
    ),
    Mutant(
        "snapshots_at_leisure",
        "full disk: the log of workers is not cut in time",
        d.workers_go_on_for_ever_on_full_disks,
        r"replies after",
        snapshots_at_leisure,
    ),
    Mutant(
        "log_without_end",
        "full disk: a follower writes its log until that fails",
        d.one_disk_is_full_and_the_others_go_on,
        r"ended because its disk was full: the log could not be written",
        log_without_end,
    ),
    Mutant(
        "no_ballast",
        "full disk: a start has no ballast to give up",
        d.nodes_start_although_others_took_the_whole_disk,
        r"no space|stopped itself|does not start|full disks",
        no_ballast,
    ),
    Mutant(
        "cut_unapplied",
        "a snapshot that is not installed cuts the log",
        d.a_snapshot_that_is_not_installed,
        r"the log begins at",
        cut_unapplied,
    ),
    Mutant(
        "unreadable_for_ever",
        "a damaged snapshot of a running node is not made again",
        d.the_snapshot_of_a_running_leader_is_damaged,
        r"cannot catch up by a damaged snapshot",
        unreadable_for_ever,
    ),
)
