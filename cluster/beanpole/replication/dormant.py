"""The replica of a node whose disk does not know its cluster yet: it takes part in nothing.

It only answers what is asked about any replica; nothing may be proposed to it or sent to it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from beanpole.replication.consensus import FOLLOWER, DiskFigures, DiskRoom, LogOnDisk, Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from beanpole.storage.snapshots import SnapshotInfo


class DormantReplica:
    """Follows no leader, at term 0, with an empty log."""

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
        self.rejoining = rejoining
        self.imaging = False
        self.entries_in_flight = 0
        self.snapshot_index = 0

    def match_index(self, peer: str) -> int:
        """Nothing is known of any peer."""
        return 0

    def newest_entry(self) -> None:
        """There is no log."""

    def disk(self) -> DiskFigures:
        """Nothing was written."""
        return DiskFigures()

    def room(self) -> DiskRoom:
        """It is not counted: no job can be put here."""
        return DiskRoom()

    def log_on_disk(self) -> LogOnDisk:
        """Return zeros: there is no log."""
        return LogOnDisk()

    def note_disk(self, hangs: bool) -> None:
        """Ignore it: nothing is written."""

    def start(self) -> None:
        """There is nothing to load."""

    def turn(self) -> None:
        """Nothing is ever due."""

    def slice_image(self) -> None:
        """There is no image."""

    def receive(self, peer: str, message: bytes) -> None:
        """No peer is linked that could send this."""
        raise AssertionError(f"{peer} sends to a node that takes part in nothing")

    def connected(self, peer: str) -> None:
        """No peer is linked before consensus runs."""
        raise AssertionError(f"{peer} is linked to a node that takes part in nothing")

    def disconnected(self, peer: str) -> None:
        """No peer was linked."""

    def can_propose(self) -> bool:
        """Never."""
        return False

    def propose(self, entry: bytes) -> int:
        """Must not be called, see `can_propose`."""
        raise AssertionError("propose() without can_propose()")

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Must not be called: nothing is proposed."""
        raise AssertionError("tell_later() without propose()")

    def confirm(self, done: Callable[[], None]) -> None:
        """Dropped: this member does not lead."""

    def transfer(self, to: str | None) -> bool:
        """There is no leadership."""
        return False

    def compact(self) -> None:
        """There is nothing to make a snapshot of."""

    def snapshot_source(self) -> "tuple[SnapshotInfo, Iterator[bytes]] | None":
        """There is no snapshot."""
        return None

    def close(self) -> None:
        """There is nothing to close."""
