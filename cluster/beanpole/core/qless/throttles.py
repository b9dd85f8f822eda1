"""Throttles: resources that jobs share, the locks of running jobs, and the jobs that wait.

A job that finds no room waits for one throttle at a time, outside the order of its queue. The
release of a lock moves waiting jobs back to their queues; only `pop` acquires locks.
"""

from typing import Any, Final

from beanpole import qless as q
from beanpole.constants import SECOND_US
from beanpole.core.qless import history, limits
from beanpole.core.qless.job import THROTTLED_SINCE, WORK, QlessJob
from beanpole.core.qless.queues import work_score
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables, Throttle

# Jobs that one release moves back to their queues if the throttle has no bound, as in the original.
RELEASED_UNBOUND: Final = 10
# The same for any throttle, because a raised bound may free any number. The other jobs follow with
# the next releases, of which there is at least one for each lock.
RELEASED_MAX: Final = 100
# Each ten throttles of a job count as one more of the jobs that a call may touch: it takes a node
# some 4 us to lock or release one.
FREE: Final = 10
# A bound lasts at most a century, because its end in microseconds must fit into 64 bits.
LASTS_MAX_SECONDS: Final = 100 * 366 * 86_400
# Ended throttles that a set of another removes: more than one, so that none stay.
ENDED_MAX: Final = 100
FOR_EVER: Final = -1
NOT_THERE: Final = -2


def available(t: Tables, name: bytes) -> bool:
    """Whether a throttle has room for one more job."""
    throttle = t.throttles.get(name)
    if throttle is None:
        return True
    maximum = _maximum(t, throttle)
    return maximum == 0 or len(throttle.locks) < maximum


def all_available(t: Tables, job: QlessJob) -> bool:
    """Whether all throttles of a job have room."""
    return not [name for name in job.throttles if not available(t, name)]


def acquire(t: Tables, job: QlessJob) -> bool:
    """Give a job locks of all its throttles or of none; returns whether it has them."""
    if not all_available(t, job):
        return False
    for name in job.throttles:
        t.lock(t.throttle(name), job)
    return True


def hold_back(t: Tables, job: QlessJob, now: float) -> None:
    """Make a job wait for its first throttle without room; the caller has called `keep`."""
    for name in job.throttles:
        if not available(t, name):
            t.pend(t.throttle(name), job, now)
            break
    t.place(job, THROTTLED_SINCE, now)
    if job.state != q.THROTTLED:
        job.state = q.THROTTLED
        history.append(t, job, now, q.HAS_THROTTLED, job.queue)


def release_all(t: Tables, job: QlessJob, now: float) -> None:
    """Release all locks and waits of a job; the caller has called `keep`."""
    for name in job.throttles:
        if name in t.throttles:
            throttle = t.throttle(name)
            if not t.unlock(throttle, job):
                t.unpend(throttle, job)
            _let_wait(t, throttle, now)


def give_back(t: Tables, job: QlessJob, now: float) -> None:
    """Call `release_all` if a job has or waits for a lock; the caller has called `keep`."""
    if job.locked or job.pending:
        release_all(t, job, now)


def leave(t: Tables, job: QlessJob, now: float) -> None:
    """Call `release_all` where `give_back` does, and for a throttled job that was let go on.

    A put moves the job; the caller has called `keep`. A throttled job that waits for no lock was
    let go on by a release. If it leaves before its pop, the next waiting job goes on in its place;
    no other release would come.
    """
    if job.locked or job.pending or job.state == q.THROTTLED:
        release_all(t, job, now)


def touched_by(t: Tables, job: QlessJob) -> int:
    """Return the number of jobs as which the release of a job counts, beside the job itself.

    These are a job for each of its throttles that has waiting jobs, and the throttles themselves:
    most calls release them one by one, even where no job waits.
    """
    throttles = [t.throttles.get(name) for name in job.throttles]
    waiting = sum([1 for one in throttles if one is not None and len(one.pending)])
    return len(throttles) // FREE + waiting


# --- calls ---------------------------------------------------------------------------------------


def throttle_set(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """THROTTLE_SET: set the bound of a throttle, for a time or forever."""
    name, maximum, seconds = args
    _end_some(t, name)
    if name not in t.throttles and len(t.throttles) >= q.THROTTLES_ALL_MAX:
        return limits.THROTTLES_ALL
    throttle = t.throttle(name)
    if _is_over(t, throttle):
        _unset(t, throttle)
    throttle.is_set = True
    throttle.maximum = maximum
    if seconds > 0:  # otherwise the previous end stays
        throttle.expires_us = t.kernel.now_us + min(seconds, LASTS_MAX_SECONDS) * SECOND_US
        t.throttle_ends.add(name, float(throttle.expires_us))
    return q.OK, None


def throttle_delete(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """THROTTLE_DELETE: remove the bound of a throttle; its locks and waiting jobs stay."""
    if args[0] in t.throttles:
        _unset(t, t.throttle(args[0]))
    return q.OK, None


def _unset(t: Tables, throttle: Throttle) -> None:
    throttle.is_set = False
    throttle.maximum = 0
    throttle.expires_us = 0
    t.throttle_ends.remove(throttle.name)


def _end_some(t: Tables, kept: bytes) -> None:
    """Remove some ended throttles, but `kept`: nothing else makes room for new ones."""
    for name in t.throttle_ends.upto(float(t.kernel.now_us), 0, ENDED_MAX):
        throttle = t.throttles[name]
        if name == kept:
            continue
        t.keep_throttle(throttle)
        _unset(t, throttle)
        if not (throttle.locks or throttle.pending):
            t.drop_throttle(name)


def throttle_release(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """THROTTLE_RELEASE: take locks of a throttle from jobs in any state.

    A job that waits for the throttle is moved back to its queue, because nothing else would do so.
    """
    name, jids = args
    if len(jids) > q.CALL_JOBS_MAX:
        return limits.JOBS
    if name not in t.throttles:
        return q.OK, None
    throttle = t.throttle(name)
    for jid in jids:
        job = t.jobs.get(jid)
        if job is not None and (jid in throttle.locks or jid in throttle.pending):
            t.keep(job)
            if not t.unlock(throttle, job):
                _let_one_wait(t, throttle, job, now)
        _let_wait(t, throttle, now)
    return q.OK, None


def throttle_get(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """THROTTLE_GET: return the bound of a throttle, and its remaining time in seconds."""
    throttle = t.throttles.get(args[0])
    if throttle is None or not throttle.is_set or _is_over(t, throttle):
        return q.OK, (0, NOT_THERE)
    if throttle.expires_us == 0:
        return q.OK, (throttle.maximum, FOR_EVER)
    left_us = throttle.expires_us - t.kernel.now_us
    return q.OK, (throttle.maximum, (left_us + SECOND_US // 2) // SECOND_US)


def throttle_locks(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """THROTTLE_LOCKS: return the jobs that have a lock of a throttle."""
    throttle = t.throttles.get(args[0])
    return (q.OK, ()) if throttle is None else _listed(throttle.locks)


def throttle_pending(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """THROTTLE_PENDING: return the jobs that wait for a throttle, the longest wait first."""
    throttle = t.throttles.get(args[0])
    return (q.OK, ()) if throttle is None else _listed(throttle.pending)


def _listed(jids: Scores) -> q.Result:
    return (q.OK, tuple(jids)) if len(jids) <= q.LISTED_MAX else limits.LISTED


def _maximum(t: Tables, throttle: Throttle) -> int:
    return 0 if _is_over(t, throttle) else throttle.maximum


def _is_over(t: Tables, throttle: Throttle) -> bool:
    return 0 < throttle.expires_us <= t.kernel.now_us


def _let_wait(t: Tables, throttle: Throttle, now: float) -> None:
    """Move as many waiting jobs back to their queues as the throttle has room for."""
    if not len(throttle.pending):
        return
    maximum = _maximum(t, throttle)
    room = RELEASED_UNBOUND if maximum == 0 else maximum - len(throttle.locks)
    # A call that has already touched many jobs moves only one for each of its releases.
    most = RELEASED_MAX if len(t.touched) < q.CALL_JOBS_MAX else 1
    for jid in throttle.pending.lowest(0, min(room, most)):
        job = t.jobs[jid]
        t.keep(job)
        _let_one_wait(t, throttle, job, now)


def _let_one_wait(t: Tables, throttle: Throttle, job: QlessJob, now: float) -> None:
    """Move a job back to its queue; its state stays until it is popped, as in the original."""
    t.unpend(throttle, job)
    t.place(job, WORK, work_score(now, job.priority))
