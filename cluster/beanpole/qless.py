"""qless: its calls, results and errors in the form in which they travel through the log.

A call of any dialect of qless becomes one of these, with its numbers decoded once, at the node that
the client talks to. What a call does is in `core.qless`; names, texts and JSON of the dialects are
in `protocol.qless`. Strings are bytes; numbers are floats, as in Lua, or ints where a fraction has
no meaning; a missing argument is None.
"""

from typing import Any, Final, NamedTuple

# --- flavours: the dialects whose calls do different things --------------------------------------
SEED: Final = 1  # one script for each call (qless-py 0.9.4)
UNIFIED: Final = 2  # one script, `put` without a worker (qless-py 0.11.4)
CORE: Final = 3  # `put` with a worker, `requeue` (qless-core of 2014 to 2024)
THROTTLES: Final = 4  # the same with throttles (qless-with-throttles, reqless 0.13)
DOTTED: Final = 5  # the same with names such as `queue.put` (reqless-core of 2024 and later)
FLAVOURS: Final = (SEED, UNIFIED, CORE, THROTTLES, DOTTED)

# --- calls that change something, or may; behind each its arguments ------------------------------
# queue, jid, klass, data, delay, worker (None if the dialect has none), priority (None: as before),
# tags (None: as before), retries (None: as before), depends, throttles (None: not of the dialect),
# whether the job must be there. Gives the jid.
PUT: Final = 1
POP: Final = 2  # queue, worker, count. Gives a tuple of JobView.
PEEK: Final = 3  # queue, offset, count. Gives a tuple of JobView.
# jid, worker, queue, data, next queue or None, delay, depends. Gives the state (see below).
COMPLETE: Final = 4
FAIL: Final = 5  # jid, worker, group, message, data or None. Gives the jid.
# jid, queue, worker, delay, group or None, message or None. Gives the retries that remain; below 0
# the job has failed.
RETRY: Final = 6
HEARTBEAT: Final = 7  # jid, worker, data or None. Gives when the lock ends (float).
TIMEOUT: Final = 8  # jids. Gives None.
CANCEL: Final = 9  # jids. Gives None.
DEPENDS_ON: Final = 10  # jid, jids. Gives True.
DEPENDS_OFF: Final = 11  # jid, jids or None for all. Gives True.
PRIORITY: Final = 12  # jid, priority. Gives the priority.
TRACK: Final = 13  # jid. Gives whether it was not tracked before.
UNTRACK: Final = 14  # jid. Gives whether it was tracked.
TAG_ADD: Final = 15  # jid, tags. Gives the tags of the job.
TAG_REMOVE: Final = 16  # jid, tags. Gives the tags of the job.
LOG: Final = 17  # jid, message, JSON object or b"". Gives None.
PAUSE: Final = 18  # queues. Gives None.
UNPAUSE: Final = 19  # queues. Gives None.
FORGET_QUEUES: Final = 20  # queues. Gives None.
CONFIG_SET: Final = 21  # option, value. Gives None.
CONFIG_UNSET: Final = 22  # option. Gives None.
UNFAIL: Final = 23  # queue, group, count. Gives how many were moved.
# queue, jid, klass, data, interval, offset, priority, tags, retries, backlog, throttles or None.
# Gives the jid.
RECUR: Final = 24
UNRECUR: Final = 25  # jid. Gives True.
# jid, pairs of (key, value): priority, interval, retries, backlog, data, klass, queue, throttles.
# Gives True.
RECUR_UPDATE: Final = 26
RECUR_TAG: Final = 27  # jid, tags. Gives the tags.
RECUR_UNTAG: Final = 28  # jid, tags. Gives the tags.
FORGET_WORKERS: Final = 29  # workers. Gives None.
THROTTLE_SET: Final = 30  # throttle, maximum, seconds until it is forgotten or 0. Gives None.
THROTTLE_DELETE: Final = 31  # throttle. Gives None.
THROTTLE_RELEASE: Final = 32  # throttle, jids. Gives None.
FLUSH: Final = 33  # nothing: all that there is goes. Gives None.
QUEUE_COUNTS: Final = 34  # queue, or None for all known ones. Gives a tuple of QueueView.
WORKER_COUNTS: Final = 35  # nothing. Gives a tuple of WorkerView.
WORKER_JOBS: Final = 36  # worker. Gives (jids with a lock, jids that are stalled).
# state (see below), queue (b"" for COMPLETE), offset, count. Gives a tuple of jids.
JOBS: Final = 37
SET_PATTERNS: Final = 38  # PATTERNS_OF_*, pairs of (name, JSON text). Gives None.
# PATTERNS_OF_*, whether those that are there go, pairs of (name, JSON text) to put in; those of
# priorities get the next numbers for names. Gives the names that were there before.
EDIT_PATTERNS: Final = 39
# What another server had (`beanpole import-qless`); each gives whether it was not there before.
# queue (for COMPLETE_ the last one), jid, klass, data, state, priority, retries, remaining, score
# in the set of the state, time, due or None (DEPENDS), tags with their times, history, failure or
# None (group, message, when, worker), depends, throttles, jid of its template or b"".
IMPORT_JOB: Final = 40
# queue, jid, klass, data, interval, next time, priority, tags, retries, backlog, throttles or None,
# how many jobs there were.
IMPORT_RECURRING: Final = 41
IMPORT_QUEUE: Final = 42  # queue, whether it is paused; `now` is since when it is known

# --- calls that only read ------------------------------------------------------------------------
FIRST_READ: Final = 64
GET: Final = 64  # jid. Gives a JobView or None.
MULTIGET: Final = 65  # jids. Gives a tuple of JobView, those that are not there left out.
TRACKED: Final = 66  # nothing. Gives (tuple of JobView, jids that are not there any more).
TAGGED: Final = 67  # tag, offset, count. Gives (how many there are, jids).
TOP_TAGS: Final = 68  # offset, count. Gives tags that two jobs or more have.
FAILED_GROUPS: Final = 69  # nothing. Gives pairs of (group, how many jobs).
# group, start, limit. Gives (how many there are, jids; for SEED a tuple of JobView instead).
FAILED_JOBS: Final = 70
LENGTH: Final = 71  # queue. Gives how many jobs are running, waiting or scheduled.
STATS: Final = 72  # queue, date. Gives a StatsView.
CONFIG_GET: Final = 73  # option. Gives its value or None; defaults are not among them.
CONFIG_ALL: Final = 74  # nothing. Gives pairs of (option, value), without defaults.
RECUR_GET: Final = 75  # jid. Gives a RecurringView or None.
RECUR_SCORE: Final = 76  # queue, jid. Gives when it runs next, or None.
THROTTLE_GET: Final = 77  # throttle. Gives (maximum, seconds left; -1 for ever, -2 not there).
THROTTLE_LOCKS: Final = 78  # throttle. Gives jids.
THROTTLE_PENDING: Final = 79  # throttle. Gives jids.
KEYS: Final = 80  # nothing. Gives whether there is anything at all.
PATTERNS: Final = 81  # PATTERNS_OF_*. Gives pairs of (name, JSON text).
QUEUE_NAMES: Final = 82  # nothing. Gives the known queues.

PATTERNS_OF_QUEUES: Final = 0
PATTERNS_OF_PRIORITIES: Final = 1

# --- states of a job -----------------------------------------------------------------------------
WAITING: Final = 1
RUNNING: Final = 2
SCHEDULED: Final = 3
DEPENDS: Final = 4
STALLED: Final = 5  # waiting, at the front, because of a call of TIMEOUT; JOBS: locks that ended
THROTTLED: Final = 6
FAILED: Final = 7
COMPLETE_: Final = 8
RECURRING: Final = 9  # only for JOBS
STATE_NAMES: Final = {
    WAITING: b"waiting",
    RUNNING: b"running",
    SCHEDULED: b"scheduled",
    DEPENDS: b"depends",
    STALLED: b"stalled",
    THROTTLED: b"throttled",
    FAILED: b"failed",
    COMPLETE_: b"complete",
    RECURRING: b"recurring",
}

# --- the names of calls, for metrics -----------------------------------------------------------
CALL_NAMES: Final = {
    PUT: "put",
    POP: "pop",
    PEEK: "peek",
    COMPLETE: "complete",
    FAIL: "fail",
    RETRY: "retry",
    HEARTBEAT: "heartbeat",
    TIMEOUT: "timeout",
    CANCEL: "cancel",
    DEPENDS_ON: "depends.on",
    DEPENDS_OFF: "depends.off",
    PRIORITY: "priority",
    TRACK: "track",
    UNTRACK: "untrack",
    TAG_ADD: "tag.add",
    TAG_REMOVE: "tag.remove",
    LOG: "log",
    PAUSE: "pause",
    UNPAUSE: "unpause",
    FORGET_QUEUES: "queue.forget",
    CONFIG_SET: "config.set",
    CONFIG_UNSET: "config.unset",
    UNFAIL: "unfail",
    RECUR: "recur",
    UNRECUR: "unrecur",
    RECUR_UPDATE: "recur.update",
    RECUR_TAG: "recur.tag",
    RECUR_UNTAG: "recur.untag",
    FORGET_WORKERS: "worker.forget",
    THROTTLE_SET: "throttle.set",
    THROTTLE_DELETE: "throttle.delete",
    THROTTLE_RELEASE: "throttle.release",
    FLUSH: "flush",
    QUEUE_COUNTS: "queues",
    WORKER_COUNTS: "workers",
    WORKER_JOBS: "worker.jobs",
    JOBS: "jobs",
    SET_PATTERNS: "patterns.set",
    EDIT_PATTERNS: "patterns.edit",
    IMPORT_JOB: "import.job",
    IMPORT_RECURRING: "import.recurring",
    IMPORT_QUEUE: "import.queue",
    GET: "get",
    MULTIGET: "multiget",
    TRACKED: "tracked",
    TAGGED: "tag.get",
    TOP_TAGS: "tag.top",
    FAILED_GROUPS: "failed",
    FAILED_JOBS: "failed.jobs",
    LENGTH: "length",
    STATS: "stats",
    CONFIG_GET: "config.get",
    CONFIG_ALL: "config.all",
    RECUR_GET: "recur.get",
    RECUR_SCORE: "recur.score",
    THROTTLE_GET: "throttle.get",
    THROTTLE_LOCKS: "throttle.locks",
    THROTTLE_PENDING: "throttle.pending",
    KEYS: "keys",
    PATTERNS: "patterns",
    QUEUE_NAMES: "queue.names",
}

# --- results -------------------------------------------------------------------------------------
# (OK, what the call gives), or one of these with what its text names.
Result = tuple[int, Any]
OK: Final = 0
NO_JOB: Final = 1  # (jid,)
NOT_RUNNING: Final = 2  # (jid, state)
OTHER_WORKER: Final = 3  # (jid, worker that has it; b"" for none)
OTHER_QUEUE: Final = 4  # (jid, queue that it runs in)
NOT_DEPENDING: Final = 5  # (jid, state, or 0 if there is no such job)
HAS_DEPENDENT: Final = 6  # (jid, the dependent that is not canceled with it)
NO_RECURRING: Final = 7  # (jid,)
TOO_MUCH: Final = 8  # (name of the limit, its value): nothing of the call was done
NO_ROOM: Final = 9  # (): the cluster has no memory or disk left for more
BAD_CALL: Final = 10  # (): arguments that no origin sends
DEPENDS_ON_ITSELF: Final = 11  # (jid,): directly, or by way of others
DENIED: Final = 12  # (): the session's user has not the right that the call needs
QUOTA: Final = 13  # (): a user has as many jobs, or bytes of data, as it may
# Their names, for metrics.
REFUSALS: Final = {
    NO_JOB: "no_job",
    NOT_RUNNING: "not_running",
    OTHER_WORKER: "other_worker",
    OTHER_QUEUE: "other_queue",
    NOT_DEPENDING: "not_depending",
    HAS_DEPENDENT: "has_dependent",
    NO_RECURRING: "no_recurring",
    TOO_MUCH: "limit",
    NO_ROOM: "no_room",
    BAD_CALL: "bad_call",
    DEPENDS_ON_ITSELF: "depends_on_itself",
    DENIED: "denied",
    QUOTA: "quota",
}

# --- histories: (when, what, first, second) ------------------------------------------------------
HAS_PUT: Final = 1  # queue
HAS_POPPED: Final = 2  # worker
HAS_DONE: Final = 3
HAS_FAILED: Final = 4  # group, worker (b"" if nobody had it)
HAS_TIMED_OUT: Final = 5
HAS_THROTTLED: Final = 6  # queue
HAS_LOGGED: Final = 7  # message, JSON object or b""
# `when` is in whole seconds of the client's clock.
HistoryItem = tuple[float, int, bytes, bytes]

# --- messages: what is published, in the order of the log ----------------------------------------
# (channel without its prefix, what it says): a jid, or pairs that become a JSON object; None is
# what was not there (false in JSON).
Message = tuple[bytes, "bytes | tuple[tuple[bytes, bytes | None], ...]"]


class FailureView(NamedTuple):
    """How a job failed last."""

    group: bytes
    message: bytes
    when: float
    worker: bytes


class JobView(NamedTuple):
    """A job as it was when its call was applied."""

    jid: bytes
    klass: bytes
    data: bytes
    state: int
    queue: bytes
    worker: bytes
    tracked: bool
    priority: float
    expires: float
    retries: int
    remaining: int
    tags: tuple[bytes, ...]
    history: tuple[HistoryItem, ...]
    failure: FailureView | None
    throttles: tuple[bytes, ...]
    spawned_from: bytes
    dependents: tuple[bytes, ...]
    dependencies: tuple[bytes, ...]


class RecurringView(NamedTuple):
    """A template of recurring jobs."""

    jid: bytes
    klass: bytes
    data: bytes
    queue: bytes
    priority: float
    interval: float
    retries: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    tags: tuple[bytes, ...]
    backlog: float
    throttles: tuple[bytes, ...]


class QueueView(NamedTuple):
    """How many jobs of a queue are in which state."""

    name: bytes
    waiting: int
    running: int
    stalled: int
    scheduled: int
    depends: int
    recurring: int
    throttled: int
    paused: bool


class WorkerView(NamedTuple):
    """How many jobs a worker has."""

    name: bytes
    jobs: int
    stalled: int


class TimesView(NamedTuple):
    """Waits or runs of one day: `histogram` has 148 counts (seconds, minutes, hours, days)."""

    count: int  # type: ignore[assignment]  # not the method of tuples
    mean: float
    vk: float  # the sum of squared differences from the mean
    histogram: tuple[int, ...]


class StatsView(NamedTuple):
    """A queue on one day."""

    retries: int
    failed: int
    failures: int
    wait: TimesView
    run: TimesView


# Bins of a histogram: 60 seconds, 59 minutes, 23 hours and 6 days.
HISTOGRAM_BINS: Final = 148

# Each queue has a throttle: this before its name.
QUEUE_THROTTLE: Final = b"ql:q:"

# What configuration is worth if nobody has set it.
CONFIG_DEFAULTS: Final[dict[bytes, bytes]] = {
    b"application": b"qless",
    b"heartbeat": b"60",
    b"grace-period": b"10",
    b"stats-history": b"30",
    b"histogram-history": b"7",
    b"jobs-history-count": b"50000",
    b"jobs-history": b"604800",
}

# --- limits, with names for TOO_MUCH -------------------------------------------------------------
# Jobs that one call touches: it is atomic, and all that it does is one step of every node, of some
# 10 us a job.
CALL_JOBS_MAX: Final = 1000
# What one job may depend on, and what may depend on one: its completion touches all of these.
DEPENDENCIES_MAX: Final = 1000
TAGS_MAX: Final = 1000
THROTTLES_MAX: Final = 100
# Bytes of jids, names of queues, workers, tags, groups, throttles and options.
NAME_MAX_BYTES: Final = 4096
# Bytes of the data of a job, and of a message.
DATA_MAX_BYTES: Final = 1024 * 1024
# Bytes of all arguments of a call as they travel: less than the body of a job of beanstalk may
# have, so that a call fits into a batch as that does.
ARGS_MAX_BYTES: Final = 2 * 1024 * 1024
# No number is above this, nor below its negative: up to here a float has every integer, and sums
# and differences of two are finite and fit into 64 bits.
NUMBER_MAX: Final = 2**53
# Items that a history has at most, whatever `max-job-history` says, and bytes of their texts.
HISTORY_MAX: Final = 1000
HISTORY_MAX_BYTES: Final = 1024 * 1024
# Templates, throttles that are set, and tracked jids, of the cluster.
RECURRING_MAX: Final = 100_000
THROTTLES_ALL_MAX: Final = 100_000
TRACKED_MAX: Final = 10_000
QUEUES_MAX: Final = 10_000
# Bytes of data and of histories in one answer with several jobs: JSON is made of it in one step.
ANSWER_MAX_BYTES: Final = 16 * 1024 * 1024
# Jobs that FLUSH removes, which is for tests of clients: some 200 ms of every node.
FLUSH_JOBS_MAX: Final = 25_000
# Names in one list: some 10 ms of a node.
LISTED_MAX: Final = 100_000
WORKERS_MAX: Final = 100_000
OPTIONS_MAX: Final = 10_000
# Days of statistics that are kept of a queue, whatever `stats-history` says.
STATS_DAYS_MAX: Final = 60
