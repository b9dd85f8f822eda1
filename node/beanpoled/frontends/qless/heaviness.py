"""The estimated cost of calls to every node: heavy calls wait in a line, light ones share a budget.

The estimate uses the state of this node, which is a moment old. Calls in progress can raise the
cost of a call only by what they add, and those additions are charged to them. The line is in
`origin.heavy`, the budget in `origin.outbox`; the calls and their limits are in `core.qless`. A
unit is the cost of a job that is popped or canceled: some 10 us.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import (
    completing,
    config,
    dependencies,
    popping,
    recurring,
    throttles,
    workers,
)
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import QlessQueue, Tables
from beanpoled.origin.heavy import LIGHT_MAX

# Above the cost of any light call: the call waits in the line, whatever it touches.
DEAR: Final = LIGHT_MAX + 1
# How many of each cost one unit: as measured on a compiled node, rounded down.
TAGS_A_UNIT: Final = 3
THROTTLES_A_UNIT: Final = 6
LINKS_A_UNIT: Final = 2  # dependencies that are only added or removed: both jobs are touched
COUNTED_A_UNIT: Final = 3  # queues and workers whose jobs are counted
NAMES_A_UNIT: Final = 100  # jids of a list
QUEUES_A_UNIT: Final = 40  # names of queues that are listed, tracked jobs that are looked up
OPTIONS_A_UNIT: Final = 5
# Groups of failures whose names are looked at for an estimate: as many as there may be queues.
GROUPS_LOOKED_MAX: Final = q.QUEUES_MAX
# Of a reply: 1 MiB of data takes a node from the sources 10 ms or more to write as JSON. A reply of
# names, which have 4 KiB at most, takes memory as well until it is written.
BYTES_A_UNIT: Final = 1024
# Jobs up to this size cost no more than other jobs: their bytes are not counted.
SMALL_BYTES: Final = 4096
# A completed job that is deleted costs more than one that is canceled at once.
PURGED_UNITS: Final = 3
# The most tags that the deleted jobs of one completion have: the last one may have the most.
PURGED_TAGS_MOST: Final = completing.PURGED_TAGS_MAX + q.TAGS_MAX
# A complete search for a cycle.
SEARCH_UNITS: Final = dependencies.SEARCHED_MAX // 100

# The units of a call: its tables, the time of the client's clock, its arguments.
Estimate = Callable[[Tables, float, tuple[Any, ...]], int]


def cost_of(t: Tables, code: int, now: float, arguments: tuple[Any, ...]) -> int:
    """Return the cost of a call in units; above LIGHT_MAX it must wait in the line."""
    estimate = _ESTIMATES.get(code)
    return 1 if estimate is None else estimate(t, now, arguments)


# --- the life of jobs -----------------------------------------------------------------------------


def _pop(t: Tables, now: float, arguments: tuple[Any, ...]) -> int:
    name, _, count = arguments
    return _taken(t, t.queues.get(name), now, count)


def _peek(t: Tables, now: float, arguments: tuple[Any, ...]) -> int:
    name, offset, count = arguments
    # Jobs before the offset are created, or begin to wait, as well.
    return _taken(t, t.queues.get(name), now, count + max(0, offset) if count > 0 else count)


def _taken(t: Tables, queue: QlessQueue | None, now: float, count: int) -> int:
    if not 0 < count <= LIGHT_MAX:
        return DEAR
    if queue is None:
        return 1
    looked = count
    if t.config:
        common = config.number(t, b"max-pop-retry", popping.ROUNDS_DEFAULT)
        rounds = config.number(t, queue.name + b"-max-pop-retry", common)
        if rounds > popping.ROUNDS_DEFAULT:  # jobs held back by throttles do not count
            looked = q.CALL_JOBS_MAX
    waiting = len(queue.work)
    units = 1 + min(looked, waiting + len(queue.locks) + len(queue.scheduled))
    has_throttles = len(t.throttles) > len(t.queues)  # there are more than those of queues
    for jid in queue.work.highest(0, min(count, waiting)):
        job = t.jobs[jid]
        units += _shown(job.size)
        if has_throttles:
            units += len(job.throttles) // THROTTLES_A_UNIT
    for late in (queue.locks, queue.scheduled):  # those that the call finds ended or due
        if len(late):
            for jid in late.upto(now, 0, count):
                job = t.jobs[jid]
                units += _shown(job.size)
                if late is queue.locks and job.remaining <= 0:
                    units += _released(t, job)  # it may have no attempt left, and fail
    if len(queue.recurring):
        units += _spawned(t, queue, now, count)
    return units


def _shown(size: int) -> int:
    """Return the cost of a job in a reply, by its size in memory, beside that of any job."""
    return size // BYTES_A_UNIT if size > SMALL_BYTES else 0


def _spawned(t: Tables, queue: QlessQueue, now: float, count: int) -> int:
    due = queue.recurring.upto(now, 0, count)
    if not due:
        return 0
    most = 0
    for jid in due:
        most = max(most, len(t.recurring[jid].tags))
    return count + min(count * most, recurring.SPAWNED_TAGS_MAX) // TAGS_A_UNIT


def _put(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    tags, depends, names = arguments[7], arguments[9], arguments[10]
    units = 1 + len(depends) // LINKS_A_UNIT
    if tags is not None:
        units += len(tags) // TAGS_A_UNIT
    if names is not None:
        units += len(names) // THROTTLES_A_UNIT
    job = t.jobs.get(arguments[1])
    if job is not None:
        units += _moved(t, job)
        if depends and job.dependents:
            units += SEARCH_UNITS
    return units


def _run_ends(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    job = t.jobs.get(arguments[0])
    return 1 if job is None else _released(t, job)


def _complete(t: Tables, now: float, arguments: tuple[Any, ...]) -> int:
    units = 1 + len(arguments[6]) // LINKS_A_UNIT
    job = t.jobs.get(arguments[0])
    if job is not None:
        units += _released(t, job)
        if arguments[4] is not None:
            if job.dependents and arguments[6]:
                units += SEARCH_UNITS
        else:
            units += len(job.dependents) + _purged(t, completing.overdue(t, now))
    return units


def _purged(t: Tables, count: int) -> int:
    """Return the cost of deleting complete jobs, most of which are the oldest."""
    tags = 0
    for jid in t.completed.lowest(0, count):
        tags += len(t.jobs[jid].tags)
    return PURGED_UNITS * count + min(tags, PURGED_TAGS_MOST) // TAGS_A_UNIT


def _cancel(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return _of_jobs(t, arguments[0], _removed)


def _timeout(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return _of_jobs(t, arguments[0], _released)


def _of_jobs(
    t: Tables, jids: tuple[bytes, ...], units_of: Callable[[Tables, QlessJob], int]
) -> int:
    if len(jids) > LIGHT_MAX:
        return DEAR
    units = 1
    for jid in jids:
        job = t.jobs.get(jid)
        if job is not None:
            units += units_of(t, job)
    return units


def _removed(t: Tables, job: QlessJob) -> int:
    """Return the cost of canceling a job."""
    return _moved(t, job) + len(job.dependents)


def _moved(t: Tables, job: QlessJob) -> int:
    """Return the cost of moving a job out of everything it is in."""
    return _released(t, job) + _links(job) + len(job.tags) // TAGS_A_UNIT


def _depends_on(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    if len(arguments[1]) > LIGHT_MAX:
        return DEAR
    job = t.jobs.get(arguments[0])
    searched = job is not None and len(job.dependents) > 0
    return 1 + len(arguments[1]) // LINKS_A_UNIT + (SEARCH_UNITS if searched else 0)


def _depends_off(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    if arguments[1] is not None and len(arguments[1]) > LIGHT_MAX:
        return DEAR
    job = t.jobs.get(arguments[0])
    return 1 if job is None else 1 + _links(job)


def _links(job: QlessJob) -> int:
    return len(job.dependencies) // LINKS_A_UNIT


def _released(t: Tables, job: QlessJob) -> int:
    """Return the cost of releasing a job's locks: other jobs may wait in their queues then."""
    names = job.throttles
    units = 1 + len(names) // THROTTLES_A_UNIT
    for name in names:
        throttle = t.throttles.get(name)
        if throttle is not None:
            units += min(throttles.RELEASED_MAX, len(throttle.pending))
    return min(units, 2 * q.CALL_JOBS_MAX)


# --- other calls ----------------------------------------------------------------------------------


def _tags(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return 1 + len(arguments[1]) // TAGS_A_UNIT


def _list(offset: int, count: int) -> int:
    """Return the cost of a list: without a count, or from a negative offset, it has no bound."""
    return 1 if 0 < count <= LIGHT_MAX and offset >= 0 else DEAR


def _jobs(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    # Scheduled jobs that are due are moved before they are listed, whatever the count.
    return DEAR if arguments[0] == q.SCHEDULED else _list(arguments[2], arguments[3])


def _page(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return _list(arguments[1], arguments[2])


def _top_tags(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return _list(arguments[0], arguments[1])


def _unfail(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    count: int = arguments[2]
    return 1 + count if 0 < count <= LIGHT_MAX else DEAR


def _get(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    job = t.jobs.get(arguments[0])
    return 1 if job is None else 1 + _shown(job.size)


def _get_many(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    units = 1 + len(arguments[0])
    for jid in arguments[0]:
        job = t.jobs.get(jid)
        if job is not None:
            units += _shown(job.size)
    return units


def _get_template(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    template = t.recurring.get(arguments[0])
    return 1 if template is None else 1 + _shown(template.size)


def _many(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return 1 + len(arguments[0])


def _queue_counts(t: Tables, now: float, arguments: tuple[Any, ...]) -> int:
    queue = t.queues.get(arguments[0] or b"")
    if arguments[0] is not None:
        return 1 if queue is None else 1 + queue.scheduled.count_upto(now)
    if len(t.queues) > LIGHT_MAX:
        return DEAR
    units = 1 + len(t.queues) // COUNTED_A_UNIT + _named(t.queues)
    for queue in t.queues.values():
        units += queue.scheduled.count_upto(now)
    return units


def _workers(t: Tables, now: float, _arguments: tuple[Any, ...]) -> int:
    """Return the cost of counting workers; expired ones are forgotten and lose their jobs."""
    oldest = now - config.number(t, b"max-worker-age", workers.AGE_DEFAULT)
    if len(t.workers) > LIGHT_MAX or t.workers.upto(oldest, 0, 1):
        return DEAR
    return 1 + len(t.workers) // COUNTED_A_UNIT + t.workers.bytes // BYTES_A_UNIT


def _worker_jobs(t: Tables, now: float, arguments: tuple[Any, ...]) -> int:
    held = t.leases.get(arguments[0])
    return _workers(t, now, arguments) + (0 if held is None else _listed(held))


def _tracked(t: Tables, now: float, _arguments: tuple[Any, ...]) -> int:
    units = 1 + len(t.tracked)
    return units if units > LIGHT_MAX else _get_many(t, now, (t.tracked,))


def _failed_jobs(t: Tables, now: float, arguments: tuple[Any, ...]) -> int:
    group, start, count = arguments
    units = _list(start, count)
    failed = t.groups.get(group)
    if units > LIGHT_MAX or failed is None:
        return units
    return _get_many(t, now, (failed.highest(start, count),))  # the seed shows the jobs


def _failed_groups(t: Tables, _now: float, _arguments: tuple[Any, ...]) -> int:
    if len(t.groups) > GROUPS_LOOKED_MAX:
        return DEAR
    return 1 + len(t.groups) // COUNTED_A_UNIT + _named(t.groups)


def _config_all(t: Tables, _now: float, _arguments: tuple[Any, ...]) -> int:
    return 1 + len(t.config) // NAMES_A_UNIT + config.all_bytes(t) // BYTES_A_UNIT


def _queue_names(t: Tables, _now: float, _arguments: tuple[Any, ...]) -> int:
    return 1 + len(t.queues) // QUEUES_A_UNIT + _named(t.queues)


def _named(names: Iterable[bytes]) -> int:
    """Return the cost of the bytes of names in a reply, beside that of the names themselves."""
    return sum([len(name) for name in names]) // BYTES_A_UNIT


def _patterns(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    kind = t.patterns[arguments[0]]
    return 1 + len(kind) // QUEUES_A_UNIT + _named(kind) + _named(kind.values())


def _edit_patterns(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return 1 + len(t.patterns[arguments[0]]) // QUEUES_A_UNIT


def _track(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    """Return the cost of tracking a job: without room, one is searched that is gone."""
    is_full = len(t.tracked) >= q.TRACKED_MAX and arguments[0] not in t.tracked
    return 1 + len(t.tracked) // QUEUES_A_UNIT if is_full else 1


def _recur_update(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return 1 + len(arguments[1]) // OPTIONS_A_UNIT


def _throttle_release(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    throttle = t.throttles.get(arguments[0])
    if throttle is None:
        return 1
    count = len(arguments[1])
    return 1 + count + min(count * throttles.RELEASED_MAX, len(throttle.pending))


def _throttle_jobs(t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    throttle = t.throttles.get(arguments[0])
    if throttle is None:
        return 1
    return 1 + max(_listed(throttle.locks), _listed(throttle.pending))


def _listed(jids: Scores) -> int:
    """Return the cost of a list of all jids of a set."""
    return len(jids) // NAMES_A_UNIT + jids.bytes // BYTES_A_UNIT


def _import_job(_t: Tables, _now: float, arguments: tuple[Any, ...]) -> int:
    return 1 + len(arguments[11]) // TAGS_A_UNIT + len(arguments[14]) // LINKS_A_UNIT


def _flush(_t: Tables, _now: float, _arguments: tuple[Any, ...]) -> int:
    return DEAR


# All other calls cost one unit.
_ESTIMATES: Final[dict[int, Estimate]] = {
    q.PUT: _put,
    q.POP: _pop,
    q.PEEK: _peek,
    q.COMPLETE: _complete,
    q.FAIL: _run_ends,
    q.RETRY: _run_ends,
    q.UNFAIL: _unfail,
    q.TIMEOUT: _timeout,
    q.CANCEL: _cancel,
    q.DEPENDS_ON: _depends_on,
    q.DEPENDS_OFF: _depends_off,
    q.GET: _get,
    q.MULTIGET: _get_many,
    q.RECUR_GET: _get_template,
    q.TRACKED: _tracked,
    q.TAG_ADD: _tags,
    q.TAG_REMOVE: _tags,
    q.TAGGED: _page,
    q.TOP_TAGS: _top_tags,
    q.FAILED_GROUPS: _failed_groups,
    q.FAILED_JOBS: _failed_jobs,
    q.JOBS: _jobs,
    q.TRACK: _track,
    q.CONFIG_ALL: _config_all,
    q.QUEUE_NAMES: _queue_names,
    q.PATTERNS: _patterns,
    q.EDIT_PATTERNS: _edit_patterns,
    q.PAUSE: _many,
    q.UNPAUSE: _many,
    q.FORGET_QUEUES: _many,
    q.FORGET_WORKERS: _many,
    q.QUEUE_COUNTS: _queue_counts,
    q.WORKER_COUNTS: _workers,
    q.WORKER_JOBS: _worker_jobs,
    q.RECUR_UPDATE: _recur_update,
    q.THROTTLE_RELEASE: _throttle_release,
    q.THROTTLE_LOCKS: _throttle_jobs,
    q.THROTTLE_PENDING: _throttle_jobs,
    q.IMPORT_JOB: _import_job,
    q.FLUSH: _flush,
}
