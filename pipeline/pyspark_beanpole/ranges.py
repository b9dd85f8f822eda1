"""Ranges of offsets that tasks read themselves, from an export's files or over gRPC.

This module describes sources of events as plain values that go into tasks, and finds the offset of
a time. Spark is in `inputs`; the callers process the events.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from beanpole.client.events import Events
from beanpole.client.rpc import PATIENCE_S
from beanpole.exporting.files import GROUP_ROWS, unreadable
from beanpole.exporting.kinds import check_columns
from beanpole.exports import FILE_ROWS_MAX, File
from beanpole.places import Place, resolved
from pyspark_beanpole.exports import THREADS, Opened, holding
from pyspark_beanpole.packing import rows_of
from pyspark_beanpole.statistics.chunks import REPEATED
from pyspark_beanpole.statistics.keys import MINUTE_US

# A task checks a file as a whole when it reads it, so in a large log it takes the whole file.
RANGE_ROWS_MAX: Final = FILE_ROWS_MAX
# A smaller task costs more than its work, because a row group is read as a whole.
RANGE_ROWS_MIN: Final = 65_536
# This many ranges keep the cores of a small machine busy to the end.
RANGES_WANTED: Final = 8
# The first put of a cluster's events is searched among this many.
PUT_ROWS_MAX: Final = 1 << 20
# How far a leader's clock may have been ahead: 32 years.
AHEAD_MAX_MIN: Final = 1 << 24


class Range(NamedTuple):
    """The events of one task: first <= offset < end."""

    first: int
    end: int


class Edges(NamedTuple):
    """The wall times of a log's beginning and end, in microseconds since 1970.

    The end is the latest time, or its minute: a clock that was ahead may have been set back since.
    """

    begin_us: int
    last_us: int


class Source(Protocol):
    """A source of events; its values are sent to tasks."""

    def ranges(self, first: int | None = None, end: int | None = None) -> list[Range]:
        """Split the existing events into ranges, in order; none is empty."""

    def read(self, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the events of a range in order; columns that they lack are left out."""

    def edges(self) -> Edges | None:
        """Return the wall times at which the log begins and ends; None without events.

        No event is at or after the minute that follows that of the end.
        """

    def offset_at(self, wall_us: int) -> int:
        """Return an offset before which all events are older than a wall time, or nearly so.

        Returns the end if all events are older.
        """

    def offset_at_time(self, time_us: int) -> int:
        """As `offset_at`, for cluster time."""


def split(first: int, end: int, step: int) -> Iterator[Range]:
    """Split [first, end) into steps from `first`; a rest below half a step joins the last range."""
    while first < end:
        stop = end if end - first < step + step // 2 else first + step
        yield Range(first, stop)
        first = stop


def step_of(rows: int) -> int:
    """Return the events per task of a log of `rows`: whole row groups, at most a whole file."""
    wanted = -(-rows // RANGES_WANTED)
    if wanted <= RANGE_ROWS_MIN:
        return RANGE_ROWS_MIN
    return min(-(-wanted // GROUP_ROWS) * GROUP_ROWS, RANGE_ROWS_MAX)


class Group(NamedTuple):
    """A row group's range of offsets, and the extremes in its metadata."""

    first: int
    end: int
    wall_us_min: int
    wall_us_max: int
    time_us_max: int


@dataclass(frozen=True)
class ExportSource:
    """The files of an export."""

    export: Opened

    def ranges(self, first: int | None = None, end: int | None = None) -> list[Range]:
        low = self.export.first if first is None else first
        high = self.export.end if end is None else end
        inside = [
            (max(file.first, low), min(file.end, high))
            for file in self.export.files
            if file.first < high and low < file.end
        ]
        step = step_of(sum(stop - begin for begin, stop in inside))
        # One task reads several small consecutive files.
        spans: list[tuple[int, int]] = []
        for begin, stop in inside:
            if spans and spans[-1][1] == begin and stop - spans[-1][0] <= step:
                spans[-1] = (spans[-1][0], stop)
            else:
                spans.append((begin, stop))
        return [part for begin, stop in spans for part in split(begin, stop, step)]

    def read(self, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self.export.read(first, end, columns=columns, texts=REPEATED, batch_rows=GROUP_ROWS)

    def edges(self) -> Edges | None:
        if not self.export.files:
            return None
        groups = self._groups
        return Edges(groups[0].wall_us_min, max(group.wall_us_max for group in groups))

    def offset_at(self, wall_us: int) -> int:
        for group in self._groups:
            if group.wall_us_max >= wall_us:
                return group.first
        return self.export.end

    def offset_at_time(self, time_us: int) -> int:
        for group in self._groups:
            if group.time_us_max >= time_us:
                return group.first
        return self.export.end

    def groups(self, first: int) -> list[Group]:
        """Return the row groups from that of an offset on."""
        return [group for group in self._groups if first < group.end]

    @cached_property
    def _groups(self) -> list[Group]:
        with ThreadPoolExecutor(THREADS) as threads:
            return [one for some in threads.map(self._groups_of, self.export.files) for one in some]

    def _groups_of(self, file: File) -> list[Group]:
        place = resolved(self.export.directory)
        try:
            return _groups(place, file)
        except FileNotFoundError:
            # A compaction has replaced it since; the extremes may be those of more events.
            there = [part for one in holding(place, *file[1:3]) for part in _groups(place, one)]
        inside = [part for part in there if part.first < file.end and file.first < part.end]
        return [
            part._replace(first=max(part.first, file.first), end=min(part.end, file.end))
            for part in inside
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the cache, which only the driver needs."""
        return {"export": self.export}


def _groups(place: Place, file: File) -> list[Group]:
    """Return the row groups of a file, of which only the end is read.

    Raises:
        FileNotFoundError: the file does not exist.
        BadExport: it cannot be read.
    """
    try:
        metadata = pq.read_metadata(place.at(file.name), filesystem=place.files)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise unreadable(place, file, error) from None
    check_columns(place, file, metadata)
    found: list[Group] = []
    first = file.first
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        wall, time_us = (_extremes(group, name) for name in ("wall_time", "time_us"))
        end = first + group.num_rows
        found.append(Group(first, end, wall[0], wall[1], time_us[1]))
        first = end
    return found


def _extremes(group: Any, name: str) -> tuple[int, int]:
    """Return the smallest and the largest number in a column of a row group; times in us."""
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == name and column.statistics is not None:
            values = pa.array([column.statistics.min, column.statistics.max])
            if pa.types.is_timestamp(values.type):
                values = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
            low, high = values.to_pylist()
            return low, high
    # Without statistics any value is possible.
    return 0, 2**63 - 1


@dataclass(frozen=True)
class ClusterSource:
    """The events [first, end) that nodes keep."""

    addresses: tuple[str, ...]
    first: int
    end: int
    patience_s: int = PATIENCE_S

    def ranges(self, first: int | None = None, end: int | None = None) -> list[Range]:
        low = self.first if first is None else max(first, self.first)
        high = self.end if end is None else min(end, self.end)
        return list(split(low, high, step_of(high - low)))

    def read(self, first: int, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        from pyspark_beanpole import planning, readers
        from pyspark_beanpole.options import of_nodes
        from pyspark_beanpole.schema import EVENTS, chosen

        options = of_nodes(self.addresses, self.patience_s)
        # Tasks begin at different nodes.
        turn = hash((first,)) % len(self.addresses)
        nodes = (*self.addresses[turn:], *self.addresses[:turn])
        known = [name for name in columns if name in EVENTS.names]
        return readers.batches(planning.Range(first, end, nodes), options, chosen(known))

    def edges(self) -> Edges | None:
        if self.first >= self.end:
            return None
        walls = []
        # Not by `read`: `beanpole pipeline job` asks for these where PySpark is not installed.
        with Events(self.addresses, self.patience_s) as nodes:
            for offset in (self.first, self.end - 1):
                [batch] = map(rows_of, nodes.read(offset, offset + 1))
                walls.append(batch.column("wall_time").cast(pa.int64())[0].as_py())
            # The clock of the first event may have been further ahead than the search below goes.
            last_us = max(walls)
            return Edges(walls[0], max(last_us, self._latest_min(nodes, last_us) * MINUTE_US))

    def _latest_min(self, nodes: Events, last_us: int) -> int:
        """Return the latest minute with an event; `last_us` is the time of one of them."""

        def is_over(minute: int) -> bool:
            return self._at(nodes, minute * MINUTE_US) >= self.end

        latest, step = last_us // MINUTE_US, 1
        while not is_over(latest + step):
            latest, step = latest + step, 2 * step
            if step > AHEAD_MAX_MIN:
                return last_us // MINUTE_US  # nodes that answer now lack the last events
        return latest + bisect_left(range(latest + 1, latest + step), True, key=is_over)

    def offset_at(self, wall_us: int) -> int:
        with Events(self.addresses, self.patience_s) as nodes:
            return self._at(nodes, wall_us)

    def _at(self, nodes: Events, wall_us: int) -> int:
        found = nodes.whole(self.end, wall_us).at_wall
        return min(max(found, self.first), self.end)

    def offset_at_time(self, time_us: int) -> int:
        # Cluster time never goes back, so a binary search needs some twenty events.
        return bisect_left(range(self.end), time_us, lo=self.first, hi=self.end, key=self._time_us)

    def _time_us(self, offset: int) -> int:
        [batch] = self.read(offset, offset + 1, ("time_us",))
        found: int = batch.column("time_us")[0].as_py()
        return found


def put_from(source: Source) -> int | None:
    """Return the id of the first job that was put; 0 if the log begins with offset 0.

    Returns None if there is no put among the first PUT_ROWS_MAX events.
    """
    looked = 0
    for part in source.ranges():
        if part.first == 0:
            return 0
        for batch in source.read(part.first, part.end, ("offset", "event", "job_id")):
            puts = batch.filter(pa.compute.equal(batch.column("event").cast(pa.string()), "put"))
            if puts.num_rows:
                found: int = puts.column("job_id")[0].as_py()
                return found
            looked += batch.num_rows
            if looked >= PUT_ROWS_MAX:
                return None
    return None


def first_at(source: Source, wall_us: int) -> int:
    """Return the offset of the first event at or after a wall time; the end without such an event.

    A wall clock may be set back: events after that one may be older.
    """
    found = source.offset_at(wall_us)
    for part in source.ranges(found):
        for batch in source.read(part.first, part.end, ("offset", "wall_time")):
            walls = batch.column("wall_time").cast(pa.int64())
            later = pa.compute.index(pa.compute.greater_equal(walls, wall_us), True).as_py()
            if later >= 0:
                offset: int = batch.column("offset")[later].as_py()
                return offset
            found = batch.column("offset")[-1].as_py() + 1
    return found
