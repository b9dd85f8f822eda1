"""The wait of a Workq client for the end of a job, by `run` or by `result`.

This file has the state of such a wait; its steps are in `connection`.
"""

from typing import Final, final

from beanpole.core.jobs.job import RESERVED, Job

# The end of a reservation by cluster time may be a little later than this node estimates.
TIMER_MIN_US: Final = 1000


@final
class Awaited:
    """A wait for the end of one job.

    Attributes:
        job: the external id of the job.
        job_id: the number of the job, once it is known.
        is_run: whether the client has made the job, which is deleted with the reply.
        until_us: the time at which the wait ends, by the node's clock.
        is_instant: whether the time of the wait is 0: it is over before the request is submitted.
        is_due: whether the wait has ended and its barrier is in progress.
        is_deleting: whether the deletion of the job is in progress.
    """

    __slots__ = (
        *("_extended", "is_deleting", "is_due", "is_instant", "is_run", "job", "job_id"),
        "until_us",
    )

    def __init__(self, job: bytes, is_run: bool, until_us: int, is_instant: bool) -> None:
        self.job = job
        self.job_id = 0
        self.is_run = is_run
        self.until_us = until_us
        self.is_instant = is_instant
        self.is_due = False
        self.is_deleting = False
        self._extended = 0  # the number of the reservation for whose end a run waits

    def extends(self, job: Job) -> bool:
        """Whether a run whose time is up must wait for the end of a reservation.

        It waits for the reservation that existed at that time, and for no later one.
        """
        if not self.is_run or job.state != RESERVED:
            return False
        if self._extended:
            return job.reserves == self._extended
        self._extended = job.reserves
        return True
