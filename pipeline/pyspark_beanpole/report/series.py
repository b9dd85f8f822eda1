"""What happened over time in few enough points to draw: the most, or the sum, of each step.

Pure arithmetic on columns (NumPy); a step is some whole minutes.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from pyspark_beanpole.report.period import Period
from pyspark_beanpole.statistics.keys import MINUTE_US, SECOND_US

# The widest chart is about this many pixels wide: more points would not be seen.
POINTS_MAX: Final = 400
# How much time a point may stand for, in minutes: what people count in.
STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080, 43_200)

Numbers = Any  # NumPy's arrays; their types say nothing more that helps here


class Steps(NamedTuple):
    """The time axis of all charts of a report."""

    first_min: int  # where the first step begins, counted from 1970; a multiple of `step_min`
    number: int
    step_min: int

    @property
    def minutes(self) -> Numbers:
        """Where each step begins."""
        return self.first_min + self.step_min * np.arange(self.number)

    @property
    def words(self) -> str:
        """How long a step is, as after `in each`."""
        if self.step_min < 60:
            return "minute" if self.step_min == 1 else f"{self.step_min} minutes"
        hours = self.step_min // 60
        if hours < 24:
            return "hour" if hours == 1 else f"{hours} hours"
        return "day" if hours == 24 else f"{hours // 24} days"


def steps_of(period: Period) -> Steps:
    """Return the steps that cover a period."""
    first, end = period.since_us // MINUTE_US, -(-period.until_us // MINUTE_US)
    step = next((step for step in STEPS_MIN if (end - first) <= POINTS_MAX * step), STEPS_MIN[-1])
    begin = first // step
    return Steps(begin * step, -(-end // step) - begin, step)


def most(steps: Steps, begin_min: Numbers, end_min: Numbers, values: Numbers) -> Numbers:
    """Return the greatest value of each step, 0 where there is none.

    Args:
        steps: the time axis.
        begin_min: the minute from which on each value holds.
        end_min: the minute until which it holds, exclusive.
        values: none of them negative.
    """
    found = np.zeros(steps.number, values.dtype)
    first = (np.asarray(begin_min) - steps.first_min) // steps.step_min
    last = (np.asarray(end_min) - 1 - steps.first_min) // steps.step_min
    inside = (last >= 0) & (first < steps.number) & (last >= first)
    first, last = np.maximum(first[inside], 0), np.minimum(last[inside], steps.number - 1)
    values = values[inside]
    np.maximum.at(found, first, values)
    # Most values hold within one step; the others are laid over their steps one by one.
    longer = last > first
    for begin, end, value in zip(first[longer], last[longer], values[longer], strict=True):
        np.maximum(found[begin : end + 1], value, out=found[begin : end + 1])
    return found


def summed(steps: Steps, minutes: Numbers, values: Numbers) -> Numbers:
    """Return the sum of the values of each step."""
    place = (np.asarray(minutes) - steps.first_min) // steps.step_min
    inside = (place >= 0) & (place < steps.number)
    return np.bincount(place[inside], weights=values[inside], minlength=steps.number)


def ages(steps: Steps, begin_min: Numbers, end_min: Numbers, ready_since_us: Numbers) -> Numbers:
    """Return the greatest age in seconds, in each step, of jobs that are the oldest for a while.

    The age is that at the last full minute of the step at which the job was the oldest.

    Args:
        steps: the time axis.
        begin_min: the full minute from which on each job is the oldest.
        end_min: the full minute until which it is, exclusive.
        ready_since_us: since when it is ready.
    """
    axis_end = steps.first_min + steps.step_min * steps.number
    low = np.maximum(begin_min, steps.first_min)
    high = np.minimum(end_min, axis_end)
    since_us = np.asarray(ready_since_us)
    inside = low < high
    low, high, since_us = low[inside], high[inside], since_us[inside]
    first = (low - steps.first_min) // steps.step_min
    last = (high - 1 - steps.first_min) // steps.step_min
    found = np.zeros(steps.number)
    # In its last step each is the oldest until its end, in those before until theirs.
    np.maximum.at(found, last, ((high - 1) * MINUTE_US - since_us) / SECOND_US)
    longer = last > first
    for begin, end, since in zip(first[longer], last[longer], since_us[longer], strict=True):
        places = np.arange(begin, end)
        seen = steps.first_min + (places + 1) * steps.step_min - 1
        found[begin:end] = np.maximum(found[begin:end], (seen * MINUTE_US - since) / SECOND_US)
    return found
