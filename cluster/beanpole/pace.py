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
    has few turns and gets long ones. Each work has a pace of its own: two take twice the share.
    """

    def __init__(self) -> None:
        """Begin at once."""
        self._rested_us = 0  # by then every step has had its rest
        self._begun_us = 0
        self._step_us = 0  # when the step began that is under way
        self._steps = 0

    def begins(self, now_us: int) -> bool:
        """Whether a slice begins now."""
        if now_us < self._rested_us:
            return False
        earliest_us = now_us - (1 + REST_PER_SLICE) * SLICE_US_MAX
        self._rested_us = max(self._rested_us, earliest_us)
        self._begun_us = self._step_us = now_us
        self._steps = 0
        return True

    def goes_on(self, now_us: int) -> bool:
        """After every step: whether the slice has another one. The owner may end it earlier."""
        self._steps += 1
        self._rested_us += (1 + REST_PER_SLICE) * (now_us - self._step_us)
        self._step_us = now_us
        return self._rested_us < self._begun_us and self._steps < STEPS_PER_SLICE_MAX
