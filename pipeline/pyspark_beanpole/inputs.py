"""Where the events of a command come from: a cluster, or a directory that was exported from one.

Both give the same columns, and what the cluster says about the range of offsets they cover.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from beanpole.client.events import Events
from beanpole.client.rpc import PATIENCE_S
from beanpole.places import resolved
from pyspark_beanpole.exports import Opened, opened
from pyspark_beanpole.planning import warn_of_silent
from pyspark_beanpole.schema import EVENTS

# Files that a task checks: of 50 MB each, some seconds where they come over a network.
VERIFY_FILES: Final = 8


@dataclass(frozen=True)
class Input:
    """Events of a cluster."""

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
