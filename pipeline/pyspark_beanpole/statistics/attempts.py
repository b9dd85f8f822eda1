"""How many reservations jobs needed until their end."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import with_day

# Not by worker: the last one is not the one that the attempts before were about.
ATTEMPT_KEYS: Final = ("day", "tube", "protocol")


def partial(events: DataFrame) -> DataFrame:
    """Return jobs for each of ATTEMPT_KEYS, outcome and attempts, booked on the day of the end.

    `outcome` is `done` for jobs that their worker deleted, else `removed`.
    """
    done = F.col("state_before") == "reserved"
    return (
        with_day(events)
        .where(F.col("event") == "deleted")
        .groupBy(
            *ATTEMPT_KEYS,
            F.when(done, "done").otherwise("removed").alias("outcome"),
            F.col("attempt").alias("attempts"),
        )
        .agg(F.count("*").alias("jobs"))
    )


def merge(partials: DataFrame, by: Sequence[str] = ATTEMPT_KEYS) -> DataFrame:
    """Add partials up to fewer keys."""
    return partials.groupBy(*by, "outcome", "attempts").agg(F.sum("jobs").alias("jobs"))
