"""What `beanpole pipeline stream` writes, so that a batch that is repeated changes nothing.

    DIR/events/date=YYYY-MM-DD/batch_id=N/     the events, dates by wall time in UTC
    DIR/partials/NAME/batch_id=N/              what statistics keep of the events of a batch
    DIR/tables/NAME/                           the statistics of all batches, written anew each time

A batch of a stream is the same range of offsets however often Spark tries it, and each try replaces
what the one before wrote. No event is in two batches, so every one is in the table once.
"""

import re
from collections.abc import Callable
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructType

from beanpole.errors import ConfigurationError
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.tables import finished, partials

# The partials that have rows of every batch, for every event counts in some minute.
EACH_BATCH: Final = "minutes"

_BATCH: Final = re.compile(r"/batch_id=([0-9]+)/")


def writer(directory: str, statistics: bool) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls to write a batch below a directory.

    Args:
        directory: wherever Spark can write.
        statistics: also keep what `refresh` needs.
    """
    root = directory.rstrip("/")

    def write(events: DataFrame, batch_id: int) -> None:
        events = events.persist()
        try:
            if batch_id == 0:
                _check_new(events, f"{root}/events")
            # Before the events, so that only a run without statistics leaves events without them.
            for name, part in partials(events).items() if statistics else ():
                _replace(part, batch_id, f"{root}/partials/{name}")
            dated = events.withColumn("date", F.to_date("wall_time"))
            _replace(dated, batch_id, f"{root}/events", "date")
        finally:
            events.unpersist()

    return write


def refresh(spark: SparkSession, directory: str) -> None:
    """Write the tables of statistics anew, from the partials of all batches.

    A reader that comes at that moment may find a table missing.

    Raises:
        ConfigurationError: some batches have no partials.
    """
    root = directory.rstrip("/")
    _check_whole(spark, root)
    kept = {}
    for name, empty in partials(spark.createDataFrame([], EVENTS)).items():
        found = _read(spark, empty.schema, f"{root}/partials/{name}")
        kept[name] = empty if found is None else found
    for name, table in finished(kept).items():
        table.write.mode("overwrite").parquet(f"{root}/tables/{name}")


def _replace(rows: DataFrame, batch_id: int, path: str, *keys: str) -> None:
    """Write the rows of a batch in place of those that an earlier try of it wrote."""
    (
        rows.withColumn("batch_id", F.lit(batch_id))
        .write.mode("overwrite")
        # Else all other batches would be removed.
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy(*keys, "batch_id")
        .parquet(path)
    )


def _check_new(events: DataFrame, path: str) -> None:
    """Refuse a first batch in a table that has batches of another checkpoint.

    An earlier try of the same batch may have left all of its events there, or some.

    Raises:
        ConfigurationError: it has.
    """
    schema = StructType().add("batch_id", IntegerType()).add("offset", LongType())
    there = _read(events.sparkSession, schema, path)
    if there is None:
        return
    first, last = F.min("offset").alias("first"), F.max("offset").alias("last")
    new = events.agg(first, last).collect()[0]
    old = there.where("batch_id = 0").agg(first, last).collect()[0]
    replaces = old.first is not None and (
        new.first is None or old.first < new.first or old.last > new.last
    )
    if replaces or not there.where("batch_id > 0").isEmpty():
        raise ConfigurationError(
            f"{path} has batches of another checkpoint, which this one would replace: give that "
            "checkpoint, or another directory"
        )


def _check_whole(spark: SparkSession, root: str) -> None:
    """Refuse statistics of only some batches.

    Raises:
        ConfigurationError: there are events of batches without partials.
    """
    if missing := sorted(
        _batch_ids(spark, f"{root}/events") - _batch_ids(spark, f"{root}/partials/{EACH_BATCH}")
    ):
        raise ConfigurationError(
            f"{root} has no statistics of {len(missing)} batches, {missing[0]} to {missing[-1]}, "
            "which were written with --no-statistics: go on with --no-statistics, or begin in "
            "another directory"
        )


def _batch_ids(spark: SparkSession, path: str) -> set[int]:
    found = _read(spark, StructType().add("batch_id", IntegerType()), path)
    if found is None:
        return set()
    ids = (_BATCH.search(file) for file in found.inputFiles())
    return {int(match[1]) for match in ids if match}


def _read(spark: SparkSession, schema: StructType, path: str) -> DataFrame | None:
    """Return the rows in the files at a path; None if there is no such path."""
    try:
        found = spark.read.schema(schema).parquet(path)
        # Spark Connect looks only when it is asked something.
        found.columns  # noqa: B018
    except AnalysisException:
        return None
    return found
