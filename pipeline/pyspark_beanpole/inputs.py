"""Where the events of a command come from: a cluster, or a directory that was exported from one.

Both give the same columns, and what the cluster says about the range of offsets they cover.
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
from pyspark_beanpole.statistics.keys import DEFAULT_LIMITS, MINUTE_US, Limits, Parts
from pyspark_beanpole.statistics.parts import merged, reduced, with_looked
from pyspark_beanpole.statistics.reigns import LOOK_COLUMNS, looked

# Files that a task checks: of 50 MB each, some seconds where they come over a network.
VERIFY_FILES: Final = 8
# A second look at so few events is over before Spark has begun a job.
LOOK_HERE_ROWS_MAX: Final = 1 << 18

# Makes tables, by name, of the events of a range.
Reducer = Callable[[Iterator[pa.RecordBatch]], Mapping[str, pa.Table]]
_NAMES: Final = ("range", "name", "part")
_REDUCED: Final = "range long, name string, part binary"


@dataclass(frozen=True)
class Input:
    """Events of a cluster."""

    spark: SparkSession
    # What tasks read by themselves.
    source: Source
    # Makes `events`; what that costs is not paid by those that read them otherwise.
    load: Callable[[], DataFrame]
    cluster: str
    # The ranges of offsets, each first <= offset < end, in order; there are gaps between them.
    spans: Sequence[tuple[int, int]]
    # How many jobs were in each state before the first event, and behind the last one; None where
    # that is not known.
    jobs_before: Mapping[str, int]
    jobs: Mapping[str, int] | None
    # What should be there and is not, each first <= offset < end, in order: holes between the
    # spans, and files that were passed over.
    missing: Sequence[tuple[int, int]] = ()

    @cached_property
    def events(self) -> DataFrame:
        """The events, with the columns of docs/pipeline.md."""
        return self.load()

    @property
    def first(self) -> int:
        """The first offset; 0 if there is none."""
        return self.spans[0][0] if self.spans else 0

    @property
    def end(self) -> int:
        """The offset behind the last event; 0 if there is none."""
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
            reducer: makes small tables of the events of a range, which come in order; a function
                of a module, or `functools.partial` of one, because tasks get it by its name.
            first: the first offset; None for that of the log.
            end: the offset behind the last event; None for all.
            columns: those that the reducer needs, and `offset`; an older event may lack some.

        Returns:
            What the reducer returned, in the order of offsets; nothing if there are no events.
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

    def statistics(
        self, limits: Limits = DEFAULT_LIMITS, tubes: Collection[str] | None = None
    ) -> Parts:
        """Return what statistics keep of all events, or of those of some tubes.

        `statistics.answers.finished` makes the tables of it.
        """
        reducer = partial(reduced, limits=limits, tubes=tubes, put_from=put_from(self.source))
        return self.with_oldest(merged(self.reduce(reducer)))

    def with_oldest(self, parts: Parts) -> Parts:
        """Take the second look that `oldest` needs, at the jobs of a minute in each tube.

        Args:
            parts: of any contiguous part of the log.
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
    """What a task does that is told the numbers of its ranges."""

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
        ClusterSource(tuple(addresses), extent.first, extent.end),
        events.load,
        extent.cluster,
        [(extent.first, extent.end)],
        extent.jobs_before,
        extent.jobs,
    )


def from_directory(spark: SparkSession, directory: str, allow_missing: bool = False) -> Input:
    """Return the events of a directory that `beanpole events export` wrote, wherever it is.

    Raises:
        ConfigurationError: it is not such a directory, or of another version.
        BadExport: it lacks events, or has a file that is not as it was written.
    """
    return from_export(spark, opened(directory, allow_missing).verified_ahead())


def from_export(spark: SparkSession, export: Opened) -> Input:
    """Return the events of an export. As `from_directory`."""
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
    """Return the events of an export, checked: elsewhere by our own reader, here by Spark's.

    Spark's own is three times as fast, and does not know our checksums: they are compared before.
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
    # Spark takes names as they are, but for these signs, which stand for any others.
    folder = re.sub(r"([\[\]{}*?\\])", r"\\\1", place.path)
    paths = [f"file://{folder}/{file.name}" for file in export.files]
    return spark.read.schema(EVENTS).parquet(*paths)


def _verifier(export: Opened) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return what a task does to check files, which it is told by their numbers."""

    def verify(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                export.verify(export.files[number])
            yield batch

    return verify
