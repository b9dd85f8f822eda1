"""qless as operators see it: figures of its tables, for metrics and status."""

from heapq import nlargest
from operator import add
from typing import Final

from beanpole.constants import SECOND_US
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

# So many queues or throttles are counted in some 2 ms.
FRESH_MAX: Final = 1000
# 10,000 queues, the most, take some 20 ms, and 100,000 throttles 30 ms: a twentieth of the time.
KEPT_US: Final = SECOND_US


class RecentFigures:
    """Figures that are computed again when they are old, where there are many queues or throttles.

    All of them are counted each time. A status, a page of metrics and a picture of `top` need the
    figures several times, and ask for them at every node.
    """

    def __init__(self) -> None:
        # Not the tables: a snapshot that is loaded replaces them, and frees a gigabyte perhaps,
        # while nothing may ask for figures for long.
        self._of_load = -1
        self._until_us = 0
        self._figures = QlessFigures()

    def look(
        self, t: Tables, loads: int, publications: Publications | None, now_us: int
    ) -> QlessFigures:
        """Return figures that are at most `KEPT_US` old; the present ones where there is little.

        Args:
            t: the tables.
            loads: how often others have replaced them.
            publications: the messages to this node's clients; None for none.
            now_us: the time, by a monotonic clock.
        """
        is_recent = self._of_load == loads and now_us < self._until_us
        if not is_recent or len(t.queues) + len(t.throttles) <= FRESH_MAX:
            self._figures = figures(t)
            self._of_load, self._until_us = loads, now_us + KEPT_US
        if publications is None:
            return self._figures
        return self._figures._replace(
            subscribers=publications.subscribers, delivered_total=publications.delivered_total
        )


def figures(t: Tables) -> QlessFigures:
    """Return the figures of all queues together, and of the queues with the most jobs."""
    totals = [0] * len(QlessCounts._fields)
    sizes: list[tuple[int, bytes]] = []
    for queue in t.queues.values():
        counts = _counts(queue)
        totals = list(map(add, totals, counts))
        if len(queue.name) <= QUEUE_NAME_MAX_BYTES:
            sizes.append((sum(counts), queue.name))
    largest = [t.queues[name] for _, name in nlargest(QUEUES_MAX, sizes)]
    jobs = QlessCounts(*totals)
    set_count = locks = 0
    for throttle in t.throttles.values():
        set_count += throttle.is_set
        locks += len(throttle.locks)
    return QlessFigures(
        jobs=jobs,
        # Any job that is neither in a queue nor complete. Its group is not looked at: there may be
        # as many groups as jobs.
        failed=len(t.jobs) - (sum(totals) - jobs.recurring) - len(t.completed),
        complete=len(t.completed),
        queues=[
            QlessQueueFigures(queue.name, queue.paused, QlessCounts(*_counts(queue)))
            for queue in largest
        ],
        workers=len(t.workers),
        throttles=set_count,
        throttle_locks=locks,
        failure_groups=len(t.groups),
        locks_lost_total=t.locks_lost_total,
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


def _counts(queue: QlessQueue) -> tuple[int, int, int, int, int, int]:
    """Return the fields of `QlessCounts`, which takes longer to make than all six to count."""
    return (
        len(queue.work),
        len(queue.locks),
        len(queue.scheduled),
        len(queue.depends),
        len(queue.throttled),
        len(queue.recurring),
    )
