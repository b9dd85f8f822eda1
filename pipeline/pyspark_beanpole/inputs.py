"""The input of a command: the events of a cluster, or of a directory that was exported from one.

Both have the same columns, and the cluster's own counts for the range of offsets they cover.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanpole.client.events import Events
from beanpole.client.rpc import PATIENCE_S
from beanpole.places import resolved
from pyspark_beanpole.exports import Opened, opened
from pyspark_beanpole.packing import packed, unpacked
from pyspark_beanpole.planning import warn_of_silent
from pyspark_beanpole.ranges import (
    ClusterSource,
    ExportSource,
    Range,
    Source,
    put_from,
)
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics import answers
from pyspark_beanpole.statistics.chunks import COLUMNS
from pyspark_beanpole.statistics.keys import MINUTE_US, Parts
from pyspark_beanpole.statistics.parts import merged, reduced, with_looked
from pyspark_beanpole.statistics.reigns import LOOK_COLUMNS, looked

# Files that one task checks: at 50 MB each, some seconds over a network.
VERIFY_FILES: Final = 8
# A second look at this many events finishes before Spark has begun a job.
LOOK_HERE_ROWS_MAX: Final = 1 << 18

# Makes tables, by name, from the events of a range.
Reducer = Callable[[Iterator[pa.RecordBatch]], Mapping[str, pa.Table]]
_NAMES: Final = ("range", "name", "part")
_REDUCED: Final = "range long, name string, part binary"


@dataclass(frozen=True)
class Input:
    """Events of a cluster."""

    spark: SparkSession
    # The source that tasks read directly.
    source: Source
    # Makes `events`; only the readers of that property pay for it.
    load: Callable[[], DataFrame]
    cluster: str
    # The ranges of offsets, each first <= offset < end, in order, with gaps between them.
    spans: Sequence[tuple[int, int]]
    # The number of jobs by state before the first event, and after the last one (None if that is
    # not known).
    jobs_before: Mapping[str, int]
    jobs: Mapping[str, int] | None
    # Missing ranges, each first <= offset < end, in order: holes between the spans, and files that
    # were passed over.
    missing: Sequence[tuple[int, int]] = ()

    @cached_property
    def events(self) -> DataFrame:
        """The events, with the columns of docs/pipeline.md."""
        return self.load()

    @property
    def first(self) -> int:
        """The first offset; 0 without events."""
        return self.spans[0][0] if self.spans else 0

    @property
    def end(self) -> int:
        """The offset after the last event; 0 without events."""
        return self.spans[-1][1] if self.spans else 0

    def reduce(
        self,
        reducer: Reducer,
        first: int | None = None,
        end: int | None = None,
        columns: Sequence[str] = COLUMNS,
    ) -> list[dict[str, pa.Table]]:
        """Reduce the events in one Spark job: each task reads a range of offsets itself.

        Args:
            reducer: makes small tables from the events of a range, which come in order. It is a
                function of a module, or `functools.partial` of one, because it is pickled by name.
            first: the first offset; None for that of the log.
            end: the offset after the last event; None for all.
            columns: the columns that the reducer needs, with `offset`; older events may lack some.

        Returns:
            The tables of each range, in the order of offsets; empty without events.
        """
        ranges = self.source.ranges(first, end)
        if not ranges:
            return []
        task = _Task(self.source, reducer, tuple(ranges), tuple(columns))
        numbers = self.spark.range(0, len(ranges), 1, len(ranges))
        found: list[dict[str, pa.Table]] = [{} for _ in ranges]
        rows = numbers.mapInArrow(task, _REDUCED).toArrow()
        for number, name, part in zip(*(rows[name] for name in rows.column_names), strict=True):
            found[number.as_py()][name.as_py()] = unpacked(part.as_buffer())
        return found

    def statistics(self, tubes: Collection[str] | None = None) -> Parts:
        """Return the partial statistics of all events, or of those of some tubes.

        `statistics.answers.finished` turns them into tables.
        """
        reducer = partial(reduced, tubes=tubes, put_from=put_from(self.source))
        return self.with_oldest(merged(self.reduce(reducer)))

    def with_oldest(self, parts: Parts) -> Parts:
        """Take the second look that `oldest` needs, at the jobs of one minute in each tube.

        Args:
            parts: statistics of any contiguous part of the log.
        """
        cells = answers.unresolved(parts)
        if not cells.num_rows:
            return parts
        spans = parts["covered"]
        low, end = min(spans["first"].to_pylist()), max(spans["end"].to_pylist())
        begun_us = min(cells["ready_minute"].to_pylist()) * MINUTE_US
        first = min(max(self.source.offset_at_time(begun_us), low), end)
        look = partial(_looked, cells=cells)
        if end - first <= LOOK_HERE_ROWS_MAX:
            ranges = self.source.ranges(first, end)
            found = [look(self.source.read(*part, LOOK_COLUMNS)) for part in ranges]
        else:
            found = self.reduce(look, first, end, LOOK_COLUMNS)
        return with_looked(parts, [one["looked"] for one in found])


def _looked(batches: Iterator[pa.RecordBatch], cells: pa.Table) -> dict[str, pa.Table]:
    return {"looked": looked(batches, cells)}


@dataclass(frozen=True)
class _Task:
    """The function of a Spark task: reduces the ranges whose numbers it receives."""

    source: Source
    reducer: Reducer
    ranges: tuple[Range, ...]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                first, end = self.ranges[number]
                tables = self.reducer(self.source.read(first, end, self.columns))
                for name, table in tables.items():
                    row = [pa.array([number]), pa.array([name])]
                    part = pa.array([packed(table)], pa.binary())
                    yield pa.RecordBatch.from_arrays([*row, part], _NAMES)


def from_cluster(
    spark: SparkSession, addresses: Sequence[str], patience_s: int = PATIENCE_S
) -> Input:
    """Return all events that the nodes keep, up to now.

    Raises:
        ClientError: no node answers.
    """
    with Events(addresses, patience_s) as nodes:
        extent = nodes.whole()
    if extent.first:
        warn_of_silent(extent)
    reader = spark.read.format("beanpole").option("addresses", ",".join(addresses))
    reader = reader.option("patienceSeconds", patience_s)
    events = reader.option("startingOffsets", extent.first).option("endingOffsets", extent.end)
    return Input(
        spark,
        ClusterSource(tuple(addresses), extent.first, extent.end, patience_s),
        events.load,
        extent.cluster,
        [(extent.first, extent.end)],
        extent.jobs_before,
        extent.jobs,
    )


def from_directory(spark: SparkSession, directory: str, allow_missing: bool = False) -> Input:
    """Return the events of a directory, local or remote, that `beanpole events export` wrote.

    Raises:
        ConfigurationError: it is not such a directory, or of another version.
        BadExport: it lacks events, or has a file that is not as it was written.
    """
    return from_export(spark, opened(directory, allow_missing).verified_ahead())


def from_export(spark: SparkSession, export: Opened) -> Input:
    """Return the events of an export that is open already."""
    return Input(
        spark,
        ExportSource(export),
        lambda: _events_of(spark, export),
        export.cluster,
        export.spans,
        export.jobs_before,
        None,
        export.missing,
    )


def _events_of(spark: SparkSession, export: Opened) -> DataFrame:
    """Return the events of an export, checked; our reader reads remote files, Spark's local ones.

    Spark's reader is three times as fast but ignores our checksums, so they are compared first.
    """
    if not export.files:
        return spark.createDataFrame([], EVENTS)
    place = resolved(export.directory)
    if not place.is_local:
        reader = spark.read.format("beanpole").option("path", export.directory)
        return reader.option("failOnDataLoss", not export.notes).load()
    if not export.verified:
        tasks = -(-len(export.files) // VERIFY_FILES)
        spark.range(0, len(export.files), 1, tasks).mapInArrow(_verifier(export), "id long").count()
    # Spark interprets these characters of a path as a pattern.
    folder = re.sub(r"([\[\]{}*?\\])", r"\\\1", place.path)
    paths = [f"file://{folder}/{file.name}" for file in export.files]
    return spark.read.schema(EVENTS).parquet(*paths)


def _verifier(export: Opened) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of a task that checks files, which it receives by number."""

    def verify(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                export.verify(export.files[number])
            yield batch

    return verify
