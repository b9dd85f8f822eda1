"""State shared by the Workq connections of one node: counters, wall time, the reply of a result.

The state here belongs neither to one client nor to the cluster.
"""

from typing import Final, final

from beanpole.constants import SECOND_US
from beanpole.core.machine import Machine
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.large_output import LARGE_BYTES
from beanpoled.frontends.replies import Parts

# The wall clock and cluster time are read one after the other for each entry, and clocks are
# slewed: the offset between them is kept until its error exceeds this, so that displayed times do
# not change by a second between two requests.
OFFSET_SLACK_US: Final = SECOND_US // 2


@final
class Shared:
    """The shared state of one node.

    Attributes:
        counts: the number of requests of each kind.
        started_us: the loop time at which the node started.
    """

    __slots__ = ("_offset_us", "_reply", "_reply_of", "counts", "started_us")

    def __init__(self, started_us: int) -> None:
        self.counts = [0] * r.COUNTERS
        self.started_us = started_us
        self._offset_us = 0
        self._reply: Parts = (b"",)
        self._reply_of: tuple[bytes, bool, bytes] = (b"", False, b"")

    def offset_us(self, machine: Machine) -> int:
        """Return the offset that converts cluster time to wall time."""
        offset_us = machine.wall_us - machine.queue.now_us
        if abs(offset_us - self._offset_us) > OFFSET_SLACK_US:
            self._offset_us = offset_us
        return self._offset_us

    def finished(self, job: bytes, success: bool, result: bytes) -> Parts:
        """Return the reply with a result; it is cached, as thousands of clients may wait for it."""
        if len(result) > LARGE_BYTES:
            return (replies.finished_head(job, success, len(result)), result, b"\r\n")
        asked = (job, success, result)
        if asked != self._reply_of:
            self._reply_of = asked
            self._reply = (replies.finished(job, success, result),)
        return self._reply
