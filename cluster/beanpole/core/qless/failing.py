"""Failures: jobs that a worker gave up, or that had too many attempts, by groups.

A failed job stands in no queue. How it failed stays with it until it is complete, even when it
waits again.
"""

from math import floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import history, limits, queues, statistics, throttles, tracking
from beanpole.core.qless.job import NOWHERE, SCHEDULED_AT, WORK, QlessJob
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables

# Flavours that count a job without attempts left as a failure of the day.
COUNTING: Final = (q.CORE, q.THROTTLES, q.DOTTED)
# Flavours in which only the worker of a job may say that it failed.
STRICT: Final = (q.CORE, q.THROTTLES, q.DOTTED)


def fail(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Let a running job fail."""
    jid, worker, group, message, data = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    if job.state != q.RUNNING:
        return q.NOT_RUNNING, (jid, job.state)
    if job.worker != worker and flavour in STRICT:
        return q.OTHER_WORKER, (jid, job.worker)
    t.say(
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
        t.say(b"failed", jid)
    t.keep(job)
    history.append(t, job, now, q.HAS_FAILED, group, worker)
    statistics.bump(t, t.queue(job.queue), now, failed=1, failures=1)
    if data is not None:
        job.data = data
    _give_up(t, job, q.FailureView(group, message, float(floor(now)), worker))
    throttles.release_all(t, job, now)
    return q.OK, jid


def retry(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """Let a running job wait for another attempt, or fail if it has none left."""
    jid, name, worker, delay, group, message = args
    job = t.jobs.get(jid)
    if job is None:
        return q.NO_JOB, (jid,)
    if job.state != q.RUNNING:
        return q.NOT_RUNNING, (jid, job.state)
    if job.worker != worker:
        return q.OTHER_WORKER, (jid, job.worker)
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
        t.place(job, WORK, queues.work_score(now, job.priority))
        job.state = q.WAITING
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
    """Let a job fail that has no attempts left, in a queue of this name; `keep` comes before."""
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
    """Let the jobs of a group that failed first wait in a queue."""
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
        job.state = q.WAITING
        job.queue = name
        job.remaining = job.retries
        t.place(job, WORK, queues.work_score(now, job.priority))
    return q.OK, len(jids)


def enter_group(t: Tables, job: QlessJob, group: bytes) -> None:
    """Let a failed job be found by its group, in its order there."""
    failed = t.groups.get(group)
    if failed is None:
        failed = t.groups[group] = Scores()
    failed.add(job.jid, float(job.failed_order))


def leave_group(t: Tables, job: QlessJob) -> None:
    """Let a failed job be in its group no longer; `keep` comes before."""
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
