"""A placeholder replica for a node whose disk has no record of its cluster yet.

It implements the `Replica` interface but takes no part in consensus: nothing may be proposed to it
or sent to it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from beanpole.replication.consensus import FOLLOWER, DiskFigures, DiskRoom, LogOnDisk, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beanpole.storage.snapshots import SnapshotInfo


class DormantReplica:
    """A follower without a leader, at term 0, with an empty log."""

    def __init__(self, node_id: str, members: tuple[str, ...], rejoining: bool) -> None:
        self.node_id = node_id
        self.members = members
        self.role: Role = FOLLOWER
        self.leader: str | None = None
        self.term = 0
        self.commit_index = 0
        self.applied_index = 0
        self.first_index = 1
        self.last_index = 0
        self.durable_index = 0
        self.journal_bytes = 0
        self.snapshot_bytes = 0
        self.snapshot_behind_bytes = 0
        self.majority_answers = False
        self.majority_heard_us = 0
        self.rejoining = rejoining
        self.imaging = False
        self.entries_in_flight = 0
        self.snapshot_index = 0

    def match_index(self, peer: str) -> int:
        """Return 0: nothing is known of any peer."""
        return 0

    def newest_entry(self) -> None:
        """Return None: there is no log."""

    def disk(self) -> DiskFigures:
        """Return zeros: nothing was written."""
        return DiskFigures()

    def room(self) -> DiskRoom:
        """Return zeros: the disk is not measured, because no job can be put here."""
        return DiskRoom()

    def log_on_disk(self) -> LogOnDisk:
        """Return zeros: there is no log."""
        return LogOnDisk()

    def note_disk(self, hangs: bool) -> None:
        """Do nothing: nothing is written."""

    def start(self) -> None:
        """Do nothing: there is nothing to load."""

    def turn(self) -> None:
        """Do nothing: nothing is ever due."""

    def slice_image(self) -> None:
        """Do nothing: there is no image."""

    def receive(self, peer: str, message: bytes) -> None:
        """Must not be called: no peer is linked."""
        raise AssertionError(f"{peer} sends to a node that takes part in nothing")

    def connected(self, peer: str) -> None:
        """Must not be called: no peer is linked before consensus runs."""
        raise AssertionError(f"{peer} is linked to a node that takes part in nothing")

    def disconnected(self, peer: str) -> None:
        """Do nothing: no peer was linked."""

    def can_propose(self) -> bool:
        """Return False, always."""
        return False

    def propose(self, entry: bytes) -> int:
        """Must not be called, see `can_propose`."""
        raise AssertionError("propose() without can_propose()")

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Must not be called: nothing is proposed."""
        raise AssertionError("tell_later() without propose()")

    def confirm(self, done: Callable[[], None]) -> None:
        """Drop `done`: this member does not lead."""

    def transfer(self, to: str | None) -> bool:
        """Return False: this member does not lead."""
        return False

    def compact(self) -> None:
        """Do nothing: there is nothing to make a snapshot of."""

    def snapshot_source(self) -> "tuple[SnapshotInfo, Iterator[bytes]] | None":
        """Return None: there is no snapshot."""
        return None

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
