"""The queues with the most jobs, found incrementally.

A cluster may have 100,000 queues, and a scan of all of them would hold the loop for 40 ms at each
page of metrics. Each call scans some of them, and those that were the largest before.
"""

from collections.abc import Callable, Mapping
from heapq import nlargest
from itertools import islice
from typing import Final

from beanpole.core.jobs import shown
from beanpole.core.jobs.job import Tube
from beanpoled.view import QUEUE_NAME_MAX_BYTES, QUEUES_MAX, Lately, QueueFigures

# Some 4 ms of processor time (of 100,000 queues with jobs, not compiled). A larger cluster's list
# is complete after a few pages.
LOOK_MAX: Final = 10_000


class LargestQueues:
    """The largest queues found so far."""

    def __init__(self, look_max: int = LOOK_MAX) -> None:
        self._look_max = look_max
        self._begin = 0
        self._names: list[bytes] = []

    def look(
        self,
        tubes: Mapping[bytes, Tube],
        ready_s: Callable[[Tube], float],
        lately: Callable[[int], Lately],
    ) -> list[QueueFigures]:
        """Scan the next queues; return those with the most jobs, `QUEUES_MAX` at most.

        Args:
            tubes: all queues.
            ready_s: returns for how long the next job of a queue has been ready.
            lately: returns the recent figures of a queue, by its number.
        """
        if self._begin >= len(tubes):
            self._begin = 0
        names = dict.fromkeys(self._names)
        names.update(dict.fromkeys(islice(tubes, self._begin, self._begin + self._look_max)))
        self._begin += self._look_max
        counted = [
            (jobs, name)
            for name in names
            if name in tubes and len(name) <= QUEUE_NAME_MAX_BYTES
            for jobs in [_jobs(tubes[name])]
            if jobs
        ]
        self._names = [name for _, name in nlargest(QUEUES_MAX, counted)]
        found = [tubes[name] for name in self._names]
        return [figures(tube, ready_s(tube), lately(tube.number)) for tube in found]


def _jobs(tube: Tube) -> int:
    waiting = tube.ready_count + tube.delayed_count + len(tube.buried)
    return waiting + tube.reserved_count + tube.finished_count


def figures(tube: Tube, ready_s: float, lately: Lately) -> QueueFigures:
    """Return the figures of one queue."""
    protocol = shown.space_of(tube.name)
    return QueueFigures(
        protocol,
        shown.queue(tube.name).removeprefix(f"{protocol}{shown.SEPARATOR}"),
        tube.ready_count,
        tube.reserved_count,
        tube.delayed_count,
        len(tube.buried),
        tube.finished_count,
        ready_s,
        lately,
    )
