"""What `beanpole pipeline stream` writes, so that a batch that is repeated changes nothing.

    DIR/events/date=YYYY-MM-DD/batch_id=N/*.parquet     the events, dates by wall time in UTC

A batch of a stream is the same range of offsets however often Spark tries it, and each try replaces
what the one before wrote. No event is in two batches, so every one is in the table once.
"""

from collections.abc import Callable
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from beanpole.errors import ConfigurationError

EVENTS_TABLE: Final = "events"


def writer(directory: str) -> Callable[[DataFrame, int], None]:
    """Return what `foreachBatch` calls to write a batch below a directory."""
    path = f"{directory.rstrip('/')}/{EVENTS_TABLE}"

    def write(events: DataFrame, batch_id: int) -> None:
        if batch_id == 0:
            _check_new(events, path)
        dated = events.withColumns({"date": F.to_date("wall_time"), "batch_id": F.lit(batch_id)})
        (
            dated.write.mode("overwrite")
            # Else all other batches would be removed.
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy("date", "batch_id")
            .parquet(path)
        )

    return write


def _check_new(events: DataFrame, path: str) -> None:
    """Refuse to begin in a table that has batches of another checkpoint.

    Raises:
        ConfigurationError: it has.
    """
    try:
        batches = events.sparkSession.read.schema("batch_id INT").parquet(path)
        begun = not batches.where("batch_id > 0").isEmpty()
    except AnalysisException:
        return
    if begun:
        raise ConfigurationError(
            f"{path} has batches of another checkpoint, which this one would replace: give that "
            "checkpoint, or another directory"
        )
