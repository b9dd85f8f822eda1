"""How much went in and out: puts, reservations, ends, and by how much the queue grew."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS
from pyspark_beanpole.statistics.transitions import done, happened


def throughput(transitions: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Return counts for each of `by`, from the cube of `transitions`.

    `done` were deleted by the worker that held them, `removed` by anybody while nobody held them.
    """
    put_bytes = F.sum(F.when(F.col("event") == "put", F.col("body_bytes")).otherwise(0))
    events = ("reserved", "touched", "released", "returned", "timed_out", "buried", "kicked", "due")
    return (
        transitions.groupBy(*by)
        .agg(
            happened("put").alias("puts"),
            put_bytes.alias("put_bytes"),
            done().alias("done"),
            (happened("deleted") - done()).alias("removed"),
            *[happened(event).alias(event) for event in events],
        )
        .withColumn("growth", F.col("puts") - F.col("done") - F.col("removed"))
    )
