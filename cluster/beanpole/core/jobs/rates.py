"""Delivery rates of queues: a token bucket for each queue that gave out a job recently.

This module holds the arithmetic and the buckets. The rates are in `core.jobs.policies`; a queue
without a token is closed by its tube (`core.jobs.tubes`).

The arithmetic is exact and uses integers only, so that every node computes the same: the unit of a
bucket is one token divided by the period in microseconds, and `rate` units come back in a
microsecond.
"""

from typing import Final

from beanpole.constants import SECOND_US
from beanpole.core.jobs.order import Order

# Jobs in one period. The product with the longest period fits into 64 bits, as images require.
RATE_MAX: Final[int] = 1_000_000
# Timers take effect about 10 ms late, because many of them share an entry. A full bucket gains no
# tokens in that time, so a bucket that fills much faster would give out far less than its rate.
RATE_PERIOD_MIN_US: Final[int] = 100_000
RATE_PERIOD_MAX_US: Final[int] = 30 * 24 * 3600 * SECOND_US
# Queues with a bucket that is not full. A change of a policy scans all buckets in one step, which
# takes 7 ms if it changes the rate of each. Beyond this number, the bucket that is due first is
# treated as full.
BUCKETS_MAX: Final[int] = 4096


class Bucket:
    """The tokens of one queue, as they were at `at_us`.

    Attributes:
        rate: the capacity in tokens, all of which come back in `period_us`.
        used: the spent part of `rate * period_us` units. A token is `period_us` units.
    """

    __slots__ = ("at_us", "period_us", "rate", "used")

    def __init__(self, rate: int, period_us: int, used: int, at_us: int) -> None:
        self.rate = rate
        self.period_us = period_us
        self.used = used
        self.at_us = at_us

    def used_at(self, now_us: int) -> int:
        """Return the part that will still be spent at a time, unless more is spent until then."""
        return max(0, self.used - self.rate * (now_us - self.at_us))

    def pass_time(self, now_us: int) -> None:
        """Refill the bucket up to now."""
        self.used = self.used_at(now_us)
        self.at_us = now_us

    def is_spent(self) -> bool:
        """Whether the bucket has no whole token."""
        return self.used > (self.rate - 1) * self.period_us

    def due_us(self) -> int:
        """Return the time of the next token if the bucket is spent, else that of a full bucket."""
        missing = self.used - (self.rate - 1) * self.period_us if self.is_spent() else self.used
        return self.at_us + (missing + self.rate - 1) // self.rate


class Rates:
    """The buckets that are not full.

    Attributes:
        buckets: buckets by the names of their queues.
    """

    def __init__(self) -> None:
        self.buckets: dict[bytes, Bucket] = {}
        self._order = Order()  # (due, queue)

    def add(self, name: bytes, bucket: Bucket) -> None:
        """Add the bucket of a queue that has none."""
        self.buckets[name] = bucket
        self._order.add((bucket.due_us(), name))

    def remove(self, name: bytes) -> Bucket:
        """Remove the bucket of a queue, which then counts as full."""
        bucket = self.buckets.pop(name)
        self._order.remove((bucket.due_us(), name))
        return bucket

    def spend(self, name: bytes, rate: int, period_us: int, now_us: int) -> bool:
        """Take a token of a queue that has one; returns whether it was the last token."""
        if name in self.buckets:
            bucket = self.remove(name)
            bucket.pass_time(now_us)
        else:
            bucket = Bucket(rate, period_us, 0, now_us)
        bucket.used += period_us
        self.add(name, bucket)
        return bucket.is_spent()

    def tokens(self, name: bytes, rate: int, now_us: int) -> int:
        """Return the number of whole tokens of a queue with this rate."""
        bucket = self.buckets.get(name)
        if bucket is None:
            return rate
        return bucket.rate - (bucket.used_at(now_us) + bucket.period_us - 1) // bucket.period_us

    def is_spent(self, name: bytes) -> bool:
        """Whether a queue has no token."""
        bucket = self.buckets.get(name)
        return bucket is not None and bucket.is_spent()

    def first(self) -> tuple[int, bytes] | None:
        """Return (time, queue) of the bucket that is due first; None if there is none."""
        first: tuple[int, bytes] | None = self._order.first()
        return first

    def end_wait(self, name: bytes, now_us: int) -> bool:
        """Refill a bucket that is due, and drop it if it is full; returns whether it was spent."""
        bucket = self.remove(name)
        was_spent = bucket.is_spent()
        bucket.pass_time(now_us)
        if bucket.used:
            self.add(name, bucket)
        return was_spent
