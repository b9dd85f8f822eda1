"""Axes: map values to the range 0 to 1, and choose the values of the ticks."""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

# Familiar durations, in seconds.
# fmt: off
DURATIONS: Final = (
    (1e-6, "1 µs"), (1e-5, "10 µs"), (1e-4, "100 µs"), (1e-3, "1 ms"), (0.01, "10 ms"),
    (0.1, "100 ms"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"),
    (21_600, "6 h"), (86_400, "1 d"), (604_800, "7 d"), (2_592_000, "30 d"),
)
# fmt: on
# Steps between two written times, in minutes.
_TIME_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080, 43_200)

# A logarithmic axis of counts below this would have no useful ticks.
LINEAR_MAX: Final = 20
# The bottom of a logarithmic axis of counts, so that a bar of 1 is visible.
COUNTS_LOW: Final = 0.6
_COUNTS_GROUND: Final = math.log10(COUNTS_LOW)


class Scale(NamedTuple):
    """An axis: `place` maps its beginning to 0 and its end to 1; ticks are (value, words)."""

    place: Callable[[float], float]
    ticks: Sequence[tuple[float, str]]


def short(value: float) -> str:
    """Format a number in about five characters."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def duration(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms")):
        if seconds >= size:
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{seconds * 1e6:.0f} µs" if seconds > 0 else "0 s"


def percent(share: float) -> str:
    """Format a share in percent; only exact values are shown as nothing or as all."""
    if share <= 0:
        return "0 %"
    if share < 0.0001:
        return "< 0.01 %"
    if share >= 1:
        return f"{share * 100:.0f} %"
    return f"{min(share * 100, 99.99):.3g} %" if share < 0.9 else f"{min(share * 100, 99.99):.2f} %"


def _round_up(value: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 5, 10) if factor * power >= value * 0.999)


def from_zero(high: float, whole: bool = False) -> Scale:
    """Return a linear axis from 0 to the next round number; `whole` restricts ticks to integers."""
    top = _round_up(high) if high > 0 else 1.0
    parts = 5 if str(top).lstrip("0.")[0] in "15" else 4
    if whole and top < parts:
        parts = max(round(top), 1)
    values = [top * part / parts for part in range(parts + 1)]
    return Scale(lambda value: value / top, [(value, short(value)) for value in values])


def durations_from_zero(high_s: float) -> Scale:
    """Return a linear axis of seconds, in a unit that suits its end; up to 1 s if all are 0."""
    high_s = high_s or 1.0
    unit_s, unit = next(
        found
        for found in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"))
        if high_s >= found[0] or found[1] == "ms"
    )
    scale = from_zero(high_s / unit_s)
    return Scale(
        lambda seconds: scale.place(seconds / unit_s),
        [(value * unit_s, f"{short(value)} {unit}") for value, _ in scale.ticks],
    )


def times(first: float, last: float, ticks_max: int) -> Scale:
    """Return an axis of minutes since 1970, in UTC, with at most about `ticks_max` ticks."""
    length = max(last - first, 1)
    step = next((step for step in _TIME_STEPS if length / step <= ticks_max), _TIME_STEPS[-1])
    start = -(-first // step) * step
    ticks = []
    for number in range(int((last - start) // step) + 1):
        minute = start + number * step
        shown = datetime.fromtimestamp(minute * 60, UTC)
        midnight = shown.hour == 0 and shown.minute == 0
        ticks.append((minute, f"{shown:%-d %b}" if midnight else f"{shown:%H:%M}"))
    return Scale(lambda minute: (minute - first) / length, ticks)


def counts(high: float) -> Scale:
    """Return an axis for numbers of any size: linear up to LINEAR_MAX, else logarithmic.

    On a logarithmic axis 1 is a little above the bottom, and 0 is at the bottom.
    """
    if high <= LINEAR_MAX:
        return from_zero(high, whole=True)
    top = max(math.ceil(math.log10(max(high, 1.0)) - 1e-9), 1)
    every = max(1, -(-top // 5))
    return Scale(
        lambda value: (
            (math.log10(max(value, COUNTS_LOW)) - _COUNTS_GROUND) / (top - _COUNTS_GROUND)
        ),
        [(10.0**power, short(10.0**power)) for power in range(0, top + 1, every)],
    )


def log_durations(low_s: float, high_s: float) -> Scale:
    """Return a logarithmic axis of seconds that covers at least `low_s` to `high_s`."""
    low = max([size for size, _ in DURATIONS if size <= low_s], default=DURATIONS[0][0])
    high = min([size for size, _ in DURATIONS if size >= high_s], default=high_s)
    high = max(high, 10 * low)
    bottom, width = math.log10(low), math.log10(high / low)
    return Scale(
        lambda seconds: (math.log10(max(seconds, low)) - bottom) / width,
        [(size, words) for size, words in DURATIONS if low <= size <= high],
    )
