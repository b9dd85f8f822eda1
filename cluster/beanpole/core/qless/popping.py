"""Pop and peek: the next jobs of a queue, with or without a lock for a worker.

Jobs whose locks have ended come first, then waiting jobs by priority. Before that, due templates
create jobs, and scheduled jobs that are due are made waiting.
"""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import (
    config,
    history,
    limits,
    locks,
    queues,
    recurring,
    statistics,
    throttles,
    tracking,
    views,
    workers,
)
from beanpole.core.qless.job import LOCKS, QlessJob, answer_bytes
from beanpole.core.qless.tables import QlessQueue, Tables

# The number of times that a pop looks for further jobs, if throttles held back some.
ROUNDS_DEFAULT: Final = 1.0


def pop(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """POP: give jobs to a worker, fewer than available if they exceed ANSWER_MAX_BYTES."""
    name, worker, count = args
    queue = t.queues.get(name)
    if queue is not None and queue.paused:
        return q.OK, ()
    if queue is not None and _too_many(queue, now, 0, count):
        return limits.JOBS
    workers.seen(t, now, worker)
    count = min(_allowed(t, flavour, queue, name, now, count), q.CALL_JOBS_MAX)
    if queue is None or count <= 0:
        return q.OK, ()
    popped: list[QlessJob] = []
    count, size = _fitting(t, flavour, queue.locks.upto(now, 0, count), count)
    for job in locks.invalidate(t, flavour, queue, now, count):
        _pop_job(t, flavour, queue, job, now, worker)
        popped.append(job)
    if throttles.available(t, q.QUEUE_THROTTLE + name):
        rest = count - len(popped)
        recurring.spawn(t, queue, now, rest)
        queues.move_scheduled(t, queue, now, rest)
        _pop_work(t, flavour, queue, now, worker, rest, size, popped)
    return q.OK, tuple([views.job_view(t, job) for job in popped])


def peek(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """PEEK: return the next jobs without locking them."""
    name, offset, count = args
    queue = t.queues.get(name)
    if queue is None or count <= 0:
        return q.OK, ()
    if offset > q.LISTED_MAX:
        return limits.LISTED
    if _too_many(queue, now, max(0, offset), count):
        return limits.JOBS
    expired = queue.locks.count_upto(now)
    rest = offset + count - expired
    if min(rest, queue.scheduled.count_upto(now)) > q.CALL_JOBS_MAX:
        return limits.JOBS
    if rest > 0:
        recurring.spawn(t, queue, now, rest)
        queues.move_scheduled(t, queue, now, rest)
    if offset < 0:  # qless's script answers so, after the same changes
        return q.OK, ()
    jids = queue.locks.lowest(offset, min(count, expired - offset))
    jids += queue.work.highest(max(0, offset - expired), count - len(jids))
    jobs = [t.jobs[jid] for jid in jids]
    if not views.fit_into_an_answer(jobs, flavour):
        return limits.ANSWER
    return q.OK, tuple([views.job_view(t, job) for job in jobs])


def _too_many(queue: QlessQueue, now: float, offset: int, count: int) -> bool:
    """Whether more jobs would be returned than a call may touch."""
    if count <= q.CALL_JOBS_MAX:
        return False
    if queue.recurring.count_upto(now):  # due templates create as many jobs as requested
        return True
    found = queue.locks.count_upto(now) + len(queue.work) + queue.scheduled.count_upto(now)
    return found - offset > q.CALL_JOBS_MAX


def _allowed(
    t: Tables, flavour: int, queue: QlessQueue | None, name: bytes, now: float, count: int
) -> int:
    """Return the number of jobs that a pop may give: some flavours bound the running jobs."""
    if queue is None or flavour not in (q.UNIFIED, q.CORE):
        return count
    most = int(config.number(t, name + b"-max-concurrency", 0.0))
    if most <= 0:
        return count
    running = len(queue.locks) - queue.locks.count_below(now)
    return min(count, max(0, most - running))


def _fitting(t: Tables, flavour: int, jids: list[bytes], count: int) -> tuple[int, int]:
    """Return the number of jobs that fit into an answer, and its size.

    If all of them fit, the count is returned unchanged.
    """
    size = 0
    for place, jid in enumerate(jids):
        size += answer_bytes(t.jobs[jid], flavour)
        if size > q.ANSWER_MAX_BYTES:
            return max(1, place), q.ANSWER_MAX_BYTES
    return count, size


def _pop_work(
    t: Tables,
    flavour: int,
    queue: QlessQueue,
    now: float,
    worker: bytes,
    count: int,
    size: int,
    popped: list[QlessJob],
) -> None:
    common = config.number(t, b"max-pop-retry", ROUNDS_DEFAULT)
    rounds = config.number(t, queue.name + b"-max-pop-retry", common)
    looked = 0
    while count > 0 and rounds > 0 and looked < q.CALL_JOBS_MAX:
        jids = queue.work.highest(0, min(count, q.CALL_JOBS_MAX - looked))
        if not jids:
            break
        for jid in jids:
            job = t.jobs[jid]
            if looked >= q.CALL_JOBS_MAX:
                return
            looked += 1 + len(job.throttles) // throttles.FREE
            given = size + answer_bytes(job, flavour)
            if given > q.ANSWER_MAX_BYTES and popped:
                return
            t.keep(job)
            if not throttles.acquire(t, job):
                throttles.hold_back(t, job, now)
                continue
            size = given
            _pop_job(t, flavour, queue, job, now, worker)
            popped.append(job)
            count -= 1
        rounds -= 1


def _pop_job(
    t: Tables, flavour: int, queue: QlessQueue, job: QlessJob, now: float, worker: bytes
) -> None:
    """Give a job to a worker; the caller has called `keep`."""
    history.append(t, job, now, q.HAS_POPPED, worker)
    since = history.last_put(job) if flavour == q.SEED else job.time
    waited = locks.elapsed(flavour, now, since)
    statistics.note_wait(t, queue, now, waited)
    t.touched[job.id].spent = waited
    job.time = now
    expires = locks.end_of_lock(t, queue.name, now)
    job.worker = worker
    job.expires = expires
    job.grace = False  # a warning of the previous worker does not apply to this one
    job.state = q.RUNNING
    t.hold(job, expires)
    t.place(job, LOCKS, expires)
    if tracking.is_tracked(t, job.jid):
        t.publish(b"popped", job.jid)
