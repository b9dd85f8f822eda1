"""Limit the share of the loop's time that deferrable work (images, digests) takes.

The clock is passed in as a function. The work itself belongs to the caller.
"""

from collections.abc import Callable
from typing import Final

# After each slice the rest of the node has the loop for this multiple of the slice's time. Without
# that rest, the image of a million jobs blocked a node for its full two seconds.
REST_PER_SLICE: Final = 8
# While turns are rare, a slice may use the time that earlier slices did not, up to this limit. More
# would delay the clients of the node.
SLICE_US_MAX: Final = 1000
# A bound for clocks that do not advance, such as a simulator's within a turn.
STEPS_PER_SLICE_MAX: Final = 16


class Pace:
    """Decide when a slice begins and ends. A slice consists of one or more steps.

    A busy node has a turn every millisecond and gets slices of one step; an idle node has few turns
    and gets long slices.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        """Allow the first slice at once; `now_us` is the clock."""
        self._now_us = now_us
        self._rested_us = 0  # the time at which the rest after the last step ends

    def slice(self, step: Callable[[], bool]) -> None:
        """Run the steps of a slice, if one is due.

        Args:
            step: does a part of the work; returns whether the slice may contain another step.
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
