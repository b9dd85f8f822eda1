"""qless as operators see it: figures of its tables, for metrics and status."""

from heapq import nlargest

from beanpole.core.qless.tables import QlessQueue, Tables
from beanpoled.frontends.publications import Publications
from beanpoled.view import (
    QUEUE_NAME_MAX_BYTES,
    QUEUES_MAX,
    QlessCounts,
    QlessFigures,
    QlessQueueFigures,
    SpaceFigures,
)


def figures(t: Tables, publications: Publications | None = None) -> QlessFigures:
    """Return the figures of all queues together, and of the queues with the most jobs."""
    counts = [(_counts(queue), queue) for queue in t.queues.values()]
    shown = [one for one in counts if len(one[1].name) <= QUEUE_NAME_MAX_BYTES]
    largest = nlargest(QUEUES_MAX, shown, key=lambda one: (sum(one[0]), one[1].name))
    return QlessFigures(
        jobs=QlessCounts(*map(sum, zip(*(one for one, _ in counts), strict=True))),
        failed=sum(map(len, t.groups.values())),
        complete=len(t.completed),
        queues=[QlessQueueFigures(queue.name, queue.paused, one) for one, queue in largest],
        workers=len(t.workers),
        throttles=sum(throttle.is_set for throttle in t.throttles.values()),
        throttle_locks=sum(len(throttle.locks) for throttle in t.throttles.values()),
        failure_groups=len(t.groups),
        locks_lost_total=t.locks_lost_total,
        subscribers=0 if publications is None else publications.subscribers,
        delivered_total=0 if publications is None else publications.delivered_total,
        queues_total=len(t.queues),
        jobs_total=t.jobs_total,
    )


def as_space(qless: QlessFigures) -> SpaceFigures:
    """Convert to the common terms: jobs that wait for a time or for other jobs are delayed."""
    jobs = qless.jobs
    return SpaceFigures(
        ready=jobs.waiting,
        reserved=jobs.running,
        delayed=jobs.scheduled + jobs.depends + jobs.throttled,
        buried=qless.failed,
        kept=qless.complete,
        queues=qless.queues_total,
        jobs_total=qless.jobs_total,
        timeouts_total=qless.locks_lost_total,
    )


def _counts(queue: QlessQueue) -> QlessCounts:
    return QlessCounts(
        len(queue.work),
        len(queue.locks),
        len(queue.scheduled),
        len(queue.depends),
        len(queue.throttled),
        len(queue.recurring),
    )
