"""Choose the part of a log that a report reads: all up to its period's end, or less of a long log.

The events before both periods show how many jobs there were, which is the oldest, and which are
buried. In a long export the number of jobs is known from the metadata of its files, and those
events are skipped. Plain values, no Spark.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from pyspark_beanpole.report.period import Period
from pyspark_beanpole.statistics.counts import LONG, TEXT
from pyspark_beanpole.statistics.keys import STATES

if TYPE_CHECKING:
    from pyspark_beanpole.exports import Opened
    from pyspark_beanpole.ranges import Source

# Two cores read this many earlier events in some ten seconds; more are skipped.
EARLIER_ROWS_MAX: Final = 5_000_000
# Neither files nor manifest count the jobs that keep a result, so that state has no column.
_STARTS: Final = pa.schema([("tube", TEXT), *[(state, LONG) for state in STATES]])


class Part(NamedTuple):
    """The events first <= offset < end; None: from the beginning, or to the end."""

    first: int | None = None
    end: int | None = None
    # Jobs before `first` (tube, STATES...), if the events before it are skipped.
    start: pa.Table | None = None


def part_of(source: "Source", period: Period, tubes: Collection[str] = ()) -> Part:
    """Return the part of a log that a report of a period reads.

    Args:
        source: the source of the events.
        period: of the report; the previous one is read as well.
        tubes: as for `parts.reduced`; empty for all.
    """
    from pyspark_beanpole.ranges import ExportSource

    end = source.offset_at(period.until_us)
    if not isinstance(source, ExportSource):
        return Part(None, end)
    export = source.export
    # The period ends within the file that has this offset, which is read to its end.
    end = next((file.end for file in export.files if end < file.end), export.end)
    wanted = source.offset_at(period.before.since_us)
    first = max((file.first for file in export.files if file.first <= wanted), default=export.first)
    if first - export.first <= EARLIER_ROWS_MAX or export.missing:
        return Part(None, end)
    start = _start(export, first, tubes)
    return Part(None, end) if start is None else Part(first, end, start)


def _start(export: "Opened", first: int, tubes: Collection[str]) -> pa.Table | None:
    """Return the number of jobs before an offset; None if the files lack this metadata."""
    changes = export.changes(first)
    if changes is None:
        return None
    rows = [
        {"tube": tube, **dict.fromkeys(STATES, 0), **by_state}
        for tube, by_state in changes.items()
        if not tubes or tube in tubes
    ]
    if not tubes and any(export.jobs_before.values()):
        # Only the number of these jobs is known, not their tubes.
        before = {state: export.jobs_before.get(state, 0) for state in STATES}
        rows.append({"tube": None, **before})
    return pa.Table.from_pylist(rows, _STARTS)
