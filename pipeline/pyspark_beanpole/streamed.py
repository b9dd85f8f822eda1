"""What `beanpole pipeline stream` writes, so that a batch that is repeated changes nothing.

    DIR/events/date=YYYY-MM-DD/batch_id=N/     the events, dates by wall time in UTC
    DIR/partials/NAME/batch_id=N/              what statistics keep of the events of a batch
    DIR/tables/NAME/                           the statistics of all batches, written anew each time

A batch of a stream is the same range of offsets however often Spark tries it, and each try replaces
what the one before wrote. No event is in two batches, so every one is in the table once.
"""

from collections.abc import Callable

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructType

from beanpole.errors import ConfigurationError
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.tables import finished, partials


def writer(directory: str, statistics: bool) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls to write a batch below a directory.

    Args:
        directory: wherever Spark can write.
        statistics: also keep what `refresh` needs.
    """
    root = directory.rstrip("/")

    def write(events: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            _check_new(events.sparkSession, f"{root}/events")
        events = events.persist()
        try:
            dated = events.withColumn("date", F.to_date("wall_time"))
            _replace(dated, batch_id, f"{root}/events", "date")
            for name, part in partials(events).items() if statistics else ():
                _replace(part, batch_id, f"{root}/partials/{name}")
        finally:
            events.unpersist()

    return write


def refresh(spark: SparkSession, directory: str) -> None:
    """Write the tables of statistics anew, from the partials of all batches.

    A reader that comes at that moment may find a table missing.
    """
    root = directory.rstrip("/")
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


def _check_new(spark: SparkSession, path: str) -> None:
    """Refuse to begin in a table that has batches of another checkpoint.

    Raises:
        ConfigurationError: it has.
    """
    batches = _read(spark, StructType().add("batch_id", IntegerType()), path)
    if batches is not None and not batches.where("batch_id > 0").isEmpty():
        raise ConfigurationError(
            f"{path} has batches of another checkpoint, which this one would replace: give that "
            "checkpoint, or another directory"
        )


def _read(spark: SparkSession, schema: StructType, path: str) -> DataFrame | None:
    """Return the rows in the files at a path; None if there is no such path."""
    try:
        found = spark.read.schema(schema).parquet(path)
        # Spark Connect looks only when it is asked something.
        found.columns  # noqa: B018
    except AnalysisException:
        return None
    return found
