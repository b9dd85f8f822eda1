"""A replica of one member without a disk: for unit tests of what stands above consensus.

It keeps the promises of `consensus.Replica` (an entry is applied in a later turn, never inside
`propose`), and nothing survives it. No Raft, no files.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from beanpole.replication.consensus import (
    ENTRIES_IN_FLIGHT_ALONE_MAX,
    ENTRY_MAX_BYTES,
    FOLLOWER,
    LEADER,
    Callbacks,
    DiskFigures,
    DiskRoom,
    LogOnDisk,
    Role,
)

if TYPE_CHECKING:
    from beanpole.storage.snapshots import SnapshotInfo

# The only term: there is nobody to lose leadership to.
TERM: Final = 1


class MemoryReplica:
    """Commits at the next turn what was proposed before it."""

    def __init__(self, callbacks: Callbacks, node_id: str = "n0") -> None:
        self.node_id = node_id
        self.members: tuple[str, ...] = (node_id,)
        self.role: Role = FOLLOWER
        self.leader: str | None = None
        self.term = 0
        self.commit_index = 0
        self.applied_index = 0
        self.first_index = 1
        self.last_index = 0
        self.journal_bytes = 0
        self.rejoining = False
        self.in_flight_max = ENTRIES_IN_FLIGHT_ALONE_MAX
        self._callbacks = callbacks
        self._waiting: list[tuple[int, bytes]] = []
        self._confirmations: list[Callable[[], None]] = []
        self._closed = False

    @property
    def durable_index(self) -> int:
        """Everything counts as durable at once."""
        return self.last_index

    @property
    def majority_answers(self) -> bool:
        """A leader alone always hears itself."""
        return self.role == LEADER

    def match_index(self, peer: str) -> int:
        """Return 0: there is no peer."""
        return 0

    def disk(self) -> DiskFigures:
        """Return zeros: there is no disk."""
        return DiskFigures()

    def room(self) -> DiskRoom:
        """Return that nothing is scarce: there is no disk."""
        return DiskRoom()

    def log_on_disk(self) -> LogOnDisk:
        """Return zeros: there is no disk."""
        return LogOnDisk()

    def note_disk(self, hangs: bool) -> None:
        """Ignore it: there is no disk."""

    def start(self) -> None:
        """Ask for the first turn, in which this member becomes the leader."""
        self._callbacks.wake()

    def turn(self) -> None:
        """Lead, then commit and apply everything proposed before this turn, then confirm."""
        if self._closed:
            return
        if self.role != LEADER:
            self.role, self.leader, self.term = LEADER, self.node_id, TERM
            # A new leader's own first entry, as the real backend has it: index 1 is never applied.
            self.last_index = self.commit_index = self.applied_index = 1
            self._callbacks.role_changed()
            return
        waiting, self._waiting = self._waiting, []
        confirmations, self._confirmations = self._confirmations, []
        for index, entry in waiting:
            self.commit_index = index
            self._callbacks.apply(index, TERM, entry)
            self.applied_index = index
        for done in confirmations:
            done()

    @property
    def imaging(self) -> bool:
        """Nothing is kept, so there are no snapshots."""
        return False

    def slice_image(self) -> None:
        """Do nothing: there is no image."""

    def receive(self, peer: str, message: bytes) -> None:
        """Refuse: there is no peer."""
        raise AssertionError(f"a member that is alone received {len(message)} bytes from {peer}")

    def connected(self, peer: str) -> None:
        """Ignore it: there is no peer."""

    def disconnected(self, peer: str) -> None:
        """Ignore it: there is no peer."""

    @property
    def entries_in_flight(self) -> int:
        """What the next turn commits."""
        return len(self._waiting)

    def can_propose(self) -> bool:
        """Return whether an entry may be proposed."""
        return self.role == LEADER and len(self._waiting) < self.in_flight_max

    def propose(self, entry: bytes) -> int:
        """Append an entry; the next turn applies it."""
        assert self.can_propose(), "propose() without can_propose()"
        assert len(entry) <= ENTRY_MAX_BYTES, f"an entry of {len(entry)} bytes"
        self.last_index += 1
        self._waiting.append((self.last_index, entry))
        self._callbacks.wake()
        return self.last_index

    def confirm(self, done: Callable[[], None]) -> None:
        """Confirm at the next turn."""
        if self.role == LEADER:
            self._confirmations.append(done)
            self._callbacks.wake()

    def transfer(self, to: str | None) -> bool:
        """Return False: there is nobody to hand leadership to."""
        return False

    @property
    def snapshot_index(self) -> int:
        """Return 0: there are no snapshots."""
        return 0

    def compact(self) -> None:
        """Do nothing: there is no log to shorten."""

    def snapshot_source(self) -> "tuple[SnapshotInfo, Iterator[bytes]] | None":
        """Return None: there are no snapshots."""
        return None

    def close(self) -> None:
        """Forget everything."""
        self._closed = True
        self.role = FOLLOWER
        self._waiting.clear()
        self._confirmations.clear()
