"""The jobs that a client has reserved since the last look, without a look at all that it holds."""

from typing import final

from beanpole.core.jobs.job import Job


@final
class NewlyReserved:
    """The end of the last look at the jobs of one session.

    A session has its jobs in the order of reservation. So new ones are at the end: behind the last
    one of that look or, if that is gone, by the time of their reservation.
    """

    __slots__ = ("_last", "_last_reserves", "_looked_us")

    def __init__(self) -> None:
        self._looked_us = 0
        self._last = 0  # the last job of the last look, and how often it was reserved
        self._last_reserves = 0

    def look(self, held: dict[int, Job], now_us: int) -> None:
        """Take note of what a session holds, at this cluster time."""
        self._looked_us = now_us
        if held:
            last = next(reversed(held.values()))
            self._last = last.id
            self._last_reserves = last.reserves

    def take(self, held: dict[int, Job], now_us: int) -> list[Job]:
        """Return the new ones in the order of reservation, and take note of them."""
        fresh: list[Job] = []
        for job in reversed(held.values()):
            is_last = job.id == self._last and job.reserves == self._last_reserves
            if is_last or job.reserved_us < self._looked_us:
                break
            fresh.append(job)
        fresh.reverse()
        self.look(held, now_us)
        return fresh
