"""Which jobs are buried now, and what happened to them before."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

BURIED: Final = "buried"
# What is told of each, as it was at its burial.
# fmt: off
TOLD: Final = (
    "offset", "wall_time", "state", "protocol", "tube", "external_id", "priority", "ttr_s",
    "body_bytes", "worker", "reason", "attempt", "timeouts", "releases", "buries", "kicks",
    "run_us",
)
# fmt: on


def partial(events: DataFrame) -> DataFrame:
    """Return the last event of each job that came into or out of being buried.

    A job cannot leave the buried ones without such an event, so no others are needed.
    """
    moved = (F.col("state") == BURIED) | (F.col("state_before") == BURIED)
    return merge(events.where(moved))


def merge(rows: DataFrame) -> DataFrame:
    """Return the last row of each job."""
    return (
        rows.groupBy("job_id")
        .agg(F.max_by(F.struct(*TOLD), "offset").alias("last"))
        .select("job_id", "last.*")
    )


def finish(partials: DataFrame) -> DataFrame:
    """Return a row for each job that is buried at the end."""
    return (
        merge(partials)
        .where(F.col("state") == BURIED)
        .drop("state")
        .withColumnRenamed("wall_time", "buried_at")
    )
