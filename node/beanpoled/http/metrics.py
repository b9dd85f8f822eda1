"""Metrics of a node in the Prometheus text format (version 0.0.4).

Names begin with `beanpole_`, counters end in `_total`, units are seconds and bytes. The values come
from `view.Metrics`; nothing is counted here.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from beanpole.core.jobs import display_names
from beanpole.events import PROTOCOL_NAMES, QLESS
from beanpoled.http import process
from beanpoled.view import ClientFigures, Metrics, NodeView, Quantiles, QueueFigures, SpaceFigures

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[str, float]
Family = tuple[str, str, str, Iterable[Sample]]
# `kept`: done or failed, with a result.
JOB_STATES: Final = ("ready", "reserved", "delayed", "buried", "kept")
# The label of values that every node reports alike, and their help text: a sum over nodes would
# count them once per node.
SCOPE: Final = 'scope="cluster"'
SAME: Final = "Of the whole cluster, the same at all nodes: not to be summed over nodes."
# The first bucket of a sync or a commit: less than 64 us.
CLASS_MIN: Final = 6
_ROLES: Final = ("follower", "candidate", "leader")


def render(view: NodeView) -> str:
    """Return all metrics of a node as text."""
    now = view.metrics()  # once: it examines many queues, and each call may find other ones
    lines: list[str] = []
    for name, kind, words, samples in (
        *_raft(view, now),
        *_node(view, now),
        *_clients(now),
        *_qless_here(now),
    ):
        _write(lines, f"beanpole_{name}", kind, words, samples)
    # A node that has just started has the queue of its last snapshot, whose replay would look like
    # growth.
    shared = (*_queue(view, now), *_spaces(now), *_qless(now)) if view.caught_up else ()
    for name, kind, words, samples in shared:
        marked = ((_add(labels, SCOPE), value) for labels, value in samples)
        _write(lines, f"beanpole_{name}", kind, f"{words} {SAME}", marked)
    for name, kind, words, samples in _process():
        _write(lines, name, kind, words, samples)
    return "\n".join(lines) + "\n"


def _write(lines: list[str], name: str, kind: str, words: str, samples: Iterable[Sample]) -> None:
    lines.append(f"# HELP {name} {words}")
    lines.append(f"# TYPE {name} {kind}")
    before = f"{name}_bucket" if kind == "histogram" else name
    for labels, value in samples:
        # The sum and the count of a histogram have their own names.
        full = name if labels.startswith("_") else before
        lines.append(f"{full}{labels} {_number(value)}")


def _add(labels: str, more: str) -> str:
    return f"{labels[:-1]},{more}}}" if labels else f"{{{more}}}"


def _raft(view: NodeView, now: Metrics) -> list[Family]:
    links = set(view.links())
    changes = now.leader_changes_total
    return [
        ("build_info", "gauge", "Always 1; the labels describe this node.", [(_build(view), 1)]),
        (
            "role",
            "gauge",
            "1 for the role that the node has.",
            [(label(role=role), role == view.role) for role in _ROLES],
        ),
        _gauge("has_leader", "Whether the node knows a leader.", view.leader is not None),
        _gauge("term", "Raft term.", view.term),
        _gauge("commit_index", "Last entry known to be committed.", view.commit_index),
        _gauge("applied_index", "Last entry applied to the queue.", view.applied_index),
        _gauge("first_index", "First entry of the log.", view.first_index),
        _gauge("last_index", "Last entry of the log.", view.last_index),
        _gauge(
            "snapshot_index", "Last entry that the newest snapshot covers.", view.snapshot_index
        ),
        _gauge(
            "machine_version", "Machine version at which the cluster works.", view.machine_version
        ),
        _gauge(
            "machine_version_known",
            "Newest machine version that this program knows.",
            view.machine_version_known,
        ),
        _counter("leader_changes", "Changes of leader that this node has seen.", changes),
        (
            "peer_up",
            "gauge",
            "Whether there is a live peer link to a member.",
            [(label(peer=name), name in links) for name in view.members if name != view.node_id],
        ),
    ]


def _node(view: NodeView, now: Metrics) -> list[Family]:
    return [
        _gauge("serving", "Whether client ports are open.", view.serving),
        _gauge("draining", "Whether puts are answered DRAINING.", view.draining),
        (
            "fsync_duration_seconds",
            "histogram",
            "Time of syncing the log to the disk.",
            _buckets(now.fsync_counts, now.fsyncs_total, now.fsync_seconds_total),
        ),
        (
            "commit_duration_seconds",
            "histogram",
            "Time of entries from proposal to commit, at their leader.",
            _buckets(now.commit_counts, now.commits_total, now.commit_seconds_total),
        ),
        _gauge("fsync_last_seconds", "Time of the last sync of the log.", now.fsync_seconds_last),
        _gauge("disk_lag_seconds", "Wait of the oldest write or measurement.", view.disk_lag_s),
        _counter("wal_written_bytes", "Bytes written to the log.", now.wal_bytes_written_total),
        _gauge("wal_bytes", "Bytes of log on the disk.", now.wal_bytes),
        _gauge("snapshot_bytes", "Bytes of the newest snapshot.", now.snapshot_bytes),
        _gauge("snapshot_behind_bytes", "Bytes of log after it.", now.snapshot_behind_bytes),
        _gauge("disk_free_bytes", "Free space of the disk.", now.disk_free_bytes),
        _gauge("disk_reserve_bytes", "Free disk below which puts end.", now.disk_reserve_bytes),
        _gauge("outbox_bytes", "Commands of own clients not applied yet.", now.outbox_bytes),
        _gauge("loop_lag_seconds", "Last lateness of the event loop.", now.loop_lag_seconds_last),
        _gauge("loop_lag_mean_seconds", "Mean lateness of 10 s.", now.loop_lag_seconds_mean),
        _gauge("loop_lag_max_seconds", "Worst lateness of the loop.", now.loop_lag_seconds_max),
        _gauge("events_bytes", "Bytes of events in files.", now.events_bytes),
        _counter("events_lost", "Events that this node could not keep.", now.events_lost_total),
        _counter("audit_lost", "Lines that the audit log lost.", now.audit_lost_total),
        _counter(
            "peer_old_proofs", "Accepted proofs of releases up to 0.3.0.", now.peer_old_proofs_total
        ),
        (
            "peer_refused_total",
            "counter",
            "Links and calls of nodes without the right proof, by reason.",
            [(label(reason=name), value) for name, value in now.peer_refusals.items()],
        ),
        _gauge("tls_handshakes", "TLS handshakes in progress.", now.tls_handshakes),
        (
            "tls_refused_total",
            "counter",
            "Failed TLS handshakes, by reason.",
            [(label(reason=name), value) for name, value in now.tls_refusals.items()],
        ),
        (
            "tls_expiry_timestamp_seconds",
            "gauge",
            "Next end of a certificate or list in a TLS file, in seconds since 1970, by setting.",
            [(label(setting=name), value) for name, value in now.tls_files_end_s.items()],
        ),
        (
            "auth_refused_total",
            "counter",
            "Clients refused for a missing right or a wrong token, by reason.",
            [(label(reason=name), value) for name, value in now.auth_refusals.items()],
        ),
        (
            "limit",
            "gauge",
            "Settings that bound something.",
            [(label(name=name), value) for name, value in now.limits.items()],
        ),
    ]


def _buckets(counts: Sequence[int], count: int, total_s: float) -> list[Sample]:
    """Return the samples of a histogram whose classes end at 1, 2, 4 us and so on.

    Classes below 64 us are merged into one bucket, because no disk is that fast.
    """
    found: list[Sample] = []
    below = sum(counts[:CLASS_MIN])
    for number in range(CLASS_MIN, len(counts) - 1):
        below += counts[number]
        found.append((label(le=repr((1 << number) / 1e6)), below))
    found.append((label(le="+Inf"), count))
    return [*found, ("_sum", total_s), ("_count", count)]


def _process() -> list[Family]:
    now = process.read()

    def one(name: str, kind: str, words: str) -> Family:
        return (f"process_{name}", kind, words, [("", getattr(now, name))])

    return [
        one("cpu_seconds_total", "counter", "Processor time of this process, in seconds."),
        one("resident_memory_bytes", "gauge", "Resident memory size in bytes."),
        one("virtual_memory_bytes", "gauge", "Virtual memory size in bytes."),
        one("open_fds", "gauge", "Number of open file descriptors."),
        one("max_fds", "gauge", "Maximum number of open file descriptors."),
        one("start_time_seconds", "gauge", "Start time of the process in Unix time."),
    ]


def _clients(now: Metrics) -> list[Family]:
    """The metrics of each protocol."""
    commands = [
        (label(protocol=protocol, command=word), n)
        for protocol, its in now.clients.items()
        for word, n in sorted(its.commands_total.items())
    ]
    errors = [
        (label(protocol=protocol, error=word), n)
        for protocol, its in now.clients.items()
        for word, n in sorted(its.errors_total.items())
    ]
    each = partial(_by_protocol, now.clients)
    accepted, above = "Client connections accepted.", "Client connections above the limit."
    return [
        each("connections", "gauge", "Client connections.", "connections"),
        each("connections_total", "counter", accepted, "connections_total"),
        each("connections_refused_total", "counter", above, "refused_total"),
        each("waiting", "gauge", "Clients of this node that wait for a job.", "waiting"),
        ("error_replies_total", "counter", "Errors replied to this node's clients.", errors),
        ("commands_total", "counter", "Commands of this node's clients by kind.", commands),
        each("connections_slow_total", "counter", "Closed: they did not read.", "slow_total"),
        each(
            "connections_per_address_refused_total",
            "counter",
            "Client connections above the limit of one address.",
            "refused_of_address_total",
        ),
        _gauge(
            "address_connections",
            "Connections of the client address that has most.",
            now.connections_of_address_max,
        ),
        _counter(
            "connections_throttled",
            "How often reading from a client paused because of the rate of its address or user.",
            now.throttled_total,
        ),
    ]


def _queue(view: NodeView, now: Metrics) -> list[Family]:
    jobs = view.jobs()._asdict().items()
    return [
        ("jobs", "gauge", "Jobs by state.", [(label(state=state), n) for state, n in jobs]),
        _gauge("tubes", "Tubes.", now.tubes),
        _gauge("sessions", "Sessions of the cluster.", now.sessions),
        _gauge("client_hosts", "Hosts of clients that events can name.", now.client_hosts),
        _gauge(
            "queue_bytes",
            "Memory that the queue takes, as `queue_bytes_max` counts it.",
            now.queue_bytes,
        ),
        _counter("job_timeouts", "Jobs whose TTR ran out.", now.job_timeouts_total),
        _counter("events", "Events of all jobs since the cluster began.", now.events_total),
    ]


def _spaces(now: Metrics) -> list[Family]:
    """The queues and jobs of each protocol; no client uses those of another protocol."""
    jobs = [
        (label(protocol=protocol, state=state), getattr(its, state))
        for protocol, its in now.spaces.items()
        for state in JOB_STATES
    ]
    each = partial(_by_protocol, now.spaces)
    queues = [
        (label(protocol=queue.protocol, queue=queue.name, state=state), getattr(queue, state))
        for queue in now.queues
        for state in JOB_STATES
    ]
    ages = [(_queue_label(queue), queue.ready_s) for queue in now.queues]
    return [
        ("queue_jobs", "gauge", "Jobs by state of the queues with most jobs.", queues),
        ("queue_ready_age_seconds", "gauge", "How long the next job of it has been ready.", ages),
        *_lately(now),
        ("other_queues_jobs", "gauge", "Jobs of all queues without such figures.", _others(now)),
        ("protocol_jobs", "gauge", "Jobs by protocol and state.", jobs),
        each("protocol_queues", "gauge", "Queues.", "queues"),
        each("protocol_jobs_total", "counter", "Jobs since the cluster began.", "jobs_total"),
        each("protocol_timeouts_total", "counter", "Jobs whose TTR ran out.", "timeouts_total"),
        each("protocol_expired_total", "counter", "Jobs whose TTL ended first.", "expired_total"),
    ]


def _lately(now: Metrics) -> list[Family]:
    """Quantiles of the same queues over the last one to two minutes; none for an idle queue."""

    def each(name: str, words: str, found: Sequence[tuple[str, Quantiles]], field: str) -> Family:
        samples = [(labels, getattr(one, field)) for labels, one in found if one.durations]
        return (name, "gauge", words, samples)

    waits = [(_queue_label(queue), queue.lately.wait) for queue in now.queues]
    runs = [(_queue_label(queue), queue.lately.run) for queue in now.queues]
    wait_words, run_words = "from ready to reserved", "from reserved to the end of that"
    return [
        each("queue_wait_p50_seconds", f"Median time {wait_words}, lately.", waits, "p50_s"),
        each("queue_wait_p99_seconds", f"99th percentile {wait_words}, lately.", waits, "p99_s"),
        each("queue_run_p50_seconds", f"Median time {run_words}, lately.", runs, "p50_s"),
        each("queue_run_p99_seconds", f"99th percentile {run_words}, lately.", runs, "p99_s"),
    ]


def _others(now: Metrics) -> list[Sample]:
    """The rest of the sums beyond the largest queues; qless has its own figures."""
    return [
        (
            label(protocol=protocol, state=state),
            getattr(its, state)
            - sum(getattr(queue, state) for queue in now.queues if queue.protocol == protocol),
        )
        for protocol, its in now.spaces.items()
        if protocol != PROTOCOL_NAMES[QLESS]
        for state in JOB_STATES
    ]


def _qless(now: Metrics) -> list[Family]:
    """qless in its own terms: its states, and the values that only it has."""
    its = now.qless
    states = {**its.jobs._asdict(), "failed": its.failed, "complete": its.complete}
    queues = [
        (label(queue=display_names.text(queue.name), state=state), n)
        for queue in its.queues
        for state, n in queue.jobs._asdict().items()
    ]
    jobs = [(label(state=state), n) for state, n in states.items()]
    return [
        ("qless_jobs", "gauge", "Jobs of qless by its own states.", jobs),
        ("qless_queue_jobs", "gauge", "The same of the queues with most jobs.", queues),
        _gauge("qless_workers", "Workers that asked for jobs.", its.workers),
        _gauge("qless_throttles", "Throttles that are set.", its.throttles),
        _gauge("qless_throttle_locks", "Locks of throttles that jobs have.", its.throttle_locks),
        _gauge("qless_failure_groups", "Groups of failed jobs.", its.failure_groups),
        _counter("qless_locks_lost", "Jobs that workers lost.", its.locks_lost_total),
    ]


def _qless_here(now: Metrics) -> list[Family]:
    """The requests of qless clients at this node."""
    its, clients = now.qless, now.clients.get("qless", ClientFigures())

    def counts(name: str, words: str, key: str, values: Mapping[str, int]) -> Family:
        return (name, "counter", words, [(label(**{key: one}), n) for one, n in values.items()])

    return [
        counts("qless_calls_total", "Calls of this node's clients.", "call", clients.calls_total),
        _gauge("qless_subscribers", "Clients of this node that subscribed.", its.subscribers),
        _counter("qless_published", "Messages to this node's subscribers.", its.delivered_total),
    ]


def _by_protocol(
    figures: Mapping[str, ClientFigures | SpaceFigures],
    name: str,
    kind: str,
    words: str,
    field: str,
) -> Family:
    samples = [(label(protocol=protocol), getattr(its, field)) for protocol, its in figures.items()]
    return (name, kind, words, samples)


def _gauge(name: str, words: str, value: float) -> Family:
    return (name, "gauge", words, [("", value)])


def _counter(name: str, words: str, value: float) -> Family:
    return (name + "_total", "counter", words, [("", value)])


def _build(view: NodeView) -> str:
    return label(
        version=view.version, cluster=view.cluster, node=view.node_id, durability=view.durability
    )


def _queue_label(queue: QueueFigures) -> str:
    return label(protocol=queue.protocol, queue=queue.name)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def label(**values: str) -> str:
    """Return labels in the text format."""
    escaped = (
        (name, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in values.items()
    )
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped) + "}"
