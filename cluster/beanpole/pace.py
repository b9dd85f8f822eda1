"""How much of the loop's time work gets that can wait, and in what pieces: images and digests.

Time comes in as arguments. What is done in that time is the caller's business.
"""

from typing import Final

# After each slice everything else has so many times as long. Without a rest, a million jobs held
# up a node for the two seconds that their image takes.
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

    def __init__(self) -> None:
        """Begin at once."""
        self._rested_us = 0  # by then every slice has had its rest
        self._begun_us = 0
        self._steps = 0

    def begins(self, now_us: int) -> bool:
        """Whether a slice begins now."""
        if now_us < self._rested_us:
            return False
        earliest_us = now_us - (1 + REST_PER_SLICE) * SLICE_US_MAX
        self._rested_us = max(self._rested_us, earliest_us)
        self._begun_us = now_us
        self._steps = 0
        return True

    def goes_on(self, now_us: int) -> bool:
        """After a step: whether the slice has another one. If not it has ended."""
        self._steps += 1
        rested_us = self._rested_us + (1 + REST_PER_SLICE) * (now_us - self._begun_us)
        if rested_us < self._begun_us and self._steps < STEPS_PER_SLICE_MAX:
            return True
        self._rested_us = rested_us
        return False
