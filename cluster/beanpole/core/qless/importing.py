"""Import of jobs, templates and queues from another server, for `beanpole import-qless`.

Existing objects stay as they are, so an import is idempotent. Imports are neither published nor
counted in statistics, because they are no transitions of the job. An imported job has no worker: a
job that was running is imported as stalled, and one that waited for a throttle as waiting.
"""

from math import floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import (
    dependencies,
    failing,
    limits,
    queues,
    recurring,
    shapes,
    tags,
)
from beanpole.core.qless.job import (
    COMPLETED,
    DEPENDING,
    NOWHERE,
    SCHEDULED_AT,
    WORK,
    QlessJob,
    history_bytes,
)
from beanpole.core.qless.scores import INFINITY
from beanpole.core.qless.tables import Tables

# The states in which a job may be imported.
STATES: Final = (q.WAITING, q.STALLED, q.SCHEDULED, q.DEPENDS, q.FAILED, q.COMPLETE_)


def import_job(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """IMPORT_JOB: create a job with its state, its place and its history."""
    queue, jid, klass, data, state, priority, retries, remaining, score, time, *rest = args
    due, given, items, failure, depends, throttles, spawned_from = rest
    if jid in t.jobs:
        return q.OK, False
    refused = _refusal(t, args)
    if refused is not None:
        return refused
    job = QlessJob(t.new_id(), jid)
    job.klass = klass
    job.data = data
    job.queue = queue
    job.priority = priority
    job.retries = retries
    job.remaining = remaining
    job.time = time
    job.throttles = tuple(dict.fromkeys(throttles))
    job.spawned_from = spawned_from
    job.history = [(float(floor(item[0])), item[1], item[2], item[3]) for item in items]
    job.texts = job.history_texts = history_bytes(job.history)
    if failure is not None:
        job.failure = q.FailureView(*failure)
    t.add(job)
    for tag, given_at in given:
        tags.give(t, job, given_at, tag)
    if state == q.DEPENDS:
        _depend(t, job, score, due, depends)
    else:
        _place(t, job, state, score)
    return q.OK, True


def import_recurring(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """IMPORT_RECURRING: create a template that continues its numbers and its times."""
    jid, next_at, count = args[1], args[5], args[11]
    if jid in t.recurring:
        return q.OK, False
    result = recurring.make(t, q.UNIFIED, now, args[:11], None)
    if result[0] != q.OK:
        return result
    template = t.recurring[jid]
    template.count = count
    recurring.schedule(t.queue(template.queue), template, next_at)
    return q.OK, True


def import_queue(t: Tables, _flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """IMPORT_QUEUE: make a queue known since `now`, and optionally paused, if it is not known."""
    name, paused = args
    queue = t.queues.get(name)
    if queue is not None and queue.known_at is not None:
        return q.OK, False
    if not queues.has_room(t, name):
        return limits.QUEUES
    queues.know(t, now, name)
    if paused:
        t.queue(name).paused = True
    return q.OK, True


def _refusal(t: Tables, args: tuple[Any, ...]) -> q.Result | None:
    queue, jid, _, _, state, *_ = args
    given, items, failure, depends, throttles, _ = args[11:]
    if state not in STATES or (state == q.FAILED and failure is None):
        return shapes.BAD
    if state != q.COMPLETE_ and not queues.has_room(t, queue):
        return limits.QUEUES
    if len(given) > q.TAGS_MAX:
        return limits.TAGS
    if len(throttles) > q.THROTTLES_MAX:
        return limits.THROTTLES
    if len(items) > q.HISTORY_MAX or history_bytes(list(items)) > q.HISTORY_MAX_BYTES:
        return limits.HISTORY
    return dependencies.refusal(t, jid, depends, 0) if state == q.DEPENDS else None


def _place(t: Tables, job: QlessJob, state: int, score: float) -> None:
    job.state = state
    if state == q.COMPLETE_:
        # A complete job is in no queue; events show the last one.
        job.completed_in = job.queue
        job.queue = b""
        t.place(job, COMPLETED, score)
    elif state == q.FAILED:
        assert job.failure is not None, job.jid
        t.place(job, NOWHERE, 0.0)
        t.failures_total += 1
        job.failed_order = t.failures_total
        failing.enter_group(t, job, job.failure.group)
    elif state == q.SCHEDULED:
        t.place(job, SCHEDULED_AT, score)
    else:
        t.place(job, WORK, INFINITY if state == q.STALLED else score)


def _depend(
    t: Tables, job: QlessJob, score: float, due: float | None, depends: tuple[bytes, ...]
) -> None:
    """Make a job depend on unfinished jobs; if there are none, it is scheduled or waits."""
    wanted = dependencies.unfinished(t, depends)
    if wanted:
        dependencies.link(t, job, wanted)
        job.due = due
        job.state = q.DEPENDS
        t.place(job, DEPENDING, score)
    elif due is not None:
        _place(t, job, q.SCHEDULED, due)
    else:
        _place(t, job, q.WAITING, queues.work_score(job.time, job.priority))
