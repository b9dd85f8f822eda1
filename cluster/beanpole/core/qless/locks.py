"""Locks: the time for which a worker has a job, and the expiry of locks.

Locks do not expire by timers: the next worker that asks for jobs finds the locks that have ended.
Their workers are warned first, and have a grace period in which they may still report a failure.
"""

from collections.abc import Iterator
from math import floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import (
    config,
    failing,
    history,
    limits,
    runs,
    statistics,
    throttles,
    tracking,
)
from beanpole.core.qless.job import LOCKS, WORK, QlessJob
from beanpole.core.qless.scores import INFINITY
from beanpole.core.qless.tables import QlessQueue, Tables

LOCK_DEFAULT: Final = 60.0  # seconds
GRACE_DEFAULT: Final = 10.0  # seconds


def end_of_lock(t: Tables, queue: bytes, now: float) -> float:
    """Return the end of a lock of a queue's job that begins now."""
    common = config.number(t, b"heartbeat", LOCK_DEFAULT)
    return now + config.number(t, queue + b"-heartbeat", common)


def elapsed(flavour: int, now: float, since: float) -> float:
    """Return the time that a job waited or ran, for the statistics; in SEED, whole seconds."""
    return float(floor(now) - floor(since)) if flavour == q.SEED else now - since


def heartbeat(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """HEARTBEAT: renew a worker's lock."""
    jid, worker, data = args
    refused = runs.refusal(t, jid, worker)
    if refused is not None:
        return refused
    job = t.jobs[jid]
    if not worker:
        return q.OTHER_WORKER, (jid, job.worker)
    t.keep(job)
    if data is not None:
        job.data = data
    expires = end_of_lock(t, job.queue, now)
    job.expires = expires
    job.grace = False  # if the new lock ends, the worker is warned again
    t.hold(job, expires)
    t.place(job, LOCKS, expires)
    return q.OK, expires


def timeout(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """TIMEOUT: take running jobs from their workers and put them in front of their queues."""
    jids: tuple[bytes, ...] = args[0]
    if len(jids) > q.CALL_JOBS_MAX:
        return limits.JOBS
    seen: dict[bytes, None] = {}
    touched = 0
    for jid in jids:
        job = t.jobs.get(jid)
        if job is None:
            return q.NO_JOB, (jid,)
        if job.state != q.RUNNING or jid in seen:
            return q.NOT_RUNNING, (jid, q.STALLED if jid in seen else job.state)
        seen[jid] = None
        if touched <= q.CALL_JOBS_MAX:  # the count itself is work
            touched += 1 + throttles.touched_by(t, job)
    if touched > q.CALL_JOBS_MAX and len(jids) > 1:
        return limits.JOBS
    for jid in jids:
        _time_out(t, flavour, t.jobs[jid], now)
    return q.OK, None


def invalidate(
    t: Tables, flavour: int, queue: QlessQueue, now: float, count: int
) -> list[QlessJob]:
    """Process locks that have ended; returns the jobs that another worker may get.

    Locks beyond the work that a call may do are left to the next one.
    """
    if flavour == q.SEED:
        return _invalidate_at_once(t, queue, now, count)
    grace = config.number(t, b"grace-period", GRACE_DEFAULT)
    found: list[QlessJob] = []
    for job in _ended(t, queue, now, count, is_warned=grace > 0):
        t.keep(job)
        t.let_go(job)
        is_new = not job.grace
        if is_new or grace <= 0:
            _warn(t, queue, job, now, grace)
        if (not is_new or grace <= 0) and _attempt(t, flavour, queue, job, now):
            found.append(job)
    return found


def _ended(
    t: Tables, queue: QlessQueue, now: float, count: int, is_warned: bool
) -> Iterator[QlessJob]:
    """Yield jobs whose locks have ended, the earliest first, while a call may touch them.

    A job without an attempt left is going to fail, unless its worker `is_warned` first. It releases
    its throttles then, and each of them may let other jobs wait in their queues. The first job is
    always yielded: its own limits bound that.
    """
    touched = 0
    for jid in queue.locks.upto(now, 0, count):
        job = t.jobs[jid]
        weight = 1
        if job.remaining <= 0 and (job.grace or not is_warned):
            weight += throttles.touched_by(t, job)
        if touched > 0 and touched + weight > q.CALL_JOBS_MAX:
            return
        touched += weight
        yield job


def _time_out(t: Tables, flavour: int, job: QlessJob, now: float) -> None:
    t.keep(job)
    history.append(t, job, now, q.HAS_TIMED_OUT)
    worker = job.worker
    t.let_go(job)
    t.place(job, WORK, INFINITY)
    throttles.release_all(t, job, now)
    lose(t, job, worker)
    job.state = q.STALLED
    job.expires = 0.0
    if flavour == q.DOTTED:
        job.worker = b""


def _warn(t: Tables, queue: QlessQueue, job: QlessJob, now: float, grace: float) -> None:
    """Warn a worker that its lock is lost; it keeps the job for the grace period."""
    if tracking.is_tracked(t, job.jid):
        t.publish(b"stalled", job.jid)
    history.append(t, job, now, q.HAS_TIMED_OUT)
    lose(t, job, job.worker)
    job.grace = True
    t.place(job, LOCKS, now + grace)
    statistics.bump(t, queue, now, retries=1)


def _attempt(t: Tables, flavour: int, queue: QlessQueue, job: QlessJob, now: float) -> bool:
    """Use up an attempt of a job; returns whether it had one left. If not, it fails."""
    job.grace = False
    job.remaining -= 1
    if job.remaining >= 0:
        return True
    worker = job.worker
    t.unplace(job)
    throttles.release_all(t, job, now)
    failing.exhaust(t, flavour, job, now, queue.name)
    assert job.failure is not None, job.jid
    if tracking.is_tracked(t, job.jid):
        t.publish(b"failed", job.jid)
    t.publish(
        b"log",
        (
            (b"jid", job.jid),
            (b"event", b"failed"),
            (b"group", job.failure.group),
            (b"worker", worker),
            (b"message", job.failure.message),
        ),
    )
    return False


def _invalidate_at_once(t: Tables, queue: QlessQueue, now: float, count: int) -> list[QlessJob]:
    """Process ended locks in SEED: no grace period; counts only jobs that another worker gets."""
    found: list[QlessJob] = []
    for job in _ended(t, queue, now, count, is_warned=False):
        t.keep(job)
        t.let_go(job)
        t.locks_lost_total += 1
        if _attempt(t, q.SEED, queue, job, now):
            found.append(job)
            if tracking.is_tracked(t, job.jid):
                t.publish(b"stalled", job.jid)
    if found:
        statistics.bump(t, queue, now, retries=len(found))
    return found


def lose(t: Tables, job: QlessJob, worker: bytes) -> None:
    """Publish to a worker that it has no lock of a job any more, and count the loss of one.

    Call this before the state of the job changes. A job that went back to its queue keeps its
    worker, but has no lock; in the grace period, the loss was counted by the warning.
    """
    if job.state == q.RUNNING and not job.grace:
        t.locks_lost_total += 1
    pairs = ((b"jid", job.jid), (b"event", b"lock_lost"), (b"worker", worker))
    t.publish(b"w:" + worker, pairs)
    t.publish(b"log", pairs)
