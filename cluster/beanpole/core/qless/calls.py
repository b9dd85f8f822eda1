"""The table of qless's calls, and their execution.

The table has the handler of each call, the shape of its arguments, and whether it needs room.
`_settle` does the bookkeeping common to all calls. The handlers are in other files.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import (
    cancelling,
    completing,
    config,
    dependencies,
    emitting,
    failing,
    flushing,
    history,
    importing,
    listings,
    locks,
    ordering,
    patterns,
    popping,
    putting,
    queues,
    recurring,
    runs,
    shapes,
    sizes,
    statistics,
    tags,
    throttles,
    tracking,
    views,
    workers,
)
from beanpole.core.qless.shapes import (
    DATA,
    INTEGER,
    NAME,
    NAMES,
    NUMBER,
    POSITIVE,
    TRUTH,
    Choice,
    Count,
    Kind,
    Many,
    Optional,
    Row,
)
from beanpole.core.qless.tables import Tables

# The handler of a call. Its arguments: the tables, the flavour, the time of the client's clock, and
# the call's arguments, which have the right shape.
Handler = Callable[[Tables, int, float, tuple[Any, ...]], q.Result]

# The fields in the state hash of each job that a call touched: its number and its state.
_JOB: Final = Struct("<QI")


class Call:
    """One entry of the table.

    Attributes:
        shape: the shape of its arguments.
        handler: the function that executes it.
        grows: whether it creates or enlarges something, so that it is refused without room.
    """

    __slots__ = ("grows", "handler", "shape")

    def __init__(self, handler: Handler, *kinds: Kind, grows: bool = False) -> None:
        self.handler = handler
        self.shape = Row(*kinds)
        self.grows = grows


_MAYBE_NAME: Final = Optional(NAME)
_MAYBE_NAMES: Final = Optional(NAMES)
_MAYBE_NUMBER: Final = Optional(NUMBER)
_MAYBE_DATA: Final = Optional(DATA)
_KIND_OF_PATTERNS: Final = Count(q.PATTERNS_OF_QUEUES, q.PATTERNS_OF_PRIORITIES)
_STATE: Final = Count(q.WAITING, q.RECURRING)
_HISTORY_ITEM: Final = Row(NUMBER, Count(q.HAS_PUT, q.HAS_LOGGED), DATA, DATA)
_TEMPLATE_FIELD: Final = Choice(
    {
        b"priority": NUMBER,
        b"interval": POSITIVE,
        b"retries": INTEGER,
        b"backlog": NUMBER,
        b"data": DATA,
        b"klass": NAME,
        b"queue": NAME,
        b"throttles": NAMES,
    }
)

# The index of the argument that replaces a job's data, and of a message that is stored.
_DATA_AT: Final = {q.COMPLETE: 3, q.FAIL: 4, q.HEARTBEAT: 2}
_MESSAGE_AT: Final = {q.FAIL: 3, q.RETRY: 5}
# The index of the worker in calls that change the run of a job.
_WORKER_AT: Final = {q.COMPLETE: 1, q.FAIL: 1, q.RETRY: 2, q.HEARTBEAT: 1}
# Other calls that are refused first of all where their job does not exist.
_OF_JOB: Final = (q.LOG, q.TAG_ADD, q.TAG_REMOVE)
# The message of a failure that is stored even without room: some lines of a traceback, less than
# the fixed size of a job.
MESSAGE_FREE_BYTES: Final = 512

# By code; the arguments are documented with the codes.
CALLS: Final[dict[int, Call]] = {
    # --- the life of jobs -----------------------------------------------------------------------
    q.PUT: Call(
        putting.put,
        *(NAME, NAME, NAME, DATA, NUMBER, _MAYBE_NAME),
        *(_MAYBE_NUMBER, _MAYBE_NAMES, Optional(INTEGER), NAMES, _MAYBE_NAMES, TRUTH),
        grows=True,
    ),
    q.POP: Call(popping.pop, NAME, NAME, INTEGER),
    q.PEEK: Call(popping.peek, NAME, INTEGER, INTEGER),
    q.COMPLETE: Call(completing.complete, NAME, NAME, NAME, DATA, _MAYBE_NAME, NUMBER, NAMES),
    q.FAIL: Call(failing.fail, NAME, NAME, NAME, DATA, _MAYBE_DATA),
    q.RETRY: Call(failing.retry, NAME, NAME, NAME, NUMBER, _MAYBE_NAME, _MAYBE_DATA),
    q.UNFAIL: Call(failing.unfail, NAME, NAME, INTEGER),
    q.HEARTBEAT: Call(locks.heartbeat, NAME, NAME, _MAYBE_DATA),
    q.TIMEOUT: Call(locks.timeout, NAMES),
    q.CANCEL: Call(cancelling.cancel, NAMES),
    q.DEPENDS_ON: Call(dependencies.depends_on, NAME, NAMES, grows=True),
    q.DEPENDS_OFF: Call(dependencies.depends_off, NAME, _MAYBE_NAMES),
    q.PRIORITY: Call(ordering.priority, NAME, NUMBER),
    q.GET: Call(views.get, NAME),
    q.MULTIGET: Call(views.multiget, NAMES),
    # --- tracking, tags, history, lists ---------------------------------------------------------
    q.TRACK: Call(tracking.track, NAME, grows=True),
    q.UNTRACK: Call(tracking.untrack, NAME),
    q.TRACKED: Call(views.tracked),
    q.TAG_ADD: Call(tags.tag_add, NAME, NAMES, grows=True),
    q.TAG_REMOVE: Call(tags.tag_remove, NAME, NAMES),
    q.TAGGED: Call(tags.tagged, NAME, INTEGER, INTEGER),
    q.TOP_TAGS: Call(tags.top_tags, INTEGER, INTEGER),
    q.LOG: Call(history.log, NAME, DATA, DATA, grows=True),
    q.FAILED_GROUPS: Call(listings.failed_groups),
    q.FAILED_JOBS: Call(listings.failed_jobs, NAME, INTEGER, INTEGER),
    q.JOBS: Call(listings.jobs, _STATE, NAME, INTEGER, INTEGER),
    # --- queues, workers, options ---------------------------------------------------------------
    q.PAUSE: Call(queues.pause, NAMES, grows=True),
    q.UNPAUSE: Call(queues.unpause, NAMES),
    q.FORGET_QUEUES: Call(queues.forget_queues, NAMES),
    q.QUEUE_COUNTS: Call(queues.queue_counts, _MAYBE_NAME),
    q.QUEUE_NAMES: Call(queues.queue_names),
    q.LENGTH: Call(queues.length, NAME),
    q.STATS: Call(statistics.stats, NAME, NUMBER),
    q.WORKER_COUNTS: Call(workers.worker_counts),
    q.WORKER_JOBS: Call(workers.worker_jobs, NAME),
    q.FORGET_WORKERS: Call(workers.forget_workers, NAMES),
    q.CONFIG_SET: Call(config.config_set, NAME, NAME, grows=True),
    q.CONFIG_UNSET: Call(config.config_unset, NAME),
    q.CONFIG_GET: Call(config.config_get, NAME),
    q.CONFIG_ALL: Call(config.config_all),
    q.SET_PATTERNS: Call(
        patterns.set_patterns, _KIND_OF_PATTERNS, Many(Row(NAME, DATA)), grows=True
    ),
    q.EDIT_PATTERNS: Call(
        patterns.edit_patterns, _KIND_OF_PATTERNS, TRUTH, Many(Row(NAME, DATA)), grows=True
    ),
    q.PATTERNS: Call(patterns.patterns, _KIND_OF_PATTERNS),
    q.FLUSH: Call(flushing.flush),
    # --- import from another server -------------------------------------------------------------
    q.IMPORT_JOB: Call(
        importing.import_job,
        *(NAME, NAME, NAME, DATA, Count(q.WAITING, q.COMPLETE_), NUMBER, INTEGER, INTEGER),
        *(NUMBER, NUMBER, _MAYBE_NUMBER, Many(Row(NAME, NUMBER)), Many(_HISTORY_ITEM)),
        *(Optional(Row(NAME, DATA, NUMBER, NAME)), NAMES, NAMES, NAME),
        grows=True,
    ),
    q.IMPORT_RECURRING: Call(
        importing.import_recurring,
        *(NAME, NAME, NAME, DATA, POSITIVE, NUMBER),
        *(NUMBER, NAMES, INTEGER, NUMBER, _MAYBE_NAMES, Count(0, q.NUMBER_MAX)),
        grows=True,
    ),
    q.IMPORT_QUEUE: Call(importing.import_queue, NAME, TRUTH, grows=True),
    q.KEYS: Call(flushing.keys),
    # --- templates and throttles ----------------------------------------------------------------
    q.RECUR: Call(
        recurring.recur,
        *(NAME, NAME, NAME, DATA, POSITIVE, NUMBER),
        *(NUMBER, NAMES, INTEGER, NUMBER, _MAYBE_NAMES),
        grows=True,
    ),
    q.UNRECUR: Call(recurring.unrecur, NAME),
    q.RECUR_UPDATE: Call(recurring.recur_update, NAME, Many(_TEMPLATE_FIELD), grows=True),
    q.RECUR_TAG: Call(recurring.recur_tag, NAME, NAMES, grows=True),
    q.RECUR_UNTAG: Call(recurring.recur_untag, NAME, NAMES),
    q.RECUR_GET: Call(recurring.recur_get, NAME),
    q.RECUR_SCORE: Call(recurring.recur_score, NAME, NAME),
    q.THROTTLE_SET: Call(throttles.throttle_set, NAME, INTEGER, INTEGER, grows=True),
    q.THROTTLE_DELETE: Call(throttles.throttle_delete, NAME),
    q.THROTTLE_RELEASE: Call(throttles.throttle_release, NAME, NAMES),
    q.THROTTLE_GET: Call(throttles.throttle_get, NAME),
    q.THROTTLE_LOCKS: Call(throttles.throttle_locks, NAME),
    q.THROTTLE_PENDING: Call(throttles.throttle_pending, NAME),
}


def apply(t: Tables, call: int, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Execute a call that may change the state; its arguments are not yet validated."""
    t.trace = b""
    entry = CALLS.get(call)
    if entry is None or call >= q.FIRST_READ:
        return shapes.BAD
    refused = _refusal(entry, flavour, now, args)
    if refused is not None:
        return refused
    if t.room <= 0 and not _has_room(t, call, entry.grows, args):
        return q.NO_ROOM, ()
    result = entry.handler(t, flavour, now, args)
    _settle(t, call, now, args[1] if call == q.PUT else None)
    return result


def refusal_by_job(
    t: Tables, call: int, flavour: int, now: float, args: tuple[Any, ...]
) -> q.Result | None:
    """Return the refusal of a call by the absence, state or worker of its job; None for none.

    This changes nothing: a node asks before it writes the call to the log. It does not know every
    refusal, and not that a call needs room.
    """
    worker_at = _WORKER_AT.get(call, 0)
    if not worker_at and call not in _OF_JOB:
        return None
    entry = CALLS[call]
    refused = _refusal(entry, flavour, now, args)
    if refused is not None:
        return refused
    jid: bytes = args[0]
    if not worker_at:
        return None if jid in t.jobs else (q.NO_JOB, (jid,))
    is_for_any = call == q.FAIL and flavour not in failing.STRICT
    return runs.refusal(t, jid, None if is_for_any else args[worker_at])


def read(t: Tables, call: int, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Execute a call that changes nothing; its arguments are not yet validated."""
    entry = CALLS.get(call)
    if entry is None or call < q.FIRST_READ:
        return shapes.BAD
    refused = _refusal(entry, flavour, now, args)
    return entry.handler(t, flavour, now, args) if refused is None else refused


def _refusal(entry: Call, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result | None:
    if flavour not in q.FLAVOURS or not shapes.is_number(now):
        return shapes.BAD
    return entry.shape.refusal(args)


def _has_room(t: Tables, call: int, grows: bool, args: tuple[Any, ...]) -> bool:
    """Whether a call is allowed when no more jobs may be created, or nothing may grow at all."""
    if not grows:
        return t.room >= 0 or not _enlarges(t, call, args)
    if t.room < 0:
        return False
    if call in (q.PUT, q.IMPORT_JOB):
        return args[1] in t.jobs
    return call not in (q.RECUR, q.IMPORT_RECURRING) or args[1] in t.recurring


def _enlarges(t: Tables, call: int, args: tuple[Any, ...]) -> bool:
    """Whether the end of a run, or a heartbeat, enlarges a job.

    Workers must be able to go on without room, because their progress makes room: so they may
    replace a job's data by data of the same size, and store a short message of a failure.
    """
    if call not in _DATA_AT and call not in _MESSAGE_AT:
        return False
    job = t.jobs.get(args[0])
    if job is None:
        return False
    data = args[_DATA_AT[call]] if call in _DATA_AT else None
    message = args[_MESSAGE_AT[call]] if call in _MESSAGE_AT else None
    if data is not None and len(data) > len(job.data):
        return True
    return message is not None and len(message) > MESSAGE_FREE_BYTES


def _settle(t: Tables, call: int, now: float, put: bytes | None) -> None:
    """Complete the changes of a call: events, memory, the trace for the state hash.

    Unreferenced objects are removed: a queue without jobs that is not known, a throttle that is not
    set and that no job needs. A machine that is loaded from an image does not have these, either.
    `put` is the jid of a PUT.
    """
    _settle_jobs(t, call, now, put)
    _settle_queues(t)
    _settle_templates(t)
    for name, throttle in t.touched_throttles.items():
        if not (throttle.is_set or throttle.locks or throttle.pending):
            t.drop_throttle(name)
    t.touched_throttles.clear()


def _settle_jobs(t: Tables, call: int, now: float, put: bytes | None) -> None:
    """Emit the events of the touched jobs, count their memory, and set the trace."""
    trace: list[bytes] = []
    for number, before in t.touched.items():
        job = before.job
        is_there = t.by_id.get(number) is job
        state = job.state if is_there else 0
        emitting.emit(t, call, now, before, state, job.jid == put)
        size = sizes.of_job(job) if is_there else 0
        t.bytes += size - job.size
        job.size = size
        t.recount(job, is_there)
        trace.append(_JOB.pack(number, state))
    for before in t.touched.values():
        _tidy_queue(t, before.queue)
        if before.job.queue != before.queue:
            _tidy_queue(t, before.job.queue)
    t.touched.clear()
    t.trace = b"".join(trace)


def _settle_queues(t: Tables) -> None:
    """Remove touched queues that nothing refers to, and count the memory of the others."""
    for queue in list(t.touched_queues):
        _tidy_queue(t, queue.name)
        size = sizes.of_queue(queue) if t.queues.get(queue.name) is queue else 0
        t.bytes += size - queue.size
        queue.size = size
    t.touched_queues.clear()


def _settle_templates(t: Tables) -> None:
    """Count the memory of the touched templates."""
    for jid, template in t.touched_recurring.items():
        is_there = t.recurring.get(jid) is template
        size = sizes.of_recurring(template) if is_there else 0
        t.bytes += size - template.size
        template.size = size
        t.recount(template, is_there)
    t.touched_recurring.clear()


def _tidy_queue(t: Tables, name: bytes) -> None:
    queue = t.queues.get(name)
    if queue is None or queue.known_at is not None or queue.paused or queue.has_jobs():
        return
    t.keep_queue(queue)
    del t.queues[name]
