"""Completion: a job ends, or advances to another queue.

Complete jobs are kept for a while, so that clients can look at them; each completion deletes some
of those that exceed the limits of age or number.
"""

from typing import Any, Final

from crc32c import crc32c

from beanpole import qless as q
from beanpole.core.qless import (
    cancelling,
    config,
    dependencies,
    history,
    limits,
    locks,
    queues,
    ranges,
    runs,
    statistics,
    throttles,
    tracking,
)
from beanpole.core.qless.job import COMPLETED, DEPENDING, SCHEDULED_AT, QlessJob
from beanpole.core.qless.tables import Tables

# Complete jobs that one completion deletes: about 10 us each. More than one, so that few
# completions suffice after an operator has lowered the limits.
PURGED_MAX: Final = 100
# Tags of the jobs that one completion deletes; the next completions delete the rest.
PURGED_TAGS_MAX: Final[int] = q.TAGS_MAX
KEPT_DEFAULT: Final = 50_000.0  # jobs
KEPT_FOR_DEFAULT: Final = 604_800.0  # seconds
# Flavours in which the given queue must be that of the job.
STRICT: Final = (q.CORE, q.THROTTLES, q.DOTTED)


def complete(t: Tables, flavour: int, now: float, args: tuple[Any, ...]) -> q.Result:
    """COMPLETE: complete a running job, or advance it to the next queue."""
    jid, worker, name, data, following, delay, depends = args
    refused = runs.refusal(t, jid, worker)
    if refused is not None:
        return refused
    job = t.jobs[jid]
    if job.queue != name and flavour in STRICT:
        return q.OTHER_QUEUE, (jid, job.queue)
    if following is not None:
        if not queues.has_room(t, following):
            return limits.QUEUES
        refused = dependencies.refusal(t, jid, depends, 0)
        if refused is not None:
            return refused
    t.keep(job)
    _end_run(t, flavour, job, now, data)
    if following is not None:
        return q.OK, _go_on(t, job, now, following, delay, depends)
    _finish(t, flavour, job, now)
    return q.OK, q.COMPLETE_


def _end_run(t: Tables, flavour: int, job: QlessJob, now: float, data: bytes) -> None:
    history.append(t, job, now, q.HAS_DONE)
    job.data = data
    t.unplace(job)
    throttles.release_all(t, job, now)
    seconds = locks.elapsed(flavour, now, job.time)
    statistics.note_run(t, t.queue(job.queue), now, seconds)
    t.touched[job.id].spent = seconds
    job.time = now
    t.let_go(job)
    job.worker = b""
    job.failure = None
    job.expires = 0.0
    job.remaining = job.retries
    if tracking.is_tracked(t, job.jid):
        t.publish(b"completed", job.jid)


def _go_on(
    t: Tables, job: QlessJob, now: float, following: bytes, delay: float, depends: tuple[bytes, ...]
) -> int:
    """Put a job into the next queue; returns its state there."""
    t.publish(
        b"log",
        (
            (b"jid", job.jid),
            (b"event", b"advanced"),
            (b"queue", job.queue),
            (b"to", following),
        ),
    )
    history.append(t, job, now, q.HAS_PUT, following)
    queues.know(t, now, following)
    job.queue = following
    before = dependencies.unfinished(t, depends)
    if delay > 0 and not depends:
        t.place(job, SCHEDULED_AT, now + delay)
        job.state = q.SCHEDULED
    elif before:
        dependencies.link(t, job, before)
        t.place(job, DEPENDING, now)
        job.state = q.DEPENDS
        job.due = now + delay if delay > 0 else None
    else:  # at once, even with a delay: as in the original
        queues.make_waiting(t, job, now)
    return job.state


def _finish(t: Tables, flavour: int, job: QlessJob, now: float) -> None:
    t.publish(
        b"log",
        ((b"jid", job.jid), (b"event", b"completed"), (b"queue", job.queue)),
    )
    job.state = q.COMPLETE_
    job.completed_in = job.queue
    job.queue = b""
    t.place(job, COMPLETED, now)
    dependencies.free_dependents(t, flavour, job, now)
    _purge(t, job.jid, now)


def _purge(t: Tables, ended: bytes, now: float) -> None:
    """Delete complete jobs beyond the limits of age and number.

    Their age is by the clock of the client, which may be wrong, or a lie.
    """
    oldest = now - config.number(t, b"jobs-history", KEPT_FOR_DEFAULT)
    may_time = t.may_time
    if may_time is None:
        jids = ranges.between(t.completed, 0.0, oldest, 0, PURGED_MAX) or []
    else:
        # The oldest may all be of queues in which the user ends none: so each completion looks at
        # another part of the jobs that are due.
        more = ranges.count_between(t.completed, 0.0, oldest) - PURGED_MAX
        first = crc32c(ended) % (more + 1) if more > 0 else 0
        jids = ranges.between(t.completed, 0.0, oldest, first, PURGED_MAX) or []
        jids = [jid for jid in jids if may_time(t.jobs[jid].completed_in)]
    removed, tags = _remove(t, jids, now, 0)
    excess = min(len(t.completed) - _kept(t), PURGED_MAX - removed)
    if excess > 0:
        _remove(t, t.completed.lowest(0, excess), now, tags)


def _remove(t: Tables, jids: list[bytes], now: float, tags: int) -> tuple[int, int]:
    """Delete jobs up to PURGED_TAGS_MAX tags; returns the numbers of jobs and of tags so far."""
    removed = 0
    for jid in jids:
        if tags >= PURGED_TAGS_MAX:
            break
        job = t.jobs[jid]
        tags += len(job.tags)
        removed += 1
        cancelling.remove(t, job, now)
    return removed, tags


def overdue(t: Tables, now: float) -> int:
    """Return about how many of the complete jobs a completion would delete, for its cost."""
    oldest = now - config.number(t, b"jobs-history", KEPT_FOR_DEFAULT)
    excess = min(len(t.completed), len(t.completed) + 1 - _kept(t))  # the completed job is one more
    return max(0, min(PURGED_MAX, max(excess, t.completed.count_upto(oldest))))


def _kept(t: Tables) -> int:
    return max(0, int(config.number(t, b"jobs-history-count", KEPT_DEFAULT)))
