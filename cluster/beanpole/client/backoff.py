"""The retry delays of failed jobs: exponential with jitter, and a limited number of attempts.

No I/O and no clock; the only side effect is the use of `random`. Workers decide what a failure is.
"""

import random
from dataclasses import dataclass
from typing import Final

from beanpole.constants import U32_MAX

# The delay after the first failure, in seconds; it doubles with each further failure.
FIRST_S: Final = 1
MOST_S: Final = 3600
TRIES_DEFAULT: Final = 5
# With jitter, the delay must still be one that a node accepts.
DELAY_MAX_S: Final = U32_MAX // 2


@dataclass(frozen=True, slots=True)
class Backoff:
    """The number of attempts at a job and the delays between them.

    Attributes:
        tries: the number of attempts before a job is buried, at least 1.
        first_s: the delay after the first failure, in seconds.
        most_s: the longest delay before jitter, in seconds.
    """

    tries: int = TRIES_DEFAULT
    first_s: int = FIRST_S
    most_s: int = MOST_S

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ValueError: one of them is not whole, or out of range.
        """
        for name, number, least, most in (
            ("tries", self.tries, 1, U32_MAX),
            ("first_s", self.first_s, 0, DELAY_MAX_S),
            ("most_s", self.most_s, 0, DELAY_MAX_S),
        ):
            if not isinstance(number, int) or not least <= number <= most:
                words = f"must be a whole number from {least} to {most}, and is {number!r}"
                raise ValueError(f"{name} {words}")

    def rest_s(self, tried: int) -> int | None:
        """Return the delay in seconds after `tried` attempts; None if there is no further one."""
        if tried >= self.tries:
            return None
        longest_s = min(self.most_s, self.first_s << min(tried - 1, 32))
        # Jitter of 25 %: jobs that failed together, say during an outage, are not retried together.
        return round(longest_s * (0.75 + random.random() / 2))
