"""Lists of jids: of jobs in a state, and of failed jobs by group."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits, queues, ranges, views
from beanpole.core.qless.scores import INFINITY, Scores
from beanpole.core.qless.tables import QlessQueue, Tables

# The flavours in which the limit of FAILED_JOBS is the end of the range.
LIMIT_IS_END: Final = (q.SEED, q.UNIFIED)
LISTED: Final = (
    q.COMPLETE_,
    q.RUNNING,
    q.STALLED,
    q.SCHEDULED,
    q.DEPENDS,
    q.THROTTLED,
    q.RECURRING,
)
NOTHING: Final = Scores()


def jobs(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """JOBS: return the jobs of a queue in a state, or all complete jobs, the last one first."""
    state, name, offset, count = args
    if state not in LISTED:
        return q.BAD_CALL, ()
    if state == q.COMPLETE_:
        return _listed(ranges.page_from_top(t.completed, offset, count))
    queue = t.queues.get(name)
    if queue is None:
        return q.OK, ()
    if state == q.RUNNING:
        return _listed(ranges.between(queue.locks, now, INFINITY, offset, count))
    if state == q.STALLED:
        return _listed(ranges.between(queue.locks, -INFINITY, now, offset, count))
    if state == q.SCHEDULED:
        return _scheduled(t, flavour, queue, now, offset, count)
    if state == q.DEPENDS:
        return _listed(ranges.page(queue.depends, offset, count))
    if state == q.THROTTLED:
        return _listed(ranges.page(queue.throttled, offset, count))
    if flavour == q.SEED:
        return _listed(ranges.page(queue.recurring, offset, count))
    return _listed(ranges.between(queue.recurring, 0.0, INFINITY, offset, count))


def failed_groups(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """FAILED_GROUPS: return the number of failed jobs in each group."""
    if len(t.groups) > q.LISTED_MAX:
        return limits.LISTED
    return q.OK, tuple([(group, len(t.groups[group])) for group in sorted(t.groups)])


def failed_jobs(t: Tables, flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """FAILED_JOBS: return the failed jobs of a group, the last one first."""
    group, start, limit = args
    found = t.groups.get(group, NOTHING)
    jids = ranges.page_from_top(found, start, limit - start if flavour in LIMIT_IS_END else limit)
    if jids is None:
        return limits.LISTED
    if flavour != q.SEED:
        return q.OK, (len(found), tuple(jids))
    if len(jids) > q.CALL_JOBS_MAX:
        return limits.JOBS
    shown = [t.jobs[jid] for jid in jids]
    if not views.fit_into_an_answer(shown, flavour):
        return limits.ANSWER
    return q.OK, (len(found), tuple([views.job_view(t, job) for job in shown]))


def _scheduled(
    t: Tables, flavour: int, queue: QlessQueue, now: float, offset: int, count: int
) -> q.Result:
    """Make due jobs waiting, return the scheduled ones; due jobs beyond the limit are omitted."""
    if flavour == q.SEED:
        return _listed(ranges.page(queue.scheduled, offset, count))
    queues.move_scheduled(t, queue, now, q.CALL_JOBS_MAX)
    due = ranges.count_between(queue.scheduled, 0.0, now)
    start, number = ranges.bounds(len(queue.scheduled) - due, offset, count)
    if number > q.LISTED_MAX:
        return limits.LISTED
    return q.OK, tuple(queue.scheduled.lowest(due + start, number))


def _listed(jids: list[bytes] | None) -> q.Result:
    return limits.LISTED if jids is None else (q.OK, tuple(jids))
