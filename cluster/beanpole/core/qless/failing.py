"""Failures: jobs that a worker failed, or that have used up their attempts, by groups.

A failed job is in no set of its queue. A job keeps the record of its failure until it is complete,
even while it waits again.
"""

from math import floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import history, limits, queues, runs, statistics, throttles, tracking
from beanpole.core.qless.job import NOWHERE, SCHEDULED_AT, QlessJob
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables

# Flavours that count a job without attempts left as a failure of the day.
COUNTING: Final = (q.CORE, q.THROTTLES, q.DOTTED)
# Flavours in which only the worker of a job may fail it.
STRICT: Final = (q.CORE, q.THROTTLES, q.DOTTED)


def fail(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """FAIL: fail a running job."""
    jid, worker, group, message, data = args
    refused = runs.refusal(t, jid, worker if flavour in STRICT else None)
    if refused is not None:
        return refused
    job = t.jobs[jid]
    t.publish(
        b"log",
        (
            (b"jid", jid),
            (b"event", b"failed"),
            (b"worker", worker),
            (b"group", group),
            (b"message", message),
        ),
    )
    if tracking.is_tracked(t, jid):
        t.publish(b"failed", jid)
    t.keep(job)
    history.append(t, job, now, q.HAS_FAILED, group, worker)
    statistics.bump(t, t.queue(job.queue), now, failed=1, failures=1)
    if data is not None:
        job.data = data
    _give_up(t, job, q.FailureView(group, message, float(floor(now)), worker))
    throttles.release_all(t, job, now)
    return q.OK, jid


def retry(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """RETRY: return a running job to a queue for another attempt, or fail it if none is left."""
    jid, name, worker, delay, group, message = args
    refused = runs.refusal(t, jid, worker)
    if refused is not None:
        return refused
    job = t.jobs[jid]
    if not queues.has_room(t, name):
        return limits.QUEUES
    t.keep(job)
    job.remaining -= 1
    job.grace = False
    t.let_go(job)
    t.unplace(job)
    throttles.release_all(t, job, now)
    if job.remaining < 0:
        exhaust(t, flavour, job, now, name, group, message)
        return q.OK, job.remaining
    job.queue = name
    if delay > 0:
        t.place(job, SCHEDULED_AT, now + delay)
        job.state = q.SCHEDULED
    else:
        queues.make_waiting(t, job, now)
    if group is not None and message is not None:
        job.failure = q.FailureView(group, message, float(floor(now)), worker)
    return q.OK, job.remaining


def exhaust(
    t: Tables,
    flavour: int,
    job: QlessJob,
    now: float,
    name: bytes,
    group: bytes | None = None,
    message: bytes | None = None,
) -> None:
    """Fail a job without attempts left, in a queue of this name; the caller has called `keep`."""
    worker = job.worker
    if group is None:
        group = b"failed-retries-" + name
    history.append(t, job, now, q.HAS_FAILED, group)
    if message is None:
        text = b'Job exhausted retries in queue "' + job.queue + b'"'
        owner = worker if flavour == q.SEED else b""
        _give_up(t, job, q.FailureView(group, text, now, owner))
    else:
        _give_up(t, job, q.FailureView(group, message, float(floor(now)), worker))
    if flavour in COUNTING:
        statistics.bump(t, t.queue(name), now, failed=1, failures=1)


def unfail(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """UNFAIL: put the jobs of a group that failed first into a queue."""
    name, group, count = args
    failed = t.groups.get(group)
    if failed is None or count <= 0:
        return q.OK, 0
    if min(count, len(failed)) > q.CALL_JOBS_MAX:
        return limits.JOBS
    if not queues.has_room(t, name):
        return limits.QUEUES
    jids = failed.lowest(0, min(count, len(failed)))
    t.queue(name)
    for jid in jids:
        job = t.jobs[jid]
        t.keep(job)
        leave_group(t, job)
        history.append(t, job, now, q.HAS_PUT, name)
        job.queue = name
        job.remaining = job.retries
        queues.make_waiting(t, job, now)
    return q.OK, len(jids)


def enter_group(t: Tables, job: QlessJob, group: bytes) -> None:
    """Add a failed job to its group, in the order of failures."""
    failed = t.groups.get(group)
    if failed is None:
        failed = t.groups[group] = Scores()
    failed.add(job.jid, float(job.failed_order))


def leave_group(t: Tables, job: QlessJob) -> None:
    """Remove a failed job from its group; the caller has called `keep`."""
    assert job.failure is not None, job.jid
    failed = t.groups[job.failure.group]
    failed.remove(job.jid)
    if not len(failed):
        del t.groups[job.failure.group]
    job.failed_order = 0


def _give_up(t: Tables, job: QlessJob, failure: q.FailureView) -> None:
    t.let_go(job)
    t.place(job, NOWHERE, 0.0)
    job.state = q.FAILED
    job.worker = b""
    job.expires = 0.0
    job.failure = failure
    t.failures_total += 1
    job.failed_order = t.failures_total
    enter_group(t, job, failure.group)
