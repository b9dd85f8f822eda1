"""A running node as its operators see it: the interface to administration, health and metrics.

The node implements `NodeView`; `rpc` and `http` use it. All methods are called in the node's loop
and return at once from memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

from beanpole.core.users import Users

# The limit of queues with their own figures: a cluster may have thousands, a page of metrics should
# not.
QUEUES_MAX: Final = 100
# The limit of the names of such queues, which become labels.
QUEUE_NAME_MAX_BYTES: Final = 256

Role = Literal["leader", "follower", "candidate"]


class Digests(NamedTuple):
    """Values that are equal on nodes with the same log, at the same index.

    Attributes:
        state_index: the last entry that the machine applied.
        state_hash: of all transitions up to it.
        image_index: the last index at which the log asked for the digest of its image; 0: none yet.
        image_digest: that digest.
        image_version: the machine's version; the bytes differ between versions.
    """

    state_index: int = 0
    state_hash: int = 0
    image_index: int = 0
    image_digest: int = 0
    image_version: int = 0


class JobCounts(NamedTuple):
    """Jobs by state, as applied at this node."""

    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0


class SpaceFigures(NamedTuple):
    """The queues and jobs of one protocol in the whole cluster, as applied at this node.

    `kept` jobs are done or failed, with a result; `expired_total` ended by their TTL before that.
    """

    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0
    kept: int = 0
    queues: int = 0
    jobs_total: int = 0
    timeouts_total: int = 0
    expired_total: int = 0


class Quantiles(NamedTuple):
    """The durations in seconds below which 50, 90 and 99 % lie; `durations` is their number."""

    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    durations: int = 0


class Lately(NamedTuple):
    """Rates and durations of the last one to two minutes, as far as this node was running.

    `wait` is from ready to reserved, `run` from there to the end of the reservation. Jobs end when
    they are deleted, done or expired.
    """

    puts_per_s: float = 0.0
    reserved_per_s: float = 0.0
    ended_per_s: float = 0.0
    wait: Quantiles = Quantiles()
    run: Quantiles = Quantiles()


class QueueFigures(NamedTuple):
    """One queue by its own name, with its jobs like those of `SpaceFigures`.

    `ready_s` is the time for which the next job has been ready, 0 if none is.
    """

    protocol: str
    name: str
    ready: int = 0
    reserved: int = 0
    delayed: int = 0
    buried: int = 0
    kept: int = 0
    ready_s: float = 0.0
    lately: Lately = Lately()


class ClientFigures(NamedTuple):
    """The clients of one protocol at a node, since its start."""

    connections: int = 0
    connections_total: int = 0
    refused_total: int = 0
    waiting: int = 0
    # By kind: the protocol's own words, such as "put" and "reserve-with-timeout".
    commands_total: Mapping[str, int] = {}
    # Closed because they did not read their replies.
    slow_total: int = 0
    # Calls of scripts, which are not among the commands; qless alone.
    calls_total: Mapping[str, int] = {}
    # Error replies, by the protocol's word for the error.
    errors_total: Mapping[str, int] = {}
    # Refused by the limit of one address; not in `refused_total`.
    refused_of_address_total: int = 0


class ConnectionFigures(NamedTuple):
    """A client's connection at a node; `id` counts connections since the start of the node.

    Queues and jobs are as applied there: the first few of each, and their total. Jobs held by a
    named worker, as in qless, belong to no connection.
    """

    id: int
    protocol: str
    host: str  # empty if unknown
    age_s: float
    is_waiting: bool  # for a job, or for the result of one
    queue_used: str = ""
    queues_watched: Sequence[str] = ()
    queues_watched_total: int = 0
    jobs_held: Sequence[int] = ()
    jobs_held_total: int = 0


class QlessCounts(NamedTuple):
    """Jobs of qless in its own terms, of one queue or of the cluster. `recurring` are templates."""

    waiting: int = 0
    running: int = 0
    scheduled: int = 0
    depends: int = 0
    throttled: int = 0
    recurring: int = 0


class QlessQueueFigures(NamedTuple):
    """A queue of qless; failed and complete jobs are in none."""

    name: bytes
    paused: bool
    jobs: QlessCounts


class QlessFigures(NamedTuple):
    """Figures of qless in the whole cluster that other protocols lack, as applied at this node.

    The last two are of this node alone: clients that are subscribed now, and messages to them since
    its start.
    """

    jobs: QlessCounts = QlessCounts()
    failed: int = 0
    complete: int = 0
    queues: Sequence[QlessQueueFigures] = ()  # those with the most jobs, QUEUES_MAX at most
    workers: int = 0
    throttles: int = 0
    throttle_locks: int = 0
    failure_groups: int = 0
    locks_lost_total: int = 0
    queues_total: int = 0
    jobs_total: int = 0
    subscribers: int = 0
    delivered_total: int = 0


@dataclass(slots=True)
class Metrics:
    """The metrics of a node since its start, beside the properties of `NodeView`.

    Times are in seconds, sizes in bytes; values whose names end in `_total` only grow.
    """

    fsyncs_total: int = 0
    fsync_seconds_total: float = 0.0
    fsync_seconds_last: float = 0.0
    # The number of syncs below 1, 2, 4 us and so on, each counted once; the last: all others.
    fsync_counts: tuple[int, ...] = ()
    # Entries of this node as leader, from proposal to commit; counts like those of syncs.
    commits_total: int = 0
    commit_seconds_total: float = 0.0
    commit_counts: tuple[int, ...] = ()
    wal_bytes_written_total: int = 0
    wal_bytes: int = 0
    snapshot_bytes: int = 0
    snapshot_behind_bytes: int = 0
    disk_free_bytes: int = 0
    disk_reserve_bytes: int = 0
    outbox_bytes: int = 0
    loop_lag_seconds_last: float = 0.0
    loop_lag_seconds_max: float = 0.0
    loop_lag_seconds_mean: float = 0.0  # of some ten seconds
    leader_changes_total: int = 0
    tubes: int = 0
    sessions: int = 0
    client_hosts: int = 0
    queue_bytes: int = 0
    job_timeouts_total: int = 0
    events_total: int = 0
    events_lost_total: int = 0
    events_bytes: int = 0
    audit_lost_total: int = 0  # lines that the audit log has lost
    peer_refusals: Mapping[str, int] = field(default_factory=dict)  # by reason
    peer_old_proofs_total: int = 0
    tls_refusals: Mapping[str, int] = field(default_factory=dict)  # by reason
    tls_handshakes: int = 0  # in progress
    # When each file of TLS ends, in seconds since 1970, by setting.
    tls_files_end_s: Mapping[str, float] = field(default_factory=dict)
    auth_refusals: Mapping[str, int] = field(default_factory=dict)  # of clients, by reason
    throttled_total: int = 0  # how often reading from a client paused because of a rate
    connections_of_address_max: int = 0  # of the address with the most
    clients: Mapping[str, ClientFigures] = field(default_factory=dict)  # by protocol
    # By the protocol that names a space.
    spaces: Mapping[str, SpaceFigures] = field(default_factory=dict)
    qless: QlessFigures = field(default_factory=QlessFigures)
    # The queues with the most jobs, of all protocols but qless.
    queues: Sequence[QueueFigures] = ()
    # Settings that limit something, by their names.
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SnapshotStream:
    """A snapshot in transit to a peer: its index and term, its chunks of at most 4 MiB, its size.

    The chunks are read one at a time, each on a thread, never two at once.
    """

    index: int
    term: int
    chunks: Iterator[bytes]
    file_bytes: int = 0


class NodeView(Protocol):
    """A node as seen from outside."""

    @property
    def cluster(self) -> str: ...
    @property
    def node_id(self) -> str: ...
    @property
    def members(self) -> tuple[str, ...]:
        """All members in the order of the configuration, this node included."""

    @property
    def config_hash(self) -> str: ...
    @property
    def birth(self) -> str:
        """The birth id of the cluster, in hexadecimal digits; empty while it is unknown."""

    @property
    def version(self) -> str:
        """The version of the program."""

    @property
    def machine_version(self) -> int:
        """The active machine version, as applied here."""

    @property
    def machine_version_known(self) -> int:
        """The newest machine version that the program knows."""

    @property
    def upgrade_finalize(self) -> str:
        """How the version is raised while this node leads: "auto" or "manual" (by an operator)."""

    @property
    def durability(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def leader(self) -> str | None:
        """The leader that this node follows now, itself included; None while it knows none."""

    @property
    def term(self) -> int: ...
    @property
    def commit_index(self) -> int: ...
    @property
    def applied_index(self) -> int: ...
    @property
    def first_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def caught_up(self) -> bool:
        """Whether it has applied (nearly) all known committed entries since it found its leader."""

    @property
    def users(self) -> Users | None:
        """The users, as applied here; None while the node may not know those of its start."""

    @property
    def serving(self) -> bool:
        """Whether client ports are open."""

    @property
    def draining(self) -> bool: ...
    def waiting_for(self) -> tuple[str, ...]:
        """The members without which this node's disk cannot know its cluster."""

    @property
    def state(self) -> str:
        """In one word: "starting", "rejoining", "serving", "cut off" or "stopping"."""

    def waits(self) -> str:
        """The obstacle that keeps the node from serving, in words; empty if there is none."""

    @property
    def rejoining(self) -> bool: ...
    @property
    def failure(self) -> str | None:
        """Why the node cannot go on: a failed disk, a diverged replica; None if it can."""

    @property
    def loop_lag_s(self) -> float:
        """The delay of the loop's last timer, in seconds."""

    @property
    def disk_lag_s(self) -> float:
        """For how long the disk has finished no pending write."""

    @property
    def disk_hangs(self) -> bool:
        """Whether that is too long: the node leads no more and stands for no election."""

    @property
    def disk_is_behind(self) -> bool:
        """Whether it hangs, or has hung twice lately and not kept up for long enough since."""

    @property
    def disk_full(self) -> bool:
        """Whether this node's log must not grow: of a lone node, no command is carried out."""

    def links(self) -> tuple[str, ...]:
        """Return the members with a live peer link."""

    def no_link_words(self, member: str) -> str:
        """Return the reason why there is no peer link to a member; empty if there is one."""

    def skews_s(self) -> dict[str, float]:
        """Return how far the wall clocks of the linked members are ahead of this node's."""

    def digests(self) -> Digests:
        """Return the values that must be equal on other nodes."""

    def jobs(self) -> JobCounts: ...
    def metrics(self, with_queues: bool = True) -> Metrics:
        """Return the node's metrics; `queues` is empty if the caller does not need it."""

    def lately(self) -> Lately:
        """Return the recent figures of all queues together."""

    def lately_s(self) -> float:
        """The time that such figures cover, in seconds; 0 if the node keeps no events."""

    def busiest(self) -> Sequence[QueueFigures]:
        """Return the queues with the most recent events, QUEUES_MAX at most, of all but qless."""

    def connections(self, after: int, limit: int) -> Sequence[ConnectionFigures]:
        """Return clients' connections with ids above `after`, the oldest first."""

    def close_connection(self, connection_id: int) -> bool:
        """Close a connection as if its network were lost; False if there is none with this id."""

    def transfer_leader(self, to: str | None) -> bool:
        """Begin to hand leadership over; False if that is not possible at present."""

    def finalize(self, to: int) -> tuple[int, str]:
        """Begin to raise the machine's version; return that version, and why not now, if so."""

    @property
    def snapshot_index(self) -> int:
        """The last index that the newest snapshot covers; 0 without one."""

    def snapshot_lacks(self) -> str:
        """Return why no snapshot can begin for lack of room; empty if one can, or is made."""

    def take_snapshot(self) -> None:
        """Begin a snapshot, if none is in progress and something was applied since the last."""

    def snapshot_source(self) -> SnapshotStream | None:
        """Open the newest snapshot on the disk."""
