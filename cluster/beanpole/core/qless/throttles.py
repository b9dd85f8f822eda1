"""Throttles: resources that jobs share, the locks of those that run, and the jobs that wait.

A job that finds no room waits for one throttle at a time, outside the order of its queue. Whoever
gives a lock back lets jobs wait in their queues again; only `pop` gives locks.
"""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import history, limits
from beanpole.core.qless.job import THROTTLED_SINCE, WORK, QlessJob
from beanpole.core.qless.queues import work_score
from beanpole.core.qless.tables import Tables, Throttle

# Jobs that one release lets wait in their queues again if the throttle has no bound, as in the
# original.
RELEASED_UNBOUND: Final = 10
# The same for any throttle: a bound that was raised may let any number go. The others follow with
# the next releases, of which there is at least one for each lock.
RELEASED_MAX: Final = 100
# A bound lasts at most a century: its end in microseconds has to fit into 64 bits.
LASTS_MAX_SECONDS: Final = 100 * 366 * 86_400
MICROSECONDS: Final = 1_000_000
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
    """Give a job its locks, of all its throttles or of none; whether it has them."""
    if not all_available(t, job):
        return False
    for name in job.throttles:
        t.lock(t.throttle(name), job)
    return True


def hold_back(t: Tables, job: QlessJob, now: float) -> None:
    """Let a job wait for the first of its throttles that has no room; `keep` comes before."""
    for name in job.throttles:
        if not available(t, name):
            t.pend(t.throttle(name), job, now)
            break
    t.place(job, THROTTLED_SINCE, now)
    if job.state != q.THROTTLED:
        job.state = q.THROTTLED
        history.append(t, job, now, q.HAS_THROTTLED, job.queue)


def release_all(t: Tables, job: QlessJob, now: float) -> None:
    """Take the locks of a job and its places among those that wait; `keep` comes before."""
    for name in job.throttles:
        if name in t.throttles:
            throttle = t.throttle(name)
            if not t.unlock(throttle, job):
                t.unpend(throttle, job)
            _let_wait(t, throttle, now)


def give_back(t: Tables, job: QlessJob, now: float) -> None:
    """Do the same for a job that has, or waits for, a lock; `keep` comes before."""
    if job.locked or job.pending:
        release_all(t, job, now)


def pending_of(t: Tables, job: QlessJob) -> int:
    """How many throttles of a job have jobs that wait."""
    throttles = [t.throttles.get(name) for name in job.throttles]
    return sum([1 for one in throttles if one is not None and len(one.pending)])


# --- calls ---------------------------------------------------------------------------------------


def throttle_set(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """Give a throttle a bound, for a time or for ever."""
    name, maximum, seconds = args
    if name not in t.throttles and len(t.throttles) >= q.THROTTLES_ALL_MAX:
        return limits.THROTTLES_ALL
    throttle = t.throttle(name)
    if _is_over(t, throttle):
        throttle.expires_us = 0
    throttle.is_set = True
    throttle.maximum = maximum
    if seconds > 0:  # none leaves the end that it had
        throttle.expires_us = t.kernel.now_us + min(seconds, LASTS_MAX_SECONDS) * MICROSECONDS
    return q.OK, None


def throttle_delete(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """Let a throttle have no bound; its locks and the jobs that wait stay."""
    if args[0] in t.throttles:
        throttle = t.throttle(args[0])
        throttle.is_set = False
        throttle.maximum = 0
        throttle.expires_us = 0
    return q.OK, None


def throttle_release(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Take locks of a throttle from jobs, whatever they do now.

    One that waits for the throttle waits in its queue again: nobody else would let it go.
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
    """The bound of a throttle, and for how many seconds it has it."""
    throttle = t.throttles.get(args[0])
    if throttle is None or not throttle.is_set or _is_over(t, throttle):
        return q.OK, (0, NOT_THERE)
    if throttle.expires_us == 0:
        return q.OK, (throttle.maximum, FOR_EVER)
    left_us = throttle.expires_us - t.kernel.now_us
    return q.OK, (throttle.maximum, (left_us + MICROSECONDS // 2) // MICROSECONDS)


def throttle_locks(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """The jobs that have a lock of a throttle."""
    throttle = t.throttles.get(args[0])
    if throttle is None:
        return q.OK, ()
    if len(throttle.locks) > q.LISTED_MAX:
        return limits.LISTED
    return q.OK, tuple(throttle.locks)


def throttle_pending(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """The jobs that wait for a throttle, the one that waits longest first."""
    throttle = t.throttles.get(args[0])
    if throttle is None:
        return q.OK, ()
    if len(throttle.pending) > q.LISTED_MAX:
        return limits.LISTED
    return q.OK, tuple(throttle.pending)


def _maximum(t: Tables, throttle: Throttle) -> int:
    return 0 if _is_over(t, throttle) else throttle.maximum


def _is_over(t: Tables, throttle: Throttle) -> bool:
    return 0 < throttle.expires_us <= t.kernel.now_us


def _let_wait(t: Tables, throttle: Throttle, now: float) -> None:
    """Let as many jobs wait in their queues again as the throttle has room for."""
    if not len(throttle.pending):
        return
    maximum = _maximum(t, throttle)
    room = RELEASED_UNBOUND if maximum == 0 else maximum - len(throttle.locks)
    # A call that has touched many jobs lets one go for each of its releases.
    most = RELEASED_MAX if len(t.touched) < q.CALL_JOBS_MAX else 1
    for jid in throttle.pending.lowest(0, min(room, most)):
        job = t.jobs[jid]
        t.keep(job)
        _let_one_wait(t, throttle, job, now)


def _let_one_wait(t: Tables, throttle: Throttle, job: QlessJob, now: float) -> None:
    """Its state stays as it is until it is popped, as in the original."""
    t.unpend(throttle, job)
    t.place(job, WORK, work_score(now, job.priority))
