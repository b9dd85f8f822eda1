"""The share of the loop's time for work that can wait, and its pieces: images and digests.

The clock comes in as a function. The work itself is the owner's business.
"""

from collections.abc import Callable
from typing import Final

# After each slice the rest of the node has the loop for this multiple of it. Without a rest, a
# million jobs held up a node for the two seconds that their image takes.
REST_PER_SLICE: Final = 8
# While turns are rare, a slice may take what the ones before it did not, up to this. More would
# delay the clients of the node.
SLICE_US_MAX: Final = 1000
# For a clock that stands still, as a simulator's does within a turn.
STEPS_PER_SLICE_MAX: Final = 16


class Pace:
    """When a slice begins and when it ends. It is made of steps, and takes at least one.

    A node that is busy has a turn every millisecond and gets slices of one step, one that is idle
    has few turns and gets long ones.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        """Begin at once, by that clock."""
        self._now_us = now_us
        self._rested_us = 0  # by then every step has had its rest

    def slice(self, step: Callable[[], bool]) -> None:
        """Take the steps of a slice, if it is time for one.

        Args:
            step: does some of the work; whether there may be another step in this slice.
        """
        begun_us = step_us = self._now_us()
        if begun_us < self._rested_us:
            return
        earliest_us = begun_us - (1 + REST_PER_SLICE) * SLICE_US_MAX
        self._rested_us = max(self._rested_us, earliest_us)
        for _ in range(STEPS_PER_SLICE_MAX):
            goes_on = step()
            ended_us = self._now_us()
            self._rested_us += (1 + REST_PER_SLICE) * (ended_us - step_us)
            step_us = ended_us
            if not goes_on or self._rested_us >= begun_us:
                return
