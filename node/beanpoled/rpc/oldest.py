"""The oldest job of each queue, searched for once for all pages of a list of queues.

This file keeps the result of one scan over the jobs, by queue, and its lifetime. The scan is in
`job_scan`, the call in `jobs`.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from beanpole.core.jobs.job import Job, Tube
from beanpoled.rpc import job_shapes

# A list of all queues is requested page by page; a page requested later than this starts over.
KEPT_S: Final = 10.0
# Queues in one scan: they are chosen in one step, which takes some 2 ms.
QUEUES_MAX: Final = 10_000


class OldestJobs:
    """The oldest jobs of the queues after a given one, at the time of the scan.

    Attributes:
        at_id: all jobs up to this id were visited.
        jobs: the id and the time of the put of the oldest job, by the serial of its queue.
    """

    def __init__(self, after: int, tubes: Iterable[Tube], now_s: float) -> None:
        """Choose the queues.

        Args:
            after: the serial after which the queues begin.
            tubes: all queues, in the order of their serials.
            now_s: the time, by a monotonic clock.
        """
        self._after = after
        self._until_s = now_s + KEPT_S
        behind = (tube for tube in tubes if tube.serial > after)
        chosen = list(islice(behind, QUEUES_MAX))
        # Queues created later are covered, too, unless the limit of one scan is reached.
        self._last = chosen[-1].serial if len(chosen) == QUEUES_MAX else None
        self._missing = {tube.serial for tube in chosen if job_shapes.has_jobs(tube)}
        self.at_id = 0
        self.jobs: dict[int, tuple[int, int]] = {}

    def covers(self, tubes: list[Tube], now_s: float) -> bool:
        """Whether the scan covers the queues of a page, and is not too old."""
        return (
            now_s < self._until_s
            and tubes[0].serial > self._after
            and (self._last is None or tubes[-1].serial <= self._last)
        )

    def misses(self, serials: Iterable[int]) -> bool:
        """Whether the scan must go on for one of these queues, which have jobs.

        A queue that had no jobs when it was passed has jobs only after the visited ids.
        """
        self._missing.update(serial for serial in serials if serial not in self.jobs)
        return bool(self._missing)

    def take(self, job: Job) -> bool:
        """Visit the next job; return whether no queue is missing any more."""
        serial = job.tube.serial
        if serial in self._missing:
            self._missing.discard(serial)
            self.jobs[serial] = (job.id, job.created_us)
        return not self._missing
