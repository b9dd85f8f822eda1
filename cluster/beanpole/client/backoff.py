"""The retry delays of failed jobs: exponential with jitter, and a limited number of attempts.

No I/O and no clock; the only side effect is the use of `random`. Workers decide what a failure is.
"""

import math
import random
from dataclasses import dataclass
from typing import Final

from beanpole.constants import U32_MAX

# The delay after the first failure, in seconds; it doubles with each further failure.
FIRST_S: Final = 1
MOST_S: Final = 3600
TRIES_DEFAULT: Final = 5
# 2**32 s is more than any delay that a job may have.
DOUBLINGS_MAX: Final = 32


def whole_seconds(seconds: object, what: str) -> int:
    """Return a delay as a whole number of seconds, rounded up.

    Raises:
        ValueError: it is no number that the protocol can express.
    """
    if not isinstance(seconds, int | float) or not 0 <= seconds <= U32_MAX:
        raise ValueError(f"{what} is {seconds!r}; allowed are numbers from 0 to {U32_MAX}")
    return math.ceil(seconds)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The number of attempts at a job and the delays between them.

    Attributes:
        tries: the number of attempts before a job is buried, at least 1.
        first_s: the delay after the first failure, in seconds; a fraction is rounded up.
        most_s: the longest delay before jitter, in seconds; a fraction is rounded up.
    """

    tries: int = TRIES_DEFAULT
    first_s: float = FIRST_S
    most_s: float = MOST_S

    def __post_init__(self) -> None:
        """Refuse wrong numbers here: in `rest_s` they would end the worker, not the caller."""
        if not isinstance(self.tries, int) or not 1 <= self.tries <= U32_MAX:
            raise ValueError(
                f"tries is {self.tries!r}; allowed are whole numbers from 1 to {U32_MAX}"
            )
        object.__setattr__(self, "first_s", whole_seconds(self.first_s, "first_s"))
        object.__setattr__(self, "most_s", whole_seconds(self.most_s, "most_s"))

    def rest_s(self, reserves: int, kicks: int = 0) -> int | None:
        """Return the delay in seconds before the next attempt; None if there is no further one.

        The counters of a job do not show how often it was reserved since it was kicked. So every
        `tries` reservations are a round, the last attempt is the end of a round, and each kick
        allows one more round. A kick after a last attempt thus gives exactly `tries` new ones. A
        job that was reserved more often without a failure finishes the round that it is in.

        Args:
            reserves: how often the job was reserved, the failed attempt included.
            kicks: how often it was kicked.
        """
        place = (reserves - 1) % self.tries + 1
        if place == self.tries and reserves >= self.tries * (kicks + 1):
            return None
        longest_s = min(self.most_s, self.first_s * (1 << min(place - 1, DOUBLINGS_MAX)))
        # Jitter of 25 %: jobs that failed together, say during an outage, are not retried together.
        return min(U32_MAX, round(longest_s * (0.75 + random.random() / 2)))
