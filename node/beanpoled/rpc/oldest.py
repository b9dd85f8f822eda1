"""Which job of each queue was put first: looked for once for all pages of a list of queues.

Belongs here: what one scan over the jobs found, by queues, and for how long it counts. The scan is
in `job_scan`, the call in `jobs`.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from beanpole.core.jobs.job import Job, Tube
from beanpoled.rpc import job_shapes

# A list of all queues is asked for page by page. For a page that comes later it begins anew.
KEPT_S: Final = 10.0
# Queues of one scan: they are chosen in one step, which takes some 2 ms.
QUEUES_MAX: Final = 10_000


class OldestJobs:
    """The oldest jobs of the queues behind one, as they were at some moment.

    Attributes:
        at_id: all jobs up to this id were looked at.
        jobs: by the serials of their queues, ids and when they were put.
    """

    def __init__(self, after: int, tubes: Iterable[Tube], now_s: float) -> None:
        """Choose the queues.

        Args:
            after: the serial behind which they begin.
            tubes: all there are, in the order of their serials.
            now_s: the time, by a monotonic clock.
        """
        self._after = after
        self._until_s = now_s + KEPT_S
        behind = (tube for tube in tubes if tube.serial > after)
        chosen = list(islice(behind, QUEUES_MAX))
        # Of those that come later, too, unless there are more than are looked at together.
        self._last = chosen[-1].serial if len(chosen) == QUEUES_MAX else None
        self._missing = {tube.serial for tube in chosen if job_shapes.has_jobs(tube)}
        self.at_id = 0
        self.jobs: dict[int, tuple[int, int]] = {}

    def covers(self, tubes: list[Tube], now_s: float) -> bool:
        """Whether the queues of a page are among them, and it is not too long ago."""
        return (
            now_s < self._until_s
            and tubes[0].serial > self._after
            and (self._last is None or tubes[-1].serial <= self._last)
        )

    def misses(self, serials: Iterable[int]) -> bool:
        """Whether the scan must go on for one of these queues, which have jobs.

        One that had none when it was passed has jobs behind all that was looked at.
        """
        self._missing.update(serial for serial in serials if serial not in self.jobs)
        return bool(self._missing)

    def take(self, job: Job) -> bool:
        """Look at the next job; whether no queue is missing any more."""
        serial = job.tube.serial
        if serial in self._missing:
            self._missing.discard(serial)
            self.jobs[serial] = (job.id, job.created_us)
        return not self._missing
