"""When a job that failed is tried again: longer and longer, with jitter, and not for ever.

Pure but for the dice. Used by workers; how a failure is noticed is theirs.
"""

import random
from typing import Final, NamedTuple

# A failed job is ready again after this long, and twice as long after each failure more.
FIRST_S: Final = 1
MOST_S: Final = 3600
TRIES_DEFAULT: Final = 5


class Backoff(NamedTuple):
    """How often a job is tried, and how long it rests in between.

    Attributes:
        tries: of a job before it is buried, 1 at least.
        first_s: the rest after the first failure, in seconds.
        most_s: the longest rest, in seconds.
    """

    tries: int = TRIES_DEFAULT
    first_s: int = FIRST_S
    most_s: int = MOST_S

    def rest_s(self, tried: int) -> int | None:
        """Return how long a job rests that was tried so often; None if it is enough."""
        if tried >= self.tries:
            return None
        longest_s = min(self.most_s, self.first_s << min(tried - 1, 32))
        # Jobs that failed together, because something else was down, do not come back together.
        return round(longest_s * (0.75 + random.random() / 2))
