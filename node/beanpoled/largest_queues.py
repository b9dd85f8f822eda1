"""The queues with the most jobs, found incrementally.

A cluster may have 100,000 queues, and a scan of all of them would hold the loop for 40 ms at each
page of metrics. Each call scans some of them, and those that were the largest before.
"""

from collections.abc import Mapping
from heapq import nlargest
from itertools import islice
from typing import Final

from beanpole.core.jobs.job import Tube
from beanpoled.view import QUEUE_NAME_MAX_BYTES, QUEUES_MAX

# Some 4 ms of processor time (of 100,000 queues with jobs, not compiled). A larger cluster's list
# is complete after a few pages.
LOOK_MAX: Final = 10_000


class LargestQueues:
    """The largest queues found so far."""

    def __init__(self, look_max: int = LOOK_MAX) -> None:
        self._look_max = look_max
        self._begin = 0
        self._names: list[bytes] = []

    def look(self, tubes: Mapping[bytes, Tube]) -> list[Tube]:
        """Scan the next of all queues; return those with the most jobs, `QUEUES_MAX` at most."""
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
        return [tubes[name] for name in self._names]


def _jobs(tube: Tube) -> int:
    waiting = tube.ready_count + tube.delayed_count + len(tube.buried)
    return waiting + tube.reserved_count + tube.finished_count
