"""The interface between a node and its consensus: one Protocol for each direction, and a config.

Belongs here: the interface, its limits and its guarantees. It contains no implementation and
depends on no library. `dormant.py` is the smallest implementation, `pysyncobj/` the real one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from beanpole.storage.segment import NO_LOG, forget_base
from beanpole.weights import ENTRY_MAX_BYTES as ENTRY_MAX_BYTES

if TYPE_CHECKING:
    from beanpole.storage.format import Identity
    from beanpole.storage.snapshots import SnapshotInfo

Role = Literal["leader", "follower", "candidate"]
Durability = Literal["sync", "memory"]

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
CANDIDATE: Final = "candidate"

# Uncommitted entries of the leader. Large entries fill the pipe between two nodes with this number;
# small ones are joined in the leader (`proposing.ENTRY_FULL_BYTES`).
ENTRIES_IN_FLIGHT_MAX: Final = 8
# A single node has nothing to overlap: commands that arrive during a sync form the next entry.
ENTRIES_IN_FLIGHT_ALONE_MAX: Final = 1
# The bytes of the log that a member holds but has not yet made durable on its own disk. Above this
# limit a leader proposes no entries and a follower accepts none. A disk that keeps up never has
# more pending than the entries in flight; a disk that hangs costs this much memory.
UNWRITTEN_BYTES_MAX: Final = ENTRIES_IN_FLIGHT_MAX * ENTRY_MAX_BYTES
# The longest pause between two turns with which heartbeats and elections are on time.
TURN_PERIOD_MAX_S: Final = 0.02

MIB: Final = 1024 * 1024


class DiskFigures(NamedTuple):
    """The disk work of the log since the start of the process."""

    syncs: int = 0
    sync_us_total: int = 0
    sync_us_last: int = 0
    bytes_written: int = 0
    # A histogram of the times of syncs: below 1, 2, 4 us and so on, each sync counted once. The
    # last class counts all longer ones.
    sync_counts: tuple[int, ...] = ()


class DiskRoom(NamedTuple):
    """The free space of the disk.

    Attributes:
        free_bytes: the space that is left for writes.
        reserve_bytes: the free space below which puts must be refused.
        low: whether puts must be refused.
        full: whether the log has stopped growing; no entry can be proposed or received then.
        snapshot_needs_bytes: the free space without which no snapshot is begun.
        looking: whether the free space is being measured.
        looks: the number of finished measurements, successful or not.
    """

    free_bytes: int = 0
    reserve_bytes: int = 0
    low: bool = False
    full: bool = False
    snapshot_needs_bytes: int = 0
    looking: bool = False
    looks: int = 0


class LogOnDisk(NamedTuple):
    """The progress of the disk with the log, even if nothing waits for it (durability "memory").

    Attributes:
        end: the position in bytes after the last record.
        written: the position up to which everything is on the disk.
        last: the index of the last entry on the disk.
    """

    end: int = 0
    written: int = 0
    last: int = 0


class Image(Protocol):
    """A consistent image of the machine, produced in slices while the machine continues to run."""

    def next_chunk(self) -> bytes | None:
        """Return the next chunk (at most 4 MiB, made quickly), or None if the image is complete."""
        ...

    def close(self) -> None:
        """Release the resources of the image; also called after the last chunk."""
        ...


class Sink(Protocol):
    """The destination of the chunks of a fetched snapshot."""

    @property
    def failure(self) -> str | None:
        """Return why it drops all chunks; None while it takes them. The producer gives up then."""
        ...

    # The producer pauses while this is large.
    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that were written and are not on disk yet."""
        ...

    def write(self, chunk: bytes) -> None:
        """Add one chunk (at most 4 MiB) as returned by the peer's `snapshot_source`."""
        ...


class Callbacks(Protocol):
    """The functions of a node that its replica calls, all of them in the node's loop."""

    def now_s(self) -> float:
        """Return monotonic seconds."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1): used for election timeouts only."""
        ...

    def send(self, peer: str, message: bytes) -> bool:
        """Send one Raft message; return False if there is no link or its output buffer is full.

        False means that the message was rejected. The replica then considers the peer full: it
        sends only one heartbeat per heartbeat period to it, until a heartbeat is accepted.
        """
        ...

    def flush(self) -> None:
        """Send out the messages given to `send` now: the replica continues with long work."""
        ...

    def committed(self) -> None:
        """Handle a new commit index, before the entries that it covers are applied.

        This is the moment to `propose` entries that waited for room: they are sent in this turn,
        in the same message as the new commit index.
        """
        ...

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """Apply a committed entry: in order, once per process life. Indexes may have gaps.

        The gaps are entries of the consensus itself (a new leader's first entry), and entries
        covered by an image given to `load_image`. It must not raise: an exception stops the node.
        """
        ...

    def begin_image(self) -> Image:
        """Begin an image of the machine with everything applied so far.

        The log is cut before the image's index once its snapshot is complete. The snapshot is
        written in LANE_BULK, after all work that the node has submitted there before: files that
        must be durable before the log is cut are submitted here.
        """
        ...

    def image_bytes(self) -> int:
        """Return an estimate of the size of an image of the machine now, rather too large."""
        ...

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """Replace the machine by the image. `chunks` raises `Damaged` on bad bytes."""
        ...

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Write the chunks of the peer's snapshot at exactly `index` into `sink`.

        Calls `done(None)` after the last chunk, or `done("reason of the failure")`; once, in the
        loop. If the peer's `snapshot_source` has another index by then, the fetch fails: the leader
        will offer the newer snapshot. After `close()` of the replica `done` has no effect.
        """
        ...

    def wake(self) -> None:
        """Request a `turn()` soon, in a later step of the loop. The node coalesces requests."""
        ...

    def role_changed(self) -> None:
        """Note that role, leader or term changed; do nothing else: a turn is in progress.

        Or a message of a member is being handled.
        """
        ...

    def log(self, line: str, is_warning: bool = False) -> None:
        """Print a line for the operator; a warning is one that may call for action."""
        ...

    def rejoined(self) -> None:
        """Record, durably at return, that this member counts again.

        Only the state applied at the time of this call is known for certain to be committed.
        """
        ...

    def fatal(self, reason: str) -> None:
        """Print one line and end the process. If this returns, the replica stays stopped."""
        ...


class Replica(Protocol):
    """One member of the replicated log, driven by its node; not thread-safe."""

    @property
    def node_id(self) -> str:
        """Return this member's name."""
        ...

    @property
    def members(self) -> tuple[str, ...]:
        """Return all members, sorted, this one included."""
        ...

    @property
    def role(self) -> Role:
        """Return the role of this member in its current term."""
        ...

    @property
    def leader(self) -> str | None:
        """Return the leader of the current term, or None if this member does not know it."""
        ...

    @property
    def term(self) -> int:
        """Return the current term; it never decreases, even across restarts."""
        ...

    @property
    def commit_index(self) -> int:
        """Return the last index known to be committed."""
        ...

    @property
    def applied_index(self) -> int:
        """Return the last index given to `Callbacks.apply` or covered by `load_image`."""
        ...

    @property
    def first_index(self) -> int:
        """Return the first index that is still in the journal."""
        ...

    @property
    def last_index(self) -> int:
        """Return the last index of the log, committed or not."""
        ...

    def newest_entry(self) -> tuple[int, bytes] | None:
        """Return the term and the bytes of the newest proposed entry in the log, committed or not.

        None if the entry is not in memory, or if unusually many terms have begun after it.
        """
        ...

    @property
    def durable_index(self) -> int:
        """Return the last index up to which the log is durable on this disk (or need not be)."""
        ...

    @property
    def journal_bytes(self) -> int:
        """Return the bytes of the journal on disk."""
        ...

    @property
    def snapshot_bytes(self) -> int:
        """Return the size of the newest snapshot; 0 if there is none."""
        ...

    @property
    def snapshot_behind_bytes(self) -> int:
        """Return the bytes of the log that the newest snapshot does not cover."""
        ...

    @property
    def majority_answers(self) -> bool:
        """Return whether this member leads and a majority answered within the last raft_min_s."""
        ...

    @property
    def majority_heard_us(self) -> int:
        """Return when (`now_s`) this leader sent the newest message a majority answered; or 0."""
        ...

    @property
    def rejoining(self) -> bool:
        """Return whether this member has lost its disk and does not count yet."""
        ...

    def match_index(self, peer: str) -> int:
        """Return the index that the leader knows the peer to have.

        It is 0 if it is unknown, and for a peer that does not count yet, because it is rejoining.
        """
        ...

    def disk(self) -> DiskFigures:
        """Return the disk figures of the log, for metrics."""
        ...

    def room(self) -> DiskRoom:
        """Return the free space of the disk as last measured, some 10 ms ago."""
        ...

    def log_on_disk(self) -> LogOnDisk:
        """Return the progress of the disk with the log."""
        ...

    def note_disk(self, hangs: bool) -> None:
        """Note whether this member's disk hangs, as observed by the node.

        A member whose disk hangs does not campaign, and messages that reveal a new term or vote are
        held until the disk has it. Otherwise the replica waits for the disk at once.
        """
        ...

    def start(self) -> None:
        """Load snapshot and journal; committed entries are applied in later turns, in slices.

        Raises:
            StorageError: the files cannot be used (see `Damaged`, `WrongIdentity`).
            UnknownVersion: the files have another version.
        """
        ...

    def turn(self) -> None:
        """Do all due work: elections, commits, applies (bounded), sends, the journal's flush.

        Call it at most once per step of the loop, and at least every TURN_PERIOD_MAX_S. Never call
        it from inside a callback of `Callbacks`.
        """
        ...

    @property
    def imaging(self) -> bool:
        """Return whether an image for a snapshot is being made and is not waiting for the disk."""
        ...

    def slice_image(self) -> None:
        """Make the next slice of the image, if one is due.

        While an image is being made, call this after each turn, once the messages of the turn have
        been sent: it may take a millisecond.
        """
        ...

    def receive(self, peer: str, message: bytes) -> None:
        """Handle one message from the link to `peer`.

        Raises:
            ProtocolError: no correct member sends these bytes; the caller closes the link.
        """
        ...

    def connected(self, peer: str) -> None:
        """Note a new link to the peer: messages sent on an earlier link no longer arrive."""
        ...

    def disconnected(self, peer: str) -> None:
        """Note that there is no link to the peer."""
        ...

    @property
    def entries_in_flight(self) -> int:
        """Return the number of entries that this leader has proposed and not yet committed."""
        ...

    def can_propose(self) -> bool:
        """Return whether `propose` may be called now.

        True if this member leads, few entries are in flight, and its own disk keeps up and has
        room.
        """
        ...

    def propose(self, entry: bytes) -> int:
        """Append an entry and return its index. The caller must then run a turn, which sends it.

        Requires `can_propose()`. The entry has at most ENTRY_MAX_BYTES. It may be
        lost with leadership: only `apply` of this index with this term means that it was committed.
        """
        ...

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Name the members that need not learn at once that an entry just proposed is committed.

        They learn it with the next append, at the latest with the leader's next heartbeat.
        """
        ...

    def confirm(self, done: Callable[[], None]) -> None:
        """Call `done` when a majority has confirmed this leadership at a later time than now.

        The proof is an append that was sent after this call and acknowledged in this term. `done`
        is dropped silently when leadership is lost. It runs inside `turn()` or `receive()`.
        """
        ...

    def transfer(self, to: str | None) -> bool:
        """Transfer leadership to `to` (None: the most up-to-date member).

        Returns False if that is not possible now; retry after a pause. True means that the transfer
        has begun: `can_propose` is False until another leader is elected or raft_max_s has passed.
        """
        ...

    @property
    def snapshot_index(self) -> int:
        """The last index that the newest snapshot covers; 0 without one."""
        ...

    def compact(self) -> None:
        """Begin a snapshot, unless one is being made or nothing was applied since the last.

        One that `snapshot_source` could not read is made again without this call.
        """
        ...

    def snapshot_source(self) -> "tuple[SnapshotInfo, Iterator[bytes]] | None":
        """Return the newest snapshot and its verified chunks, to serve a peer's fetch.

        The chunks may be read in another thread. If the file cannot be read, this or they raise,
        and a following turn has the snapshot made again.

        Raises:
            StorageError: the file is damaged, or of another node.
            UnknownVersion: it has another version.
            OSError: the disk refuses.
        """
        ...

    def close(self) -> None:
        """Write out the buffers and close the files. No callback is called afterwards."""
        ...


@dataclass(frozen=True)
class ReplicaConfig:
    """The configuration of a replica. Times in seconds, sizes in bytes.

    Attributes:
        node_id: this member.
        members: all members, this one included; the same on every node.
        directory: the parent of the replica's directories (`log/`, `snapshots/`).
        identity: cluster and node that the files belong to.
        durability: "memory" never waits for the disk; `durable_index` is then the last index.
        log_memory_bytes: the size of the newest entries kept in memory; older ones are read from
            segments.
        log_retain_bytes: the most of the log that is kept for a connected follower although the
            newest snapshot covers it.
        snapshot_bytes_min: a snapshot is due when the log since the last snapshot is larger than
            this and larger than that snapshot.
        disk_reserve_bytes: the least free disk space below which puts must be refused; it also
            bounds the ballast, so that 0 means no ballast.
        rejoin: this disk was lost, and the member does not count until `Callbacks.rejoined`.
        log_base: the last position given to `note_log`.
        note_log: records durably that a segment of the log begins at this position. Called in
            the loop or in the thread that writes the log.
        birth: the birth id of the cluster; a snapshot with another one is refused.
    """

    node_id: str
    members: tuple[str, ...]
    directory: str
    identity: "Identity"
    raft_min_s: float = 0.5
    raft_max_s: float = 1.0
    heartbeat_s: float = 0.05
    durability: Durability = "sync"
    log_memory_bytes: int = 64 * MIB
    log_retain_bytes: int = 256 * MIB
    snapshot_bytes_min: int = 64 * MIB
    segment_bytes: int = 64 * MIB
    disk_reserve_bytes: int = 0
    rejoin: bool = False
    birth: bytes = b""
    log_base: int = NO_LOG
    note_log: Callable[[int], None] = forget_base

    def __post_init__(self) -> None:
        """Check invariants; the node's own config reports named errors to operators."""
        assert self.node_id in self.members, "a node must be one of the members"
        assert len(set(self.members)) == len(self.members), "members must differ"
        assert self.heartbeat_s * 3 < self.raft_min_s < self.raft_max_s, "timeouts out of order"
        assert min(self.log_memory_bytes, self.log_retain_bytes, self.segment_bytes) > 0
        assert not (self.rejoin and len(self.members) == 1), "alone there is nothing to rejoin"
