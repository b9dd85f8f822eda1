"""Planted defects in the handling of sick nodes, and how each is caught.

A patch is (owner, name, replacement), as in `mutations`.
"""

from collections.abc import Collection
from typing import Any, Final

from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.replication.pysyncobj.journal import LogJournal
from beanpole.replication.pysyncobj.room import Room
from beanpole.replication.pysyncobj.transport import LibraryTransport
from beanpole.storage.wal import Wal
from beanpoled.leading.inbox import Inbox
from beanpoled.peers.agreement import Agreement
from beanpoled.turn.disk_health import DiskHealth
from beanpoled.turn.lifecycle import Lifecycle
from tests.sim import schedules_sick as s
from tests.sim.mutant import Mutant
from tests.sim.mutations import Patch, nothing


def copies_in_the_inbox() -> list[Patch]:
    """Batches of a link that ended stay at the leader, and come again."""

    def wrong(self: Inbox, origin: int) -> None:
        self._expected.pop(origin, None)

    return [(Inbox, "forget", wrong)]


def absent_member_agrees() -> list[Patch]:
    """A member that has reported nothing counts as agreeing."""
    judge = Agreement._judge

    def wrong(self: Agreement, kind: int, linked: Collection[str], now_us: int) -> str | None:
        return judge(self, kind, list(self._members), self._since_us[kind])

    return [(Agreement, "_judge", wrong)]


def leads_with_a_sick_disk() -> list[Patch]:
    """A leader whose disk hangs goes on leading."""
    return [(DiskHealth, "_hand_over", nothing)]


def waits_for_a_sick_disk() -> list[Patch]:
    """The loop waits for term and vote to be written, whatever the disk is doing."""
    note = PySyncObjReplica.note_disk

    def wrong(self: PySyncObjReplica, hangs: bool) -> None:
        note(self, False)

    return [(PySyncObjReplica, "note_disk", wrong), (Wal, "is_writing", False)]


def measures_in_the_loop() -> list[Patch]:
    """The loop asks the disk for its free space, and waits for the answer."""

    def wrong(self: Any) -> None:
        self._take(self._files.free_bytes(self._config.directory), self._wal.durable)
        self._judge()

    return [(Room, "_measure", wrong)]


def waits_unnoticed_for_room() -> list[Patch]:
    """A measurement of the free space that is overdue counts for nothing."""
    figures = Room.figures
    return [(Room, "figures", lambda self: figures(self)._replace(looking=False))]


def keeps_clients_behind_a_sick_disk() -> list[Patch]:
    """A node that is left behind keeps its clients."""
    return [(DiskHealth, "is_left_behind", nothing)]


def unbounded_log() -> list[Patch]:
    """The unwritten part of the log has no bound."""
    return [(LogJournal, "is_choked", False)]


def unbounded_follower() -> list[Patch]:
    """Neither a follower bounds its unwritten log, nor the leader what it sends there."""
    return [*unbounded_log(), (LibraryTransport, "_in_flight_bytes", lambda *_: 0)]


def deaf_after_a_thaw() -> list[Patch]:
    """A node that was declared down keeps its clients."""
    return [(Lifecycle, "went_down", nothing)]


SICK: Final = (
    Mutant(
        "deaf_after_a_thaw",
        "sick: a leader that thawed keeps its clients",
        s.a_leader_is_frozen_with_its_clients,
        r"are not closed",
        deaf_after_a_thaw,
    ),
    Mutant(
        "leads_with_a_sick_disk",
        "sick: a leader whose disk hangs leads on",
        s.the_disk_of_a_leader_hangs_for_ever,
        r"leads for ever",
        leads_with_a_sick_disk,
    ),
    Mutant(
        "waits_for_a_sick_disk",
        "sick: the loop waits for a disk that hangs",
        s.the_disk_of_a_leader_hangs_for_ever,
        r"the loop waits",
        waits_for_a_sick_disk,
    ),
    Mutant(
        "measures_in_the_loop",
        "sick: the loop waits for the free space of a disk that hangs",
        s.the_disk_of_a_leader_hangs_for_ever,
        r"the loop waits for the free space",
        measures_in_the_loop,
    ),
    Mutant(
        "waits_unnoticed_for_room",
        "sick: nothing notices that the free space is not told any more",
        s.the_free_space_of_a_leader_is_not_told,
        r"does not notice",
        waits_unnoticed_for_room,
    ),
    Mutant(
        "keeps_clients_behind_a_sick_disk",
        "sick: clients stay at a node that applies nothing any more",
        s.the_disk_of_a_leader_hangs_for_ever,
        r"keeps its clients",
        keeps_clients_behind_a_sick_disk,
    ),
    Mutant(
        "unbounded_log",
        "sick: what waits for a disk has no bound",
        s.a_lone_disk_in_memory_hangs,
        r"bytes for its disk",
        unbounded_log,
    ),
    Mutant(
        "unbounded_follower",
        "sick: what waits for a follower's disk has no bound, here or at the leader",
        s.the_disk_of_a_follower_hangs_for_ever,
        r"bytes for its disk",
        unbounded_follower,
    ),
    Mutant(
        "absent_member_agrees",
        "sick: a member that has shown nothing counts as agreeing",
        s.two_replicas_differ_while_the_third_is_away,
        r"both serve",
        absent_member_agrees,
    ),
    Mutant(
        "copies_in_the_inbox",
        "sick: the leader keeps batches that come again on a new link",
        s.a_link_flaps_while_the_disks_hang,
        r"wait at the leader|too many batches in flight",
        copies_in_the_inbox,
    ),
)
