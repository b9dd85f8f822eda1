"""Split events by time during reduction: the period of a report, the one before, and the rest.

A range of offsets is reduced to tables whose names carry their window; ranges are merged in any
order. Pure, without Spark or pages. The windows are ranges of offsets, found once for all ranges:
a window ends before the first event at or after its end. After a wall clock was set back, later
events are not in an earlier window, wherever the ranges end.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_beanpole.report.period import Period
from pyspark_beanpole.report.series import STEPS_MIN
from pyspark_beanpole.statistics import parts
from pyspark_beanpole.statistics.bins import bin_middles, bins_of
from pyspark_beanpole.statistics.chunks import column_ints
from pyspark_beanpole.statistics.grouping import Shape, folded, grouped, ints
from pyspark_beanpole.statistics.keys import MINUTE_US, SECOND_US, Limits, Parts

if TYPE_CHECKING:
    from pyspark_beanpole.ranges import Source

# About this many stretches are shown: each needs enough waits for percentiles.
STRETCHES: Final = 48
_WAITS: Final = pa.schema([(name, pa.int64()) for name in ("begin_us", "bin", "count")])
_WAITS_SHAPE: Final = Shape(("begin_us", "bin"), ("count",))
_EARLIER, _BEFORE, _NOW = "earlier", "before", "now"
# Separates a window's name from a table's.
_SLASH: Final = "/"


class Cuts(NamedTuple):
    """The offsets at which the windows end: of the first event at or after each end."""

    earlier: int
    before: int
    now: int


class Windows(NamedTuple):
    """The reduced log up to the end of a period, in disjoint parts."""

    earlier: Parts  # before both periods
    before: Parts
    now: Parts
    # The number of waits in the period: begin_us of the stretch of time, bin, count.
    waits: pa.Table

    @property
    def log(self) -> Parts:
        """The parts of all windows, merged."""
        return parts.merged([self.earlier, self.before, self.now])


def stretch_us(period: Period) -> int:
    """Return the length of the stretches of time for which percentiles are shown."""
    minutes = period.length_us / MINUTE_US
    step = next((step for step in STEPS_MIN if minutes <= step * STRETCHES), STEPS_MIN[-1])
    return step * MINUTE_US


def cuts_of(source: "Source", period: Period) -> Cuts:
    """Find the ends of the windows in a log."""
    from pyspark_beanpole.ranges import first_at

    ends_us = (period.before.since_us, period.since_us, period.until_us)
    return Cuts(*(first_at(source, end_us) for end_us in ends_us))


def reduced(
    batches: Iterable[pa.RecordBatch],
    period: Period,
    limits: Limits,
    cuts: Cuts,
    *,
    tubes: Collection[str] | None = None,
    put_from: int | None = None,
) -> dict[str, pa.Table]:
    """Reduce one range of offsets; events after the period are left out.

    Args:
        batches: all events of the range in order, as for `parts.reduced`.
        period: the period of the report.
        limits: the service level.
        cuts: the ends of the windows.
        tubes: as for `parts.reduced`.
        put_from: as for `parts.reduced`.
    """
    cutter = _Cutter(batches)
    waits: list[pa.Table] = []
    step_us = stretch_us(period)

    def counted() -> Iterator[pa.RecordBatch]:
        for batch in cutter.until(cuts.now):
            waits.append(_waits(batch, period, step_us, tubes))
            yield batch

    windows = {
        _EARLIER: cutter.until(cuts.earlier),
        _BEFORE: cutter.until(cuts.before),
        _NOW: counted(),
    }
    found: dict[str, pa.Table] = {}
    for window, some in windows.items():
        kept = parts.reduced(some, limits, tubes=tubes, put_from=put_from)
        found |= {f"{window}{_SLASH}{name}": table for name, table in kept.items()}
    return {**found, "waits": _added(waits)}


def merged(ranges: Sequence[Mapping[str, pa.Table]]) -> Windows:
    """Merge the tables of ranges that do not overlap, in any order."""
    windows = []
    for window in (_EARLIER, _BEFORE, _NOW):
        prefix = f"{window}{_SLASH}"
        some = [
            {
                name.removeprefix(prefix): table
                for name, table in one.items()
                if name.startswith(prefix)
            }
            for one in ranges
        ]
        windows.append(parts.merged(some))
    earlier, before, now = windows
    return Windows(earlier, before, now, _added([one["waits"] for one in ranges]))


class _Cutter:
    """Cuts ordered batches at offsets."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self._rest: pa.RecordBatch | None = None

    def until(self, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the events before an offset in batches; keep the rest for the next one."""
        while True:
            batch = self._rest if self._rest is not None else next(self._batches, None)
            self._rest = None
            if batch is None:
                return
            place = int(np.searchsorted(ints(batch, "offset"), end))
            if place:
                yield batch.slice(0, place)
            if place < batch.num_rows:
                self._rest = batch.slice(place)
                return


def _waits(
    batch: pa.RecordBatch, period: Period, step_us: int, tubes: Collection[str] | None
) -> pa.Table:
    """Count waits by stretch of time and bin; waits below 0, by clocks of qless, do not count."""
    rows = np.flatnonzero(column_ints(batch.column("wait_us")) >= 0)
    waited = batch.take(pa.array(rows))
    # After a wall clock was set back an event of the period may have an earlier time.
    wall_us = np.clip(ints(waited, "wall_time"), period.since_us, period.until_us - 1)
    begin_us = wall_us // step_us * step_us
    if tubes is not None:
        tube = pa.compute.is_in(waited.column("tube"), pa.array(list(tubes), pa.string()))
        keep = tube.to_numpy(zero_copy_only=False)
        waited, begin_us = waited.filter(tube), begin_us[keep]
    bins = bins_of(ints(waited, "wait_us"))
    groups = grouped(begin_us, bins)
    first = groups.firsts
    counts = np.bincount(groups.of, minlength=len(first))
    return pa.table([begin_us[first], bins[first], counts], schema=_WAITS)


def _added(tables: Sequence[pa.Table]) -> pa.Table:
    table = pa.concat_tables([_WAITS.empty_table(), *tables]).combine_chunks()
    found = folded(table, _WAITS_SHAPE)
    return found.sort_by([("begin_us", "ascending"), ("bin", "ascending")])


def percentiles(waits: pa.Table, period: Period) -> list[dict[str, float]]:
    """Return begin_us, until_us (within the period), p50_s and p99_s of each stretch with waits."""
    begin_us, bins, count = (ints(waits, name) for name in _WAITS.names)
    step_us = stretch_us(period)
    found = []
    for begin in np.unique(begin_us).tolist():
        there = begin_us == begin
        sums = np.cumsum(count[there])
        middle_us = bin_middles(bins[there])
        ranks = (-(-int(sums[-1]) * percent // 100) for percent in (50, 99))
        p50_s, p99_s = (float(middle_us[np.searchsorted(sums, rank)]) / SECOND_US for rank in ranks)
        found.append(
            {
                "begin_us": max(begin, period.since_us),
                "until_us": min(begin + step_us, period.until_us),
                "p50_s": p50_s,
                "p99_s": p99_s,
            }
        )
    return found
