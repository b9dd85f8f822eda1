"""Cancellation and removal of jobs."""

from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import dependencies, failing, limits, statistics, tags, throttles, tracking
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.tables import Tables

# Each ten tags of a canceled job count as one more touched job.
TAGS_FREE: Final = 10


def cancel(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """CANCEL: delete jobs but complete ones; refused if a job that remains depends on one."""
    jids: tuple[bytes, ...] = args[0]
    refused = _refusal(t, jids)
    if refused is not None:
        return refused
    for jid in jids:
        job = t.jobs.get(jid)
        if job is None:
            _publish_canceled(t, jid, None, None)
        elif job.state != q.COMPLETE_:
            _publish_canceled(t, jid, job.worker, job.queue)
            if job.state == q.FAILED and job.failure is not None and flavour != q.SEED:
                statistics.bump(t, t.queue(job.queue), job.failure.when, failed=-1)
            t.keep(job)
            throttles.release_all(t, job, now)
            remove(t, job, now)
        else:
            continue
        if tracking.is_tracked(t, jid):
            t.publish(b"canceled", jid)
    return q.OK, None


def remove(t: Tables, job: QlessJob, now: float) -> None:
    """Delete a job for good; its locks are given back, and its dependents wait for it no longer."""
    t.keep(job)
    t.let_go(job)
    t.unplace(job)
    throttles.give_back(t, job, now)
    if job.failed_order:
        failing.leave_group(t, job)
    dependencies.unlink(t, job, list(job.dependencies))
    dependencies.free_dependents(t, q.DOTTED, job, now)
    tags.drop(t, job)
    t.forget(job)


def _refusal(t: Tables, jids: tuple[bytes, ...]) -> q.Result | None:
    if len(jids) > q.CALL_JOBS_MAX:
        return limits.JOBS
    named = frozenset(jids)
    touched = 0
    for jid in jids:
        job = t.jobs.get(jid)
        if job is None:
            continue
        for dependent in job.dependents:
            if dependent not in named:
                return q.HAS_DEPENDENT, (jid, dependent)
        touched += 1 + len(job.dependencies) + len(job.tags) // TAGS_FREE
        if touched <= q.CALL_JOBS_MAX:  # the count itself is work
            touched += throttles.touched_by(t, job)
    # A single job may always be canceled: its own limits bound the touched jobs.
    return limits.JOBS if touched > q.CALL_JOBS_MAX and len(jids) > 1 else None


def _publish_canceled(t: Tables, jid: bytes, worker: bytes | None, queue: bytes | None) -> None:
    pairs = ((b"jid", jid), (b"worker", worker), (b"event", b"canceled"), (b"queue", queue))
    t.publish(b"log", pairs)
    if worker:
        t.publish(b"w:" + worker, pairs)
