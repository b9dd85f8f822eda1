"""Processor time in the simulation: a busy loop reads no input, and no turn may be long.

Virtual time stands still while a callback of a simulated node runs; the cost of the callback is
charged to the loop afterwards. The prices are those of interpreted nodes on one of the machines of
bench/, rounded. Only work that grows with what clients send or have stored is charged.
"""

from typing import Any, Final

from beanpole.core.jobs.job import Job
from beanpole.core.jobs.store import Jobs

CALLBACK_US: Final = 5.0
ENTRY_US: Final = 30.0
COMMAND_US: Final = 2.5
TRANSITION_US: Final = 3.4  # a kicked job
LOOK_US: Final = 0.15  # at a job, when an order is searched or rebuilt
ENTRY_BYTE_US: Final = 0.002
FRAME_BYTE_US: Final = 0.002
CLIENT_BYTE_US: Final = 0.002
CLIENT_LINE_US: Final = 6.0
IMAGE_BYTE_US: Final = 0.002
# A loop that is busy for less reads its input anyway, because each wait is an event of the clock.
GRAIN_S: Final = 0.0005
# The processor time at these prices that a node may need before it acts, mostly to apply its log.
WORK_S: Final = 0.1


def allowed_s(usual_s: float, slowness: float) -> float:
    """Return the time within which a node must act, on machines slower by a factor."""
    return usual_s + WORK_S * slowness


class Meter:
    """The cost of the current callback of any node so far."""

    def __init__(self) -> None:
        self.us = 0.0

    def take(self) -> float:
        """Return the cost and reset it to zero."""
        us, self.us = self.us, 0.0
        return us


METER: Final = Meter()


class CountedJobs(Jobs):
    """The table of all jobs, with a count of look-ups and a list of new jobs.

    `born` has the jobs that were added since it was last cleared.
    """

    looks = 0

    def __init__(self) -> None:
        super().__init__()
        self.born: list[Job] = []

    def add(self, job: Job) -> None:
        """See `Jobs`."""
        self.born.append(job)
        super().add(job)

    def get(self, job_id: int) -> Job | None:
        """See `Jobs`."""
        self.looks += 1
        return super().get(job_id)


def of_entry(size: int, commands: int, transitions: int, looks: int) -> float:
    """Return the cost of applying an entry, in microseconds."""
    return (
        ENTRY_US
        + ENTRY_BYTE_US * size
        + COMMAND_US * commands
        + TRANSITION_US * transitions
        + LOOK_US * looks
    )


def of_input(data: bytes) -> float:
    """Return the cost of reading bytes of a client, in microseconds."""
    return CLIENT_BYTE_US * len(data) + CLIENT_LINE_US * data.count(b"\n")


class CostlyImage:
    """An image whose chunks are charged by their size."""

    def __init__(self, image: Any) -> None:
        self._image = image

    def next_chunk(self) -> bytes | None:
        """See `Image`."""
        chunk: bytes | None = self._image.next_chunk()
        METER.us += IMAGE_BYTE_US * len(chunk or b"")
        return chunk

    def close(self) -> None:
        """See `Image`."""
        self._image.close()
