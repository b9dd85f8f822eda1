"""The retry delays of failed jobs: exponential with jitter, and a limited number of attempts.

No I/O and no clock; the only side effect is the use of `random`. Workers decide what a failure is.
"""

import random
from typing import Final, NamedTuple

# The delay after the first failure, in seconds; it doubles with each further failure.
FIRST_S: Final = 1
MOST_S: Final = 3600
TRIES_DEFAULT: Final = 5


class Backoff(NamedTuple):
    """The number of attempts at a job and the delays between them.

    Attributes:
        tries: the number of attempts before a job is buried, at least 1.
        first_s: the delay after the first failure, in seconds.
        most_s: the longest delay before jitter, in seconds.
    """

    tries: int = TRIES_DEFAULT
    first_s: int = FIRST_S
    most_s: int = MOST_S

    def rest_s(self, tried: int) -> int | None:
        """Return the delay in seconds after `tried` attempts; None if there is no further one."""
        if tried >= self.tries:
            return None
        longest_s = min(self.most_s, self.first_s << min(tried - 1, 32))
        # Jitter of 25 %: jobs that failed together, say during an outage, are not retried together.
        return round(longest_s * (0.75 + random.random() / 2))
