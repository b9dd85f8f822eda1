"""State shared by the Gearman connections of one node: counters, handles, names of functions."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from beanpole.core.jobs.job import Job, Tube
from beanpole.core.jobs.queue import Queue
from beanpole.core.jobs.spaces import SPACES
from beanpole.events import GEARMAN
from beanpole.protocol.gearman.parser import KINDS
from beanpole.protocol.gearman.replies import reply
from beanpoled.frontends.gearman.list_line import ListLine

# The prefix of names of functions in the machine.
PREFIX: Final = SPACES[GEARMAN].prefix
# gearmand's clients keep a handle in 64 bytes, including its terminator; "H:" takes two of them, a
# colon one, and the number of a job 16.
CLUSTER_IN_HANDLE_BYTES: Final = 64 - 1 - 2 - 1 - 16
_JOB_DIGITS_MAX: Final = 16


def name_of(queue: Queue, tube: Tube) -> bytes:
    """Return the name by which this protocol knows a queue, with the prefix of this protocol."""
    return PREFIX + queue.bare_name(queue.spaces[GEARMAN], tube)


def knows(queue: Queue, job: Job) -> bool:
    """Whether a job belongs to this protocol: made by its clients or visible to its workers."""
    space = queue.spaces[GEARMAN]
    return queue.sees(space, job.tube) or (job.ext is not None and job.ext.home is space)


class Shared:
    """The shared state of one node.

    Attributes:
        counts: the number of packets received, by type.
        errors: the number of malformed requests, by the code of the reply.
        connections: the number of connections so far, which is the number of the newest.
        lists: the lists that clients asked for.
    """

    def __init__(self, cluster: str, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self.lists = ListLine(call_soon)
        self.counts = [0] * KINDS
        self.errors: Counter[str] = Counter()
        self.connections = 0
        # The same on every node, and after a restart.
        self._handle_start = b"H:%b:" % cluster.encode()[:CLUSTER_IN_HANDLE_BYTES]
        self._notified: tuple[int, int, bytes] = (0, 0, b"")
        self._notification_packet = b""

    def handle(self, job_id: int) -> bytes:
        """Return the handle of a job."""
        return b"%b%d" % (self._handle_start, job_id)

    def notification(self, kind: int, job_id: int, data: bytes) -> bytes:
        """Return the packet about a job; it is cached, as thousands of clients may receive it."""
        asked = (kind, job_id, data)
        if asked != self._notified:
            self._notified = asked
            self._notification_packet = reply(kind, self.handle(job_id), data)
        return self._notification_packet

    def job_of(self, handle: bytes) -> int:
        """Return the job of a handle; 0 if the handle is not of this cluster."""
        start = self._handle_start
        if not handle.startswith(start):
            return 0
        # Some clients send a trailing NUL.
        digits = handle[len(start) :].rstrip(b"\0")
        if not digits.isdigit() or len(digits) > _JOB_DIGITS_MAX:
            return 0
        return int(digits)
