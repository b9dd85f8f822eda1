"""A job whose end a Workq client waits for, by `run` or by `result`.

Belongs here: what the connection knows of such a wait. The steps of the wait are in `connection`.
"""

from typing import Final, final

from beanpole.core.jobs.job import RESERVED, Job

# The end of a reservation by cluster time may be a little later than this node thinks.
TIMER_MIN_US: Final = 1000


@final
class Awaited:
    """A wait for the end of one job.

    Attributes:
        job: its external id.
        job_id: its number, once that is known.
        is_run: whether the client has made the job, which goes with the reply.
        until_us: when the wait ends, by the node's clock.
        is_due: a barrier is on its way, because the wait has ended.
        is_deleting: so is the deletion of the job.
    """

    __slots__ = ("_extended", "is_deleting", "is_due", "is_run", "job", "job_id", "until_us")

    def __init__(self, job: bytes, is_run: bool, until_us: int) -> None:
        self.job = job
        self.job_id = 0
        self.is_run = is_run
        self.until_us = until_us
        self.is_due = False
        self.is_deleting = False
        self._extended = 0  # the reservation, counted, for whose end a run waits

    def extends(self, job: Job) -> bool:
        """Whether a run whose time is up must wait for the end of a reservation.

        It does for the one that there was at that time, and for none that follows.
        """
        if not self.is_run or job.state != RESERVED:
            return False
        if self._extended:
            return job.reserves == self._extended
        self._extended = job.reserves
        return True
