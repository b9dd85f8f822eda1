"""Rates of delivery: how many jobs of a queue may be given out in a time, and which have spent it.

Belongs here: the arithmetic, and the buckets of the queues that gave out a job lately. Which queue
has a rate is in `core.jobs.policies`; that a queue without a token is no source of jobs is said by
its tube (`core.jobs.tubes`).

Integers only, and exact, so that every node computes the same: a bucket counts in units of one
token divided by the period, of which `rate` flow out in a microsecond.
"""

from typing import Final

from beanpole.core.jobs.order import Order

# Jobs in one period: its product with the longest period fits into 64 bits, as an image needs.
RATE_MAX: Final[int] = 1_000_000
# What is due has its effect some 10 ms later, for many share an entry. A bucket that is full gets
# no tokens in that time, so one that fills much faster would give out far less than its rate.
RATE_PERIOD_MIN_US: Final[int] = 100_000
RATE_PERIOD_MAX_US: Final[int] = 30 * 24 * 3600 * 1_000_000
# Queues with a bucket that is not full. A change of a policy looks at all in one step, which takes
# 15 ms if each has another rate then. Of more queues, the one that is due first is taken as full.
BUCKETS_MAX: Final[int] = 4096


class Bucket:
    """The tokens of one queue, as they were at `at_us`.

    Attributes:
        rate: tokens that it holds, and that come back in `period_us`.
        used: of `rate * period_us`, how much is gone. A token is `period_us`.
    """

    __slots__ = ("at_us", "period_us", "rate", "used")

    def __init__(self, rate: int, period_us: int, used: int, at_us: int) -> None:
        self.rate = rate
        self.period_us = period_us
        self.used = used
        self.at_us = at_us

    def pass_time(self, now_us: int) -> None:
        """Let tokens come back up to now."""
        self.used = max(0, self.used - self.rate * (now_us - self.at_us))
        self.at_us = now_us

    def is_spent(self) -> bool:
        """Whether there is no token."""
        return self.used > (self.rate - 1) * self.period_us

    def due_us(self) -> int:
        """When there is a token again; if there is one, when there are all."""
        missing = self.used - (self.rate - 1) * self.period_us if self.is_spent() else self.used
        return self.at_us + (missing + self.rate - 1) // self.rate


class Rates:
    """The buckets that are not full, by the names of their queues.

    Attributes:
        buckets: by names.
    """

    def __init__(self) -> None:
        self.buckets: dict[bytes, Bucket] = {}
        self._order = Order()  # (due, queue)

    def add(self, name: bytes, bucket: Bucket) -> None:
        """Add the bucket of a queue that has none."""
        self.buckets[name] = bucket
        self._order.add((bucket.due_us(), name))

    def remove(self, name: bytes) -> Bucket:
        """Forget the bucket of a queue; it is full from now on."""
        bucket = self.buckets.pop(name)
        self._order.remove((bucket.due_us(), name))
        return bucket

    def spend(self, name: bytes, rate: int, period_us: int, now_us: int) -> bool:
        """Take a token of a queue that has one; returns whether it was the last."""
        if name in self.buckets:
            bucket = self.remove(name)
            bucket.pass_time(now_us)
        else:
            bucket = Bucket(rate, period_us, 0, now_us)
        bucket.used += period_us
        self.add(name, bucket)
        return bucket.is_spent()

    def is_spent(self, name: bytes) -> bool:
        """Whether a queue has no token."""
        bucket = self.buckets.get(name)
        return bucket is not None and bucket.is_spent()

    def first(self) -> tuple[int, bytes] | None:
        """The bucket that is due first: (when, its queue)."""
        first: tuple[int, bytes] | None = self._order.first()
        return first

    def end_wait(self, name: bytes, now_us: int) -> bool:
        """A bucket is due: it has a token again, or all; returns whether it had none."""
        bucket = self.remove(name)
        was_spent = bucket.is_spent()
        bucket.pass_time(now_us)
        if bucket.used:
            self.add(name, bucket)
        return was_spent
