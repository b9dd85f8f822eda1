"""Virtual time: a heap of callbacks that runs everything in a simulation.

There is no randomness here: callbacks of equal times run in the order in which they were scheduled.
"""

import heapq
from collections.abc import Callable

Callback = Callable[[], None]


class Clock:
    """A clock whose seconds pass only by running what is scheduled."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self._heap: list[tuple[float, int, Callback]] = []
        self._count = 0

    def at(self, time_s: float, callback: Callback) -> None:
        """Run a callback at the given time, or now if that time is over."""
        self._count += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._count, callback))

    def after(self, delay_s: float, callback: Callback) -> None:
        """Run a callback after a delay."""
        self.at(self.now_s + delay_s, callback)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_s = self.now_s + seconds
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, callback = heapq.heappop(self._heap)
            callback()
        self.now_s = end_s

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass until the condition holds; False if it does not within the limit."""
        end_s = self.now_s + limit_s
        while not condition():
            if not self._heap or self._heap[0][0] > end_s:
                self.now_s = end_s
                return condition()
            self.now_s, _, callback = heapq.heappop(self._heap)
            callback()
        return True
