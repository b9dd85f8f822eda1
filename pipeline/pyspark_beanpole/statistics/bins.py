"""The bins and slots of durations: integer arithmetic, the same in every run.

The width of a bin is 1/64 of its durations, and 1 us below 128 us: its middle is within 0.8 % of
what it counts. A slot is one of qless's 148: seconds 0 to 59, minutes 1 to 59, hours 1 to 23, days
1 to 6; seven days and more are counted in slots beyond (d7, d8, ...).
"""

from typing import Final

import numpy as np

from pyspark_beanpole.statistics.grouping import Ints
from pyspark_beanpole.statistics.keys import SECOND_US

# 64 bins for each power of two.
_STEP_BITS: Final = 6
_EXACT: Final = 1 << (_STEP_BITS + 1)
# A 64-bit float has 52 fraction bits; the highest of them, with the exponent above, number the
# bins.
_FLOAT_BITS: Final = 52
_FLOAT_BIAS: Final = 1023
_ZERO: Final = ((_FLOAT_BIAS + _STEP_BITS + 1) << _STEP_BITS) - _EXACT
# Longer durations than 2**53 us (285 years) count as this: a float holds integers up to there.
DURATION_MAX_US: Final = (1 << 53) - 1

# (letter, length in seconds, slot of number 0), the widest first: slot 59 + 1 is one minute, slot
# 118 + 1 one hour, slot 141 + 1 one day.
UNITS: Final[tuple[tuple[str, int, int], ...]] = (
    ("d", 86_400, 141),
    ("h", 3600, 118),
    ("m", 60, 59),
    ("s", 1, 0),
)
SLOTS: Final = 148


def bins_of(duration_us: Ints) -> Ints:
    """Return the bin of each duration; negative durations count as 0."""
    whole = np.clip(duration_us, 0, DURATION_MAX_US)
    upper = whole.astype(np.float64).view(np.int64) >> (_FLOAT_BITS - _STEP_BITS)
    return np.where(whole < _EXACT, whole, upper - _ZERO)


def bin_edges(bins: Ints) -> tuple[Ints, Ints]:
    """Return (from_us, width_us) of bins, which count durations `from <= d < from + width`."""
    above = np.maximum(bins - _EXACT, 0)
    power = above >> _STEP_BITS
    from_us = (_EXACT // 2 + (above & ((1 << _STEP_BITS) - 1))) << (power + 1)
    small = bins < _EXACT
    return np.where(small, bins, from_us), np.where(small, 1, np.int64(2) << power)


def bin_middles(bins: Ints) -> Ints:
    """Return the duration in us that represents each bin."""
    from_us, width_us = bin_edges(bins)
    return from_us + width_us // 2


def slots_of(duration_us: Ints) -> Ints:
    """Return the slot of each duration; negative durations count as 0.

    The slots of a table then have as many durations as its bins. `pyspark_beanpole.qless` leaves
    negative ones out, as the reply of `stats` does.
    """
    seconds = np.maximum(duration_us, 0) // SECOND_US
    found = seconds
    for _, unit_s, zero in reversed(UNITS[:-1]):
        found = np.where(seconds >= unit_s, seconds // unit_s + zero, found)
    return found


def place(number: int) -> tuple[str, int, int]:
    """Return (label, first second, width in seconds) of a slot; `number` is not negative."""
    letter, unit_s, zero = next(unit for unit in UNITS if number > unit[2] or unit[1] == 1)
    return f"{letter}{number - zero}", (number - zero) * unit_s, unit_s
