"""qless: its calls, results and errors in the form in which they travel through the log.

A call of any dialect of qless is translated to one of these calls, and its numbers are decoded
once, at the node of the client's connection. The effects of calls are in `core.qless`; names, texts
and JSON of the dialects are in `protocol.qless`. Strings are bytes; numbers are floats, as in Lua,
or ints where a fraction has no meaning; a missing argument is None.
"""

from typing import Any, Final, NamedTuple

# --- flavours: the dialects whose calls differ in effect -----------------------------------------
SEED: Final = 1  # one script for each call (qless-py 0.9.4)
UNIFIED: Final = 2  # one script, `put` without a worker (qless-py 0.11.4)
CORE: Final = 3  # `put` with a worker, `requeue` (qless-core of 2014 to 2024)
THROTTLES: Final = 4  # the same with throttles (qless-with-throttles, reqless 0.13)
DOTTED: Final = 5  # the same with names such as `queue.put` (reqless-core of 2024 and later)
FLAVOURS: Final = (SEED, UNIFIED, CORE, THROTTLES, DOTTED)

# --- calls that may change state; each with its arguments ----------------------------------------
# queue, jid, klass, data, delay, worker (None if the dialect has none), priority (None: unchanged),
# tags (None: unchanged), retries (None: unchanged), depends, throttles (None: not in the dialect),
# whether the job must exist. Returns the jid.
PUT: Final = 1
POP: Final = 2  # queue, worker, count. Returns a tuple of JobView.
PEEK: Final = 3  # queue, offset, count. Returns a tuple of JobView.
# jid, worker, queue, data, next queue or None, delay, depends. Returns the state (see below).
COMPLETE: Final = 4
FAIL: Final = 5  # jid, worker, group, message, data or None. Returns the jid.
# jid, queue, worker, delay, group or None, message or None. Returns the remaining retries; below 0
# the job has failed.
RETRY: Final = 6
HEARTBEAT: Final = 7  # jid, worker, data or None. Returns the time at which the lock ends (float).
TIMEOUT: Final = 8  # jids. Returns None.
CANCEL: Final = 9  # jids. Returns None.
DEPENDS_ON: Final = 10  # jid, jids. Returns True.
DEPENDS_OFF: Final = 11  # jid, jids or None for all. Returns True.
PRIORITY: Final = 12  # jid, priority. Returns the priority.
TRACK: Final = 13  # jid. Returns whether it was not tracked before.
UNTRACK: Final = 14  # jid. Returns whether it was tracked.
TAG_ADD: Final = 15  # jid, tags. Returns the tags of the job.
TAG_REMOVE: Final = 16  # jid, tags. Returns the tags of the job.
LOG: Final = 17  # jid, message, JSON object or b"". Returns None.
PAUSE: Final = 18  # queues. Returns None.
UNPAUSE: Final = 19  # queues. Returns None.
FORGET_QUEUES: Final = 20  # queues. Returns None.
CONFIG_SET: Final = 21  # option, value. Returns None.
CONFIG_UNSET: Final = 22  # option. Returns None.
UNFAIL: Final = 23  # queue, group, count. Returns the number of moved jobs.
# queue, jid, klass, data, interval, offset, priority, tags, retries, backlog, throttles or None.
# Returns the jid.
RECUR: Final = 24
UNRECUR: Final = 25  # jid. Returns True.
# jid, pairs of (key, value): priority, interval, retries, backlog, data, klass, queue, throttles.
# Returns True.
RECUR_UPDATE: Final = 26
RECUR_TAG: Final = 27  # jid, tags. Returns the tags.
RECUR_UNTAG: Final = 28  # jid, tags. Returns the tags.
FORGET_WORKERS: Final = 29  # workers. Returns None.
THROTTLE_SET: Final = 30  # throttle, maximum, seconds until it expires or 0. Returns None.
THROTTLE_DELETE: Final = 31  # throttle. Returns None.
THROTTLE_RELEASE: Final = 32  # throttle, jids. Returns None.
FLUSH: Final = 33  # no arguments; removes everything. Returns None.
QUEUE_COUNTS: Final = 34  # queue, or None for all known ones. Returns a tuple of QueueView.
WORKER_COUNTS: Final = 35  # no arguments. Returns a tuple of WorkerView.
WORKER_JOBS: Final = 36  # worker. Returns (jids with a lock, jids that are stalled).
# state (see below), queue (b"" for COMPLETE_), offset, count. Returns a tuple of jids.
JOBS: Final = 37
SET_PATTERNS: Final = 38  # PATTERNS_OF_*, pairs of (name, JSON text). Returns None.
# PATTERNS_OF_*, whether the existing ones are removed, pairs of (name, JSON text) to add; those of
# priorities are named by the next numbers. Returns the names that existed before.
EDIT_PATTERNS: Final = 39
# State of another server (`beanpole import-qless`). Each call returns whether its object is new.
# queue (for COMPLETE_ the last one), jid, klass, data, state, priority, retries, remaining, score
# in the set of the state, time, due or None (DEPENDS), tags with their times, history, failure or
# None (group, message, when, worker), depends, throttles, jid of its template or b"".
IMPORT_JOB: Final = 40
# queue, jid, klass, data, interval, next time, priority, tags, retries, backlog, throttles or None,
# the number of its jobs so far.
IMPORT_RECURRING: Final = 41
IMPORT_QUEUE: Final = 42  # queue, whether it is paused; `now` is the time since which it is known

# --- read-only calls -----------------------------------------------------------------------------
FIRST_READ: Final = 64
GET: Final = 64  # jid. Returns a JobView or None.
MULTIGET: Final = 65  # jids. Returns a tuple of JobView, without jobs that do not exist.
TRACKED: Final = 66  # no arguments. Returns (tuple of JobView, jids of jobs that no longer exist).
TAGGED: Final = 67  # tag, offset, count. Returns (the total number, jids).
TOP_TAGS: Final = 68  # offset, count. Returns the tags that two or more jobs have.
FAILED_GROUPS: Final = 69  # no arguments. Returns pairs of (group, number of jobs).
# group, start, limit. Returns (the total number, jids; for SEED a tuple of JobView instead).
FAILED_JOBS: Final = 70
LENGTH: Final = 71  # queue. Returns the number of jobs that are running, waiting or scheduled.
STATS: Final = 72  # queue, date. Returns a StatsView.
CONFIG_GET: Final = 73  # option. Returns its value or None; defaults are not returned.
CONFIG_ALL: Final = 74  # no arguments. Returns pairs of (option, value), without defaults.
RECUR_GET: Final = 75  # jid. Returns a RecurringView or None.
RECUR_SCORE: Final = 76  # queue, jid. Returns the time of its next run, or None.
THROTTLE_GET: Final = 77  # throttle. Returns (maximum, seconds left; -1 for ever, -2 for none).
THROTTLE_LOCKS: Final = 78  # throttle. Returns jids.
THROTTLE_PENDING: Final = 79  # throttle. Returns jids.
KEYS: Final = 80  # no arguments. Returns whether there is any state.
PATTERNS: Final = 81  # PATTERNS_OF_*. Returns pairs of (name, JSON text).
QUEUE_NAMES: Final = 82  # no arguments. Returns the known queues.

PATTERNS_OF_QUEUES: Final = 0
PATTERNS_OF_PRIORITIES: Final = 1

# --- states of a job -----------------------------------------------------------------------------
WAITING: Final = 1
RUNNING: Final = 2
SCHEDULED: Final = 3
DEPENDS: Final = 4
STALLED: Final = 5  # waiting, at the front, after a call of TIMEOUT; for JOBS: with expired locks
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
# (OK, the result of the call), or one of the errors with the values named in its text.
Result = tuple[int, Any]
OK: Final = 0
NO_JOB: Final = 1  # (jid,)
NOT_RUNNING: Final = 2  # (jid, state)
OTHER_WORKER: Final = 3  # (jid, the worker that has it; b"" for none)
OTHER_QUEUE: Final = 4  # (jid, the queue in which it runs)
NOT_DEPENDING: Final = 5  # (jid, state, or 0 if there is no such job)
HAS_DEPENDENT: Final = 6  # (jid, the dependent that is not canceled with it)
NO_RECURRING: Final = 7  # (jid,)
TOO_MUCH: Final = 8  # (name of the limit, its value): nothing of the call was done
NO_ROOM: Final = 9  # (): the cluster has no memory or disk space left
BAD_CALL: Final = 10  # (): arguments that no origin sends
DEPENDS_ON_ITSELF: Final = 11  # (jid,): directly or through other jobs
DENIED: Final = 12  # (): the session's user lacks the right that the call requires
QUOTA: Final = 13  # (): a user has the maximum number of jobs, or bytes of data
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
HAS_FAILED: Final = 4  # group, worker (b"" if no worker had it)
HAS_TIMED_OUT: Final = 5
HAS_THROTTLED: Final = 6  # queue
HAS_LOGGED: Final = 7  # message, JSON object or b""
# `when` is in whole seconds of the client's clock.
HistoryItem = tuple[float, int, bytes, bytes]

# --- published messages, in the order of the log -------------------------------------------------
# (channel without its prefix, content): a jid, or pairs that become a JSON object; None stands for
# a missing value (false in JSON).
Message = tuple[bytes, "bytes | tuple[tuple[bytes, bytes | None], ...]"]


class FailureView(NamedTuple):
    """The last failure of a job."""

    group: bytes
    message: bytes
    when: float
    worker: bytes


class JobView(NamedTuple):
    """A job at the time at which its call was applied."""

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
    """The number of jobs of a queue in each state."""

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
    """The number of jobs of a worker."""

    name: bytes
    jobs: int
    stalled: int


class TimesView(NamedTuple):
    """Waits or runs of one day: `histogram` has 148 bins (seconds, minutes, hours, days)."""

    count: int  # type: ignore[assignment]  # not the method of tuples
    mean: float
    vk: float  # the sum of squared differences from the mean
    histogram: tuple[int, ...]


class StatsView(NamedTuple):
    """The statistics of a queue on one day."""

    retries: int
    failed: int
    failures: int
    wait: TimesView
    run: TimesView


# Bins of a histogram: 60 seconds, 59 minutes, 23 hours and 6 days.
HISTOGRAM_BINS: Final = 148

# Each queue has a throttle, named by this prefix and the name of the queue.
QUEUE_THROTTLE: Final = b"ql:q:"

# The values of options that are not set.
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
# Jobs that one call touches: a call is atomic, so all its work is one step of every node, at some
# 10 us per job.
CALL_JOBS_MAX: Final = 1000
# The dependencies and the dependents of one job: its completion touches all of them.
DEPENDENCIES_MAX: Final = 1000
TAGS_MAX: Final = 1000
# Bytes of the tags of a template. Its record in an image is not split, and with data of 1 MiB and
# the longest throttles it must stay below the 4 MiB of a chunk.
RECURRING_TAGS_MAX_BYTES: Final = 1024 * 1024
THROTTLES_MAX: Final = 100
# Bytes of jids, names of queues, workers, tags, groups, throttles and options.
NAME_MAX_BYTES: Final = 4096
# Bytes of the data of a job, and of a message.
DATA_MAX_BYTES: Final = 1024 * 1024
# Bytes of all encoded arguments of a call: no more than the body of a beanstalk job may have, so
# that a call fits into a batch as well.
ARGS_MAX_BYTES: Final = 2 * 1024 * 1024
# The largest absolute value of a number: up to here a float represents every integer, and sums and
# differences of two numbers are finite and fit into 64 bits.
NUMBER_MAX: Final = 2**53
# The most items in a history, even if `max-job-history` is larger, and the bytes of their texts.
HISTORY_MAX: Final = 1000
HISTORY_MAX_BYTES: Final = 1024 * 1024
# Limits of the cluster: templates, throttles that are set, tracked jids, and queues.
RECURRING_MAX: Final = 100_000
THROTTLES_ALL_MAX: Final = 100_000
TRACKED_MAX: Final = 10_000
QUEUES_MAX: Final = 10_000
# Bytes of data, histories and names (of tags, jobs, throttles) in one answer with several jobs,
# which is converted to JSON in one step.
ANSWER_MAX_BYTES: Final = 16 * 1024 * 1024
# Jobs, templates, throttles and queues that FLUSH removes, with what they consist of
# (`core.qless.flushing`): some 200 ms of every node. FLUSH is for tests of clients.
FLUSH_MAX: Final = 25_000
# Names in one list: some 10 ms of a node.
LISTED_MAX: Final = 100_000
WORKERS_MAX: Final = 100_000
OPTIONS_MAX: Final = 10_000
# Changes of a template in one call, each of which may move it to another queue, at 10 us. It has
# only eight fields.
CHANGES_MAX: Final = 100
# Items of any list in the arguments of a call: no limit of such a list is higher. ARGS_MAX_BYTES
# may be a million, which each node would look at for half a second, only to refuse the call.
ITEMS_MAX: Final = 10_000
# Days of statistics that are kept of a queue, even if `stats-history` is larger.
STATS_DAYS_MAX: Final = 60
