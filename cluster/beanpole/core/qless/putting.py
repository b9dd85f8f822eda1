"""Put: create a job, or move an existing one to a queue, whatever its state."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import (
    dependencies,
    failing,
    history,
    limits,
    locks,
    queues,
    statistics,
    tags,
    throttles,
    tracking,
)
from beanpole.core.qless.job import DEPENDING, SCHEDULED_AT, QlessJob
from beanpole.core.qless.tables import Tables

RETRIES_DEFAULT: Final = 5


def put(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """PUT: put a job into a queue, to wait at once, after a delay, or for its dependencies."""
    queue, jid, klass, data, delay, worker, priority, new_tags, retries, depends, new, must = args
    job = t.jobs.get(jid)
    if job is None and must:
        return q.NO_JOB, (jid,)
    refused = _refusal(t, job, args)
    if refused is not None:
        return refused
    t.publish(b"log", ((b"jid", jid), (b"event", b"put"), (b"queue", queue)))
    before = b""
    if job is None:
        job = QlessJob(t.new_id(), jid)
        job.retries = RETRIES_DEFAULT
        t.add(job)
    else:
        t.keep(job)
        before = job.queue
        _leave(t, job, now, worker, queue)
    history.append(t, job, now, q.HAS_PUT, queue)
    tags.replace(t, job, now, tuple(job.tags) if new_tags is None else new_tags)
    job.klass = klass
    job.data = data
    if job.usage is None:
        t.count(job, t.usage)
    job.queue = queue
    job.completed_in = b""
    job.time = now
    job.expires = 0.0
    if priority is not None:
        job.priority = priority
    if retries is not None:
        job.retries = retries
    job.remaining = job.retries
    job.throttles = _throttles(queue, before, new)
    if depends:
        wanted = dependencies.unfinished(t, depends)
        kept = frozenset(wanted)
        dependencies.unlink(t, job, [one for one in job.dependencies if one not in kept])
        dependencies.link(t, job, [one for one in wanted if one not in job.dependencies])
    queues.know(t, now, queue)
    _place(t, job, now, delay)
    if tracking.is_tracked(t, jid):
        t.publish(b"put", jid)
    return q.OK, jid


def _refusal(t: Tables, job: QlessJob | None, args: tuple[Any, ...]) -> q.Result | None:
    queue, jid, _, data, _, _, _, new_tags, _, depends, new, _ = args
    if not limits.fits_quota(t.usage, job, data):
        return q.QUOTA, ()
    if not queues.has_room(t, queue):
        return limits.QUEUES
    if new_tags is not None and len(new_tags) > q.TAGS_MAX:
        return limits.TAGS
    if new is not None and len(new) >= q.THROTTLES_MAX:  # the throttle of the queue is added
        return limits.THROTTLES
    return dependencies.refusal(t, jid, depends, 0) if depends else None


def _leave(t: Tables, job: QlessJob, now: float, worker: bytes | None, queue: bytes) -> None:
    """Remove a job from its set and from its worker."""
    t.unplace(job)
    throttles.leave(t, job, now)
    t.let_go(job)  # also of a worker with the empty name
    owner = job.worker
    if owner:
        job.worker = b""
        if owner != worker:
            locks.lose(t, job, owner)
    if job.state == q.FAILED and job.failure is not None:
        failing.leave_group(t, job)
        # Counted in the queue that the job is put into, as in the original.
        statistics.bump(t, t.queue(queue), job.failure.when, failed=-1)


def _throttles(queue: bytes, before: bytes, new: tuple[bytes, ...] | None) -> tuple[bytes, ...]:
    if new is None:
        return ()
    old = q.QUEUE_THROTTLE + before
    return (*[name for name in new if name != old], q.QUEUE_THROTTLE + queue)


def _place(t: Tables, job: QlessJob, now: float, delay: float) -> None:
    job.due = None
    if job.dependencies:
        t.place(job, DEPENDING, now)
        job.state = q.DEPENDS
        job.due = now + delay if delay > 0 else None
    elif delay > 0:
        t.place(job, SCHEDULED_AT, now + delay)
        job.state = q.SCHEDULED
    elif throttles.all_available(t, job):
        queues.make_waiting(t, job, now)
    else:
        job.state = q.WAITING  # so that the history gets another item of a job that was held back
        throttles.hold_back(t, job, now)
