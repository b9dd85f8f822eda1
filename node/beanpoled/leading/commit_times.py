"""A histogram of the time from proposal to commit, by the times of the leader's turns.

It serves reporting only: `batching` has its own measure.
"""

from collections import deque
from typing import Final, final

# Classes end at 1, 2, 4 us and so on; the last one has everything above 4.2 s.
COMMIT_CLASSES: Final = 24


@final
class CommitTimes:
    """The entries of this node's terms since its start.

    Attributes:
        count: the number of committed entries.
        total_us: the sum of their commit times.
        counts: how many took less than 1, 2, 4 us and so on, each counted once.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0
        self.counts = [0] * COMMIT_CLASSES
        self._in_flight: deque[tuple[int, int]] = deque()

    def proposed(self, index: int, now_us: int) -> None:
        self._in_flight.append((index, now_us))

    def committed(self, index: int, now_us: int) -> None:
        """Count the entries up to an index as committed."""
        in_flight = self._in_flight
        while in_flight and in_flight[0][0] <= index:
            took_us = now_us - in_flight.popleft()[1]
            self.count += 1
            self.total_us += took_us
            self.counts[min(took_us.bit_length(), COMMIT_CLASSES - 1)] += 1

    def forget(self) -> None:
        """Drop the entries in flight: leadership is lost, and they may never be committed."""
        self._in_flight.clear()
