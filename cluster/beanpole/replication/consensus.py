"""The border between a node and its consensus: two Protocols, one each way, and a config.

Belongs here: the border itself, its limits and its promises. No implementation, nothing of any
library. `memory.py` is the smallest implementation, `pysyncobj/` the real one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from beanpole.storage.segment import NO_LOG, forget_base
from beanpole.weights import ENTRY_MAX_BYTES as ENTRY_MAX_BYTES

if TYPE_CHECKING:
    from beanpole.storage.snapshots import SnapshotInfo
    from beanpole.storage.wal import Identity

Role = Literal["leader", "follower", "candidate"]
Durability = Literal["sync", "memory"]

LEADER: Final = "leader"
FOLLOWER: Final = "follower"
CANDIDATE: Final = "candidate"

# Entries of the leader that are not committed yet. Enough to fill the pipe between two nodes with
# large ones; small ones wait for each other in the leader (`proposing.ENTRY_FULL_BYTES`).
ENTRIES_IN_FLIGHT_MAX: Final = 8
# Alone there is nothing to overlap with: what arrives while the disk works forms the next entry.
ENTRIES_IN_FLIGHT_ALONE_MAX: Final = 1
# Bytes of the log that a member has and that are not on its own disk: with more, a leader proposes
# nothing and a follower takes nothing. A disk that keeps up never has more to do than what may be
# in flight; this much memory is what a disk that hangs costs.
UNWRITTEN_BYTES_MAX: Final = ENTRIES_IN_FLIGHT_MAX * ENTRY_MAX_BYTES
# The longest pause between two turns that keeps heartbeats and elections exact.
TURN_PERIOD_MAX_S: Final = 0.02

MIB: Final = 1024 * 1024


class DiskFigures(NamedTuple):
    """The cost of the log for the disk since the start of the process."""

    syncs: int = 0
    sync_us_total: int = 0
    sync_us_last: int = 0
    bytes_written: int = 0
    # How many syncs took less than 1, 2, 4 us and so on, and not less than the one before; the last
    # ones are all that took longer.
    sync_counts: tuple[int, ...] = ()


class DiskRoom(NamedTuple):
    """What the disk has left.

    Attributes:
        free_bytes: what may still be written.
        reserve_bytes: with less free, puts must be refused.
        low: whether they must.
        full: whether the log takes nothing more; no entry can be proposed or received then.
    """

    free_bytes: int = 0
    reserve_bytes: int = 0
    low: bool = False
    full: bool = False


class LogOnDisk(NamedTuple):
    """How far the disk is with the log, also if nothing waits for it (durability "memory").

    Attributes:
        end: the position in bytes after the last record.
        written: the position up to which everything is on the disk.
        last: the index of the last entry that is there.
    """

    end: int = 0
    written: int = 0
    last: int = 0


class Image(Protocol):
    """A consistent picture of the machine, produced in slices while the machine goes on."""

    def next_chunk(self) -> bytes | None:
        """Return the next chunk (at most 4 MiB, quickly made), or None when it is complete."""
        ...

    def close(self) -> None:
        """Give up what is held for the picture; also called after the last chunk."""
        ...


class Sink(Protocol):
    """Where the chunks of a fetched snapshot go."""

    # Bytes written and not yet on disk: the producer pauses while this is large.
    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that were written and are not on disk yet."""
        ...

    def write(self, chunk: bytes) -> None:
        """Add one chunk (at most 4 MiB) as `snapshot_source` of the peer gave it."""
        ...


class Callbacks(Protocol):
    """The functions of a node that its replica calls, all in the node's loop."""

    def now_s(self) -> float:
        """Return monotonic seconds."""
        ...

    def random(self) -> float:
        """Return a number in [0, 1): used for election timeouts only."""
        ...

    def send(self, peer: str, message: bytes) -> bool:
        """Send one Raft message; False if there is no link or its output is above its limit.

        False means that the message was not taken. The replica then treats the peer as full: it
        sends it nothing but one heartbeat per heartbeat period, until one of those is taken.
        """
        ...

    def flush(self) -> None:
        """Let what was given to `send` leave now: the replica goes on with long work."""
        ...

    def committed(self) -> None:
        """The commit index of this turn is known, and what it covers is applied next.

        The moment to `propose` what waited for room: it leaves in this turn, in the same message
        as the new commit index.
        """
        ...

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """Take a committed entry: in order, once per process life. Indexes may have gaps.

        The gaps are entries of the consensus itself (a new leader's first entry), and what an
        image given to `load_image` covers. It must not raise: a raise stops the node.
        """
        ...

    def begin_image(self) -> Image:
        """Begin a picture of the machine with everything applied so far.

        The log is cut behind it once its snapshot is complete, and what is written of it stands
        in LANE_BULK behind what the node has submitted there until now: files that must be
        durable before the log is cut are submitted here.
        """
        ...

    def image_bytes(self) -> int:
        """Return about how large a picture of the machine would be now; rather too much."""
        ...

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """Replace the machine by the picture. `chunks` raises `Damaged` on bad bytes."""
        ...

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Write the chunks of the peer's snapshot at exactly `index` into `sink`.

        `done(None)` after the last chunk, or `done("why it failed")`; once, in the loop. If the
        peer's `snapshot_source` is of another index by now, that is a failure: the leader will
        offer the newer one. After `close()` of the replica `done` has no effect.
        """
        ...

    def wake(self) -> None:
        """Ask for a `turn()` soon, in a later step of the loop. Coalesced by the node."""
        ...

    def role_changed(self) -> None:
        """Role, leader or term changed. Must only note it: it is called in the middle of a turn."""
        ...

    def log(self, line: str) -> None:
        """Print a line for the operator."""
        ...

    def rejoined(self) -> None:
        """Remember, durably at return, that this member counts again.

        Only what is applied when this is called is known for certain to be what counts.
        """
        ...

    def fatal(self, reason: str) -> None:
        """Print one line and end the process. If it returns, the replica does nothing any more."""
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
        """Return what this member is in its current term."""
        ...

    @property
    def leader(self) -> str | None:
        """Return the leader of the current term as far as this member knows."""
        ...

    @property
    def term(self) -> int:
        """Return the current term; it never falls, also over restarts."""
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

        None if it is not in memory, or if a term has begun behind it more often than elections do.
        """
        ...

    @property
    def durable_index(self) -> int:
        """Return the last index up to which the log is on this disk (or need not be)."""
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
        """Return the bytes of log that the newest snapshot does not have."""
        ...

    @property
    def majority_answers(self) -> bool:
        """Return whether this member leads and a majority answered within the last raft_min_s."""
        ...

    @property
    def rejoining(self) -> bool:
        """Return whether this member has lost its disk and does not count yet."""
        ...

    def match_index(self, peer: str) -> int:
        """Return what the peer is known to have, as the leader sees it; 0 if unknown."""
        ...

    def disk(self) -> DiskFigures:
        """Return the log's figures, for metrics."""
        ...

    def room(self) -> DiskRoom:
        """Return what the disk has left, as of the last look at it (a few times per second)."""
        ...

    def log_on_disk(self) -> LogOnDisk:
        """Return how far the disk is with the log."""
        ...

    def note_disk(self, hangs: bool) -> None:
        """Be told whether this member's disk finishes nothing, as the node has seen it.

        A member whose disk hangs does not campaign, and what shows a new term or vote leaves
        when the disk has it; otherwise the disk is waited for at once.
        """
        ...

    def start(self) -> None:
        """Load snapshot and journal; what is committed is applied in later turns, in slices.

        Raises:
            StorageError: the files cannot be used (see `Damaged`, `WrongIdentity`).
            UnknownVersion: the files are of another version.
        """
        ...

    def turn(self) -> None:
        """Do what is due: elections, commits, applies (bounded), sends, the journal's flush.

        At most once per step of the loop, and at least every TURN_PERIOD_MAX_S. Never call it
        from inside a callback of `Callbacks`.
        """
        ...

    @property
    def imaging(self) -> bool:
        """Return whether an image is being made for a snapshot, and does not wait for the disk."""
        ...

    def slice_image(self) -> None:
        """Go on with the image, if it is time.

        Call it after each turn while there is one, when what the turn said has left: it may take
        a millisecond.
        """
        ...

    def receive(self, peer: str, message: bytes) -> None:
        """Take one message of the link to `peer`.

        Raises:
            ProtocolError: no correct member sends these bytes; the caller closes the link.
        """
        ...

    def connected(self, peer: str) -> None:
        """Note a new link to the peer: nothing sent before it will arrive any more."""
        ...

    def disconnected(self, peer: str) -> None:
        """Note that there is no link to the peer."""
        ...

    @property
    def entries_in_flight(self) -> int:
        """Return how many entries of this leader are proposed and not committed."""
        ...

    def can_propose(self) -> bool:
        """Return whether `propose` may be called now.

        This member leads, few entries are in flight, and its own disk keeps up and has room.
        """
        ...

    def propose(self, entry: bytes) -> int:
        """Append an entry and return its index. The caller must take a turn, which sends it.

        Only if `can_propose()`. At most ENTRY_MAX_BYTES. It may still be lost with leadership:
        only `apply` of this index with this term says that it was committed.
        """
        ...

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Say which members need not know at once that an entry just proposed is committed.

        They learn it with the next append, at the latest with the next heartbeat of the leader.
        """
        ...

    def confirm(self, done: Callable[[], None]) -> None:
        """Call `done` when a majority has confirmed this leadership at a later time than now.

        The proof is an append that was sent after this call and acknowledged in this term. Dropped
        silently when leadership is lost. `done` runs inside `turn()` or `receive()`.
        """
        ...

    def transfer(self, to: str | None) -> bool:
        """Hand leadership to `to` (None: the furthest member); False if that is not possible now.

        True means that the target was told to stand; `can_propose` is False until it is decided
        (another leader, or raft_max_s went by). Call it again after False, with quiet between.
        """
        ...

    @property
    def snapshot_index(self) -> int:
        """The last index that the newest snapshot covers; 0 without one."""
        ...

    def compact(self) -> None:
        """Begin a snapshot now, if none is being made and something was applied since the last."""
        ...

    def snapshot_source(self) -> "tuple[SnapshotInfo, Iterator[bytes]] | None":
        """Return the newest snapshot and its verified chunks, to serve a peer's fetch."""
        ...

    def close(self) -> None:
        """Write out what is buffered, close the files. Nothing is called afterwards."""
        ...


@dataclass(frozen=True)
class ReplicaConfig:
    """The configuration of a replica. Times in seconds, sizes in bytes.

    Attributes:
        node_id: this member.
        members: all members, this one included; the same on every node.
        directory: the replica keeps its files below it (`log/`, `snapshots/`).
        identity: cluster and node that the files belong to.
        durability: "memory" never waits for the disk and says so in `durable_index`.
        log_memory_bytes: the newest entries kept in memory; older ones are read from segments.
        log_retain_bytes: the most that is kept of the log for a connected follower beyond what
            the newest snapshot covers.
        snapshot_bytes_min: a snapshot is due when the log since the last one is larger than this
            and than that snapshot.
        disk_reserve_bytes: the least free disk below which puts must be refused; it also bounds
            the ballast, so that 0 means none.
        rejoin: this disk was lost and does not count, until `Callbacks.rejoined` is called.
        log_base: what `note_log` noted last.
        note_log: remembers durably that a segment of the log begins at this position. Called in
            the loop or in the thread that writes the log.
        birth: names the life of the cluster; a snapshot of another one is refused.
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
        """Check what the rest relies on; operators meet named errors in the node's own config."""
        assert self.node_id in self.members, "a node must be one of the members"
        assert len(set(self.members)) == len(self.members), "members must differ"
        assert self.heartbeat_s * 3 < self.raft_min_s < self.raft_max_s, "timeouts out of order"
        assert min(self.log_memory_bytes, self.log_retain_bytes, self.segment_bytes) > 0
        assert not (self.rejoin and len(self.members) == 1), "alone there is nothing to rejoin"
