"""What the Workq connections of one node share: counters, wall time, the reply of a result.

Belongs here: what is neither one client's nor the cluster's.
"""

from typing import Final, final

from beanpole.constants import SECOND_US
from beanpole.core.machine import Machine
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r

# The wall clock and cluster time are read one after the other for each entry, and clocks are
# slewed: the offset between them is kept until it is wrong by this, so that the times that people
# see do not change by a second between two looks.
OFFSET_SLACK_US: Final = SECOND_US // 2


@final
class Shared:
    """What the connections of one node share.

    Attributes:
        counts: how often each request was made, by its number.
        started_us: the wall time at which this began.
    """

    __slots__ = ("_offset_us", "_reply", "_reply_of", "counts", "started_us")

    def __init__(self, started_us: int) -> None:
        self.counts = [0] * r.COUNTERS
        self.started_us = started_us
        self._offset_us = 0
        self._reply = b""
        self._reply_of: tuple[bytes, bool, bytes] = (b"", False, b"")

    def offset_us(self, machine: Machine) -> int:
        """What is added to cluster time to show it as wall time."""
        offset_us = machine.wall_us - machine.queue.now_us
        if abs(offset_us - self._offset_us) > OFFSET_SLACK_US:
            self._offset_us = offset_us
        return self._offset_us

    def finished(self, job: bytes, success: bool, result: bytes) -> bytes:
        """The reply with a result. Thousands of clients that wait for one share its bytes."""
        asked = (job, success, result)
        if asked != self._reply_of:
            self._reply_of = asked
            self._reply = replies.finished(job, success, result)
        return self._reply
