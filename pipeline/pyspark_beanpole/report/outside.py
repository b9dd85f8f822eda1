"""Find events whose time lies in a period that has ended before them, by a clock that was set back.

A period ends before the first event at or after its end. Where that event's clock was ahead, all
later ones are outside of the period, whatever their times: the report has to say so. Plain values,
no Spark.
"""

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyspark_beanpole.report.figures import Outside
from pyspark_beanpole.report.period import Period
from pyspark_beanpole.statistics.chunks import column_ints

if TYPE_CHECKING:
    from pyspark_beanpole.ranges import Source

# Above this number of events a sample is read: to read all of these takes nodes a second or two.
LOOKED_MAX: Final = 1 << 19


def outside(source: "Source", period: Period, cut: int) -> Outside:
    """Count the events from the offset `cut`, the end of a period, on that have a time in it.

    Of a large log without metadata, that of nodes, this reads a sample: events at distances from
    the cut that double, because a clock that was ahead is set back soon rather than late, and the
    last one.
    """
    sure, parts = _likely(source, period, cut)
    rows = sum(end - first for first, end in parts)
    if rows <= LOOKED_MAX:
        return Outside(sure + sum(_count(source, period, *part) for part in parts))
    end = parts[-1][1]
    samples = {end - 1, *(cut + (1 << step) - 1 for step in range((end - cut).bit_length()))}
    found = sure + sum(
        _count(source, period, offset, offset + 1)
        for offset in sorted(samples)
        if any(first <= offset < stop for first, stop in parts)
    )
    return Outside(found, is_least=True)


def _likely(source: "Source", period: Period, cut: int) -> tuple[int, list[tuple[int, int]]]:
    """Return how many events are known to be such, and the ranges of those that may be."""
    from pyspark_beanpole.ranges import ExportSource

    if not isinstance(source, ExportSource):
        return 0, [(part.first, part.end) for part in source.ranges(cut)]
    sure, parts = 0, []
    for group in source.groups(cut):
        low_us, high_us = group.wall_us_min, group.wall_us_max
        if group.first >= cut and period.since_us <= low_us and high_us < period.until_us:
            sure += group.end - group.first
        elif low_us < period.until_us and period.since_us <= high_us:
            parts.append((max(group.first, cut), group.end))
    return sure, parts


def _count(source: "Source", period: Period, first: int, end: int) -> int:
    found = 0
    for batch in source.read(first, end, ("offset", "wall_time")):
        wall_us = column_ints(batch.column("wall_time").cast(pa.int64()))
        found += int(((period.since_us <= wall_us) & (wall_us < period.until_us)).sum())
    return found
