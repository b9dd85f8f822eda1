"""Sample time series for drawing: the maximum, or the sum, of each step of whole minutes.

Pure arithmetic on columns (NumPy).
"""

from typing import Any, Final, NamedTuple

import numpy as np

from pyspark_beanpole.report.period import Period
from pyspark_beanpole.statistics.keys import MINUTE_US, SECOND_US

# The widest chart has about this many pixels, so more points would not be visible.
POINTS_MAX: Final = 400
# The allowed lengths of a step, in minutes: customary units.
STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080, 43_200)

Numbers = Any  # NumPy arrays; a more precise type would not help here


class Steps(NamedTuple):
    """The time axis of all charts of a report."""

    first_min: int  # the beginning of the first step, counted from 1970; a multiple of `step_min`
    number: int
    step_min: int

    @property
    def minutes(self) -> Numbers:
        """The beginning of each step."""
        return self.first_min + self.step_min * np.arange(self.number)

    @property
    def words(self) -> str:
        """The length of a step, worded to follow `in each`."""
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
    """Return the greatest value of each step, 0 for a step without values.

    Args:
        steps: the time axis.
        begin_min: the first minute at which each value holds.
        end_min: the end of its validity, exclusive.
        values: non-negative numbers.
    """
    found = np.zeros(steps.number, values.dtype)
    first = (np.asarray(begin_min) - steps.first_min) // steps.step_min
    last = (np.asarray(end_min) - 1 - steps.first_min) // steps.step_min
    inside = (last >= 0) & (first < steps.number) & (last >= first)
    first, last = np.maximum(first[inside], 0), np.minimum(last[inside], steps.number - 1)
    values = values[inside]
    np.maximum.at(found, first, values)
    # Most values hold within one step; each of the others is applied to all of its steps.
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
        begin_min: the first full minute at which each job is the oldest.
        end_min: the end of that time, exclusive.
        ready_since_us: the time at which it became ready.
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
    # A job's age counts at its last minute in its last step, and at the end of each earlier step.
    np.maximum.at(found, last, ((high - 1) * MINUTE_US - since_us) / SECOND_US)
    longer = last > first
    for begin, end, since in zip(first[longer], last[longer], since_us[longer], strict=True):
        places = np.arange(begin, end)
        seen = steps.first_min + (places + 1) * steps.step_min - 1
        found[begin:end] = np.maximum(found[begin:end], (seen * MINUTE_US - since) / SECOND_US)
    return found
