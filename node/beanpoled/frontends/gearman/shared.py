"""What the Gearman connections of one node share: counters, handles, names of functions."""

from collections import Counter
from typing import Final

from beanpole.core.jobs.job import Job, Tube
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.spaces import SPACES
from beanpole.events import GEARMAN
from beanpole.protocol.gearman.parser import KINDS
from beanpole.protocol.gearman.replies import reply

# What names of functions begin with in the machine.
PREFIX: Final = SPACES[GEARMAN].prefix
# gearmand's clients keep a handle in 64 bytes with its end; two of them are "H:", one is a colon,
# 16 are a job's number.
CLUSTER_IN_HANDLE_BYTES: Final = 64 - 1 - 2 - 1 - 16
_JOB_DIGITS_MAX: Final = 16


def name_of(queue: Queue, tube: Tube) -> bytes:
    """The name by which this protocol knows a queue, with its prefix."""
    return queue.name_in(queue.spaces[GEARMAN], tube)


def knows(queue: Queue, job: Job) -> bool:
    """Whether a job is one of this protocol: its clients made it, or its workers may have it."""
    space = queue.spaces[GEARMAN]
    return queue.sees(space, job.tube) or (job.ext is not None and job.ext.home is space)


class Shared:
    """Of one node.

    Attributes:
        counts: how often each packet came, by its type.
        errors: how often a request was malformed, by the code of the reply.
        connections: how many there were; the last one's number.
    """

    def __init__(self, cluster: str) -> None:
        self.counts = [0] * KINDS
        self.errors: Counter[str] = Counter()
        self.connections = 0
        # The same on every node, and after a restart.
        self._handle_start = b"H:%b:" % cluster.encode()[:CLUSTER_IN_HANDLE_BYTES]
        self._news: tuple[int, int, bytes] = (0, 0, b"")
        self._news_packet = b""

    def handle(self, job_id: int) -> bytes:
        """Return what clients call a job."""
        return b"%b%d" % (self._handle_start, job_id)

    def news(self, kind: int, job_id: int, data: bytes) -> bytes:
        """Write the packet that tells of a job. Thousands of clients of one share its bytes."""
        asked = (kind, job_id, data)
        if asked != self._news:
            self._news = asked
            self._news_packet = reply(kind, self.handle(job_id), data)
        return self._news_packet

    def job_of(self, handle: bytes) -> int:
        """Return the job of a handle; 0 if it is none of this cluster's."""
        start = self._handle_start
        if not handle.startswith(start):
            return 0
        # Some clients send a NUL behind it.
        digits = handle[len(start) :].rstrip(b"\0")
        if not digits.isdigit() or len(digits) > _JOB_DIGITS_MAX:
            return 0
        return int(digits)
