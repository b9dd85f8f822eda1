"""Daily statistics of queues: times that jobs waited and ran, and counts of failures."""

from math import floor
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import config
from beanpole.core.qless.tables import (
    FIRST_DAY,
    FIRST_HOUR,
    FIRST_MINUTE,
    Day,
    QlessQueue,
    Tables,
    Times,
)

MINUTE: Final = 60
HOUR: Final = 3600
DAY: Final = 86_400
# Days that take about as long to free as a job, some 8 us: a day has up to 300 bars.
DAYS_A_JOB: Final = 4


def note_wait(t: Tables, queue: QlessQueue, now: float, seconds: float) -> None:
    """Record the time that a popped job has waited."""
    _note(_day(t, queue, now).wait, seconds)


def note_run(t: Tables, queue: QlessQueue, now: float, seconds: float) -> None:
    """Record the time that a completed job has run."""
    _note(_day(t, queue, now).run, seconds)


def bump(
    t: Tables, queue: QlessQueue, now: float, retries: int = 0, failed: int = 0, failures: int = 0
) -> None:
    """Count on the day of `now`: lost locks, failed jobs, failures."""
    day = _day(t, queue, now)
    day.retries += retries
    day.failed += failed
    day.failures += failures


def stats(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """STATS: return the statistics of a queue on one day."""
    name, date = args
    queue = t.queues.get(name)
    day = None if queue is None else queue.days.get(first_second(date))
    if day is None:
        day = Day()
    view = q.StatsView(day.retries, day.failed, day.failures, _view(day.wait), _view(day.run))
    return q.OK, view


def first_second(now: float) -> int:
    """Return the first second of the day of a time."""
    return floor(now / DAY) * DAY


def place_in_histogram(seconds: float) -> int | None:
    """Return the bin of a wait or a run; None if it is below 0, or a week or more."""
    if not 0 <= seconds < 7 * DAY:
        return None
    whole = int(seconds)
    if whole < MINUTE:
        return whole
    if whole < HOUR:
        return FIRST_MINUTE + whole // MINUTE - 1
    if whole < DAY:
        return FIRST_HOUR + whole // HOUR - 1
    return FIRST_DAY + whole // DAY - 1


def _note(times: Times, seconds: float) -> None:
    times.count += 1
    if times.count == 1:
        times.mean = seconds
        times.vk = 0.0
    else:
        mean = times.mean
        times.mean = mean + (seconds - mean) / times.count
        times.vk += (seconds - times.mean) * (seconds - mean)
    place = place_in_histogram(seconds)
    if place is not None:
        times.bins[place] = times.bins.get(place, 0) + 1


def _day(t: Tables, queue: QlessQueue, now: float) -> Day:
    """Return the day of a time, to be changed.

    A new day replaces the oldest when there are too many; a day that is older than all of these is
    not stored.
    """
    t.keep_queue(queue)
    days = queue.days
    begin = first_second(now)
    day = days.get(begin)
    if day is None:
        wanted = config.number(t, b"stats-history", float(q.STATS_DAYS_MAX))
        kept = int(min(max(wanted, 1.0), float(q.STATS_DAYS_MAX)))
        day = Day(t.images_total)
        if len(days) >= kept and begin < min(days):
            return day
        while len(days) >= kept:
            del days[min(days)]
        days[begin] = day
    elif t.images and day.images < t.images_total:
        day = days[begin] = day.copied(t.images_total)  # an image may have the other one
    return day


def _view(times: Times) -> q.TimesView:
    bins = tuple([times.bins.get(place, 0) for place in range(q.HISTOGRAM_BINS)])
    return q.TimesView(times.count, times.mean, times.vk, bins)
