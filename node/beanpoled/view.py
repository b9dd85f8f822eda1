"""A running node as its operators see it: the border to admin, health and metrics.

The node implements `NodeView`; `admin`, `http` and `metrics` only read it. Everything is called in
the node's loop and answers at once from memory.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

# Queues that have figures of their own: a cluster may have thousands, a page of metrics
# should not.
QUEUES_MAX: Final = 100
# The name of one that has is not longer: it is a label.
QUEUE_NAME_MAX_BYTES: Final = 256

Role = Literal["leader", "follower", "candidate"]


class Digests(NamedTuple):
    """What nodes with the same log have the same of, at the same index.

    Attributes:
        state_index: the last entry that the machine applied.
        state_hash: of all that it did until then.
        image_index: the last index at which the log asked for the digest of its image; 0: none yet.
        image_digest: that digest.
        image_version: the machine's version; others have other bytes.
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

    `kept` are done or failed, with a result; `expired_total` ended by their TTL before that.
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
    """Durations in seconds below which half, nine of ten and 99 of 100 are; of how many."""

    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    durations: int = 0


class Lately(NamedTuple):
    """Events of the last one to two minutes, as far as this node was there.

    `wait` is from ready to reserved, `run` from there to the end of the reservation. Jobs end when
    they are deleted, done or expired.
    """

    puts_per_s: float = 0.0
    reserved_per_s: float = 0.0
    ended_per_s: float = 0.0
    wait: Quantiles = Quantiles()
    run: Quantiles = Quantiles()


class QueueFigures(NamedTuple):
    """One queue by its own name, with its jobs as those of `SpaceFigures`.

    `ready_s` is for how long the job that comes next has been ready, 0 if none is.
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
    # Closed because they did not read what they were sent.
    slow_total: int = 0
    # Calls of scripts, which are not among the commands; qless alone.
    calls_total: Mapping[str, int] = {}
    # Replies that say that something was not done, by the protocol's word for it.
    errors_total: Mapping[str, int] = {}
    # Above what one address may have; not in `refused_total`.
    refused_of_address_total: int = 0


class ConnectionFigures(NamedTuple):
    """A client's connection at a node; `id` counts them since the start of the node.

    Queues and jobs are as applied there, the first few of each beside how many there are. Jobs that
    a named worker holds, as those of qless, are of no connection.
    """

    id: int
    protocol: str
    host: str  # empty if nobody knows it
    age_s: float
    is_waiting: bool  # for a job, or for the result of one
    queue_used: str = ""
    queues_watched: Sequence[str] = ()
    queues_watched_total: int = 0
    jobs_held: Sequence[int] = ()
    jobs_held_total: int = 0


class QlessCounts(NamedTuple):
    """Jobs of qless in its own words, of one queue or of the cluster. `recurring` are templates."""

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
    """qless in the whole cluster, as applied at this node, beside what other protocols have, too.

    The last two are of this node alone, since its start: clients that have subscribed now, and
    messages to them.
    """

    jobs: QlessCounts = QlessCounts()
    failed: int = 0
    complete: int = 0
    queues: Sequence[QlessQueueFigures] = ()  # those with most jobs, QUEUES_MAX at most
    workers: int = 0
    throttles: int = 0
    throttle_locks: int = 0
    failure_groups: int = 0
    locks_lost_total: int = 0
    queues_total: int = 0
    jobs_total: int = 0
    subscribers: int = 0
    told_total: int = 0


@dataclass(slots=True)
class Metrics:
    """The numbers of a node since its start, beside those that `NodeView` has anyway.

    Times are in seconds, sizes in bytes; names that end in `_total` only grow.
    """

    fsyncs_total: int = 0
    fsync_seconds_total: float = 0.0
    fsync_seconds_last: float = 0.0
    # How many took less than 1, 2, 4 us and so on, each counted once; the last: all others.
    fsync_counts: tuple[int, ...] = ()
    # Entries of this node as leader, from proposal to commit; counts as those of syncs.
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
    leader_changes_total: int = 0
    tubes: int = 0
    sessions: int = 0
    client_hosts: int = 0
    queue_bytes: int = 0
    job_timeouts_total: int = 0
    events_total: int = 0
    events_lost_total: int = 0
    events_bytes: int = 0
    audit_lost_total: int = 0  # lines that are not in the audit log
    peer_refusals: Mapping[str, int] = field(default_factory=dict)  # by reason
    peer_old_proofs_total: int = 0
    tls_refusals: Mapping[str, int] = field(default_factory=dict)  # by reason
    tls_handshakes: int = 0  # in progress
    auth_refusals: Mapping[str, int] = field(default_factory=dict)  # of clients, by reason
    throttled_total: int = 0  # how often a client was not read because of a rate
    connections_of_address_max: int = 0  # of the address that has most
    clients: Mapping[str, ClientFigures] = field(default_factory=dict)  # by protocol
    # By the protocol that a space is called by.
    spaces: Mapping[str, SpaceFigures] = field(default_factory=dict)
    qless: QlessFigures = field(default_factory=QlessFigures)
    # The queues with most jobs, of all protocols but qless.
    queues: Sequence[QueueFigures] = ()
    # Settings that bound something, by their names.
    limits: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SnapshotStream:
    """A snapshot on its way to a peer: what it covers, its chunks of at most 4 MiB, its size.

    The chunks are taken one at a time, each on a thread, never two at once.
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
        """The life of the cluster, in hexadecimal digits; empty while it is not known."""

    @property
    def version(self) -> str:
        """Of the program."""

    @property
    def machine_version(self) -> int:
        """The active machine version, as applied here."""

    @property
    def machine_version_known(self) -> int:
        """The newest that the program knows."""

    @property
    def upgrade_finalize(self) -> str:
        """How the version is raised while this node leads: "auto" or "manual" (an operator)."""

    @property
    def durability(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def leader(self) -> str | None:
        """The leader this node follows now, itself included; None while it knows none."""

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
        """It has applied (nearly) all that it knows to be committed since it found its leader."""

    @property
    def serving(self) -> bool:
        """Client ports are open."""

    @property
    def draining(self) -> bool: ...
    def waiting_for(self) -> tuple[str, ...]:
        """The members without which this node's disk cannot know its cluster."""

    @property
    def state(self) -> str:
        """In a word: "starting", "rejoining", "serving", "cut off" or "stopping"."""

    def waits(self) -> str:
        """What has to happen before it serves, in words; empty if nothing is missing."""

    @property
    def rejoining(self) -> bool: ...
    @property
    def failure(self) -> str | None:
        """Why the node cannot go on, if so: a failed disk, a diverged replica."""

    @property
    def loop_lag_s(self) -> float:
        """How late the loop's last timer was, in seconds."""

    @property
    def disk_lag_s(self) -> float:
        """For how long the disk has finished nothing of what it was given."""

    @property
    def disk_hangs(self) -> bool:
        """Whether that is too long: the node leads no more and stands for no election."""

    def links(self) -> tuple[str, ...]:
        """Return the members with which there is a live peer link."""

    def digests(self) -> Digests:
        """Return what other nodes must have the same of."""

    def jobs(self) -> JobCounts: ...
    def metrics(self) -> Metrics: ...
    def lately(self) -> Lately:
        """Return what all queues together did lately."""

    def lately_s(self) -> float:
        """Of which time such figures are, in seconds; 0 where the node keeps no events."""

    def busiest(self) -> Sequence[QueueFigures]:
        """Return the queues with most events lately, QUEUES_MAX at most, of all but qless."""

    def connections(self, after: int, limit: int) -> Sequence[ConnectionFigures]:
        """Return clients' connections with ids above `after`, the oldest first."""

    def close_connection(self, connection_id: int) -> bool:
        """Close one, as if its network were lost; False if there is none with this id."""

    def transfer_leader(self, to: str | None) -> bool:
        """Begin to hand leadership over; False if that is not possible at this moment."""

    def finalize(self, to: int) -> tuple[int, str]:
        """Begin to raise the machine's version: the version meant, and why not now, if so."""

    @property
    def snapshot_index(self) -> int:
        """The last index that the newest snapshot covers; 0 without one."""

    def take_snapshot(self) -> None:
        """Begin a snapshot, if none is being made and something was applied since the last."""

    def snapshot_source(self) -> SnapshotStream | None:
        """Open the newest snapshot on the disk."""


class Check(NamedTuple):
    """One condition of readiness."""

    name: str
    passed: bool
    words: str


# A loop that is later than this cannot be said to work; elections are decided in less.
LOOP_LAG_MAX_S: Final = 10.0


def liveness(view: NodeView) -> list[Check]:
    """Check the process alone: a lost majority must never restart nodes."""
    lag = view.loop_lag_s
    return [
        Check("failure", view.failure is None, view.failure or "none"),
        Check("loop", lag <= LOOP_LAG_MAX_S, f"lag {lag:.3f} s"),
    ]


def waiting_words(members: Iterable[str], rejoining: bool) -> str:
    """Say what a node waits for whose disk does not know its cluster."""
    names = ", ".join(members)
    return f"waiting for {names}" if rejoining else f"waiting for {names} to found the cluster"


def _state_words(view: NodeView) -> str:
    waits = view.waits()
    return f"{view.state}, {waits}" if waits else view.state


def readiness(view: NodeView, leader_only: bool = False) -> list[Check]:
    """Check whether clients should come to this node (with `leader_only`: as the leader)."""
    leader = view.leader
    behind = view.commit_index - view.applied_index
    absent = view.waiting_for()
    checks = [
        *liveness(view),
        Check(
            "cluster",
            not absent,
            waiting_words(absent, view.rejoining) if absent else f"birth {view.birth[:8]}",
        ),
        Check("state", view.state == "serving", _state_words(view)),
        Check("leader", leader is not None, leader or "no leader is known"),
        Check("caught-up", view.caught_up, f"{behind} entries to apply"),
        Check("serving", view.serving, "ports open" if view.serving else "ports closed"),
        Check("draining", not view.draining, "yes" if view.draining else "no"),
        Check("disk", not view.disk_hangs, f"behind for {view.disk_lag_s:.1f} s"),
        Check("rejoining", not view.rejoining, "yes" if view.rejoining else "no"),
    ]
    if leader_only:
        checks.append(Check("is-leader", view.role == "leader", f"role {view.role}"))
    return checks
