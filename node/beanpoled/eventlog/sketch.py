"""Quantiles of durations, as counts in bins: pure, small and mergeable.

The width of a bin is 1/16 of its durations, so that a quantile is within 3.1 % of the truth; below
32 us a bin is one microsecond. `latencies` decides what is counted, and for how long.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

# 16 bins for each power of two.
_STEP_BITS: Final = 4
_EXACT_US: Final = 1 << (_STEP_BITS + 1)
# Longer durations count as this (12 days), so that a sketch has at most 600 bins: some 60 KiB.
DURATION_MAX_US: Final = (1 << 40) - 1


def bin_of(duration_us: int) -> int:
    """Return the number of the bin of a duration; a negative one counts as 0."""
    if duration_us < _EXACT_US:
        return max(0, duration_us)
    capped = min(duration_us, DURATION_MAX_US)
    power = capped.bit_length() - _STEP_BITS - 1
    return (power << _STEP_BITS) + (capped >> power)


def middle_us(number: int) -> float:
    """Return the duration that represents a bin."""
    if number < _EXACT_US:
        return number
    power = (number >> _STEP_BITS) - 1
    first_us = (number - (power << _STEP_BITS)) << power
    return first_us + (1 << power) / 2


class Sketch:
    """Durations of one kind. Memory: one dict entry for each bin in use.

    Attributes:
        count: the sum of the weights of the durations.
        total_us: their weighted sum.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total_us = 0
        self._bins: dict[int, int] = {}

    def add(self, duration_us: int, weight: int) -> None:
        """Count a duration that stands for `weight` durations."""
        self.count += weight
        self.total_us += max(0, duration_us) * weight
        number = bin_of(duration_us)
        self._bins[number] = self._bins.get(number, 0) + weight

    def add_all(self, other: "Sketch") -> None:
        """Add the counts of another sketch."""
        self.count += other.count
        self.total_us += other.total_us
        bins = self._bins
        if not bins:
            self._bins = other._bins.copy()
            return
        for number, count in other._bins.items():
            bins[number] = bins.get(number, 0) + count

    def quantiles_us(self, quantiles: Iterable[float]) -> list[float]:
        """Return the durations below which these parts (0 to 1) of all durations lie.

        An empty sketch returns 0.0 for each.
        """
        if not self.count:
            return [0.0 for _ in quantiles]
        numbers = sorted(self._bins)
        below = list(accumulate([self._bins[number] for number in numbers]))
        last = self.count - 1
        return [middle_us(numbers[bisect_right(below, part * last)]) for part in quantiles]
