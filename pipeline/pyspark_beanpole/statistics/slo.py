"""Service levels: which share of waits and runs was within its limit."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.statistics.durations import RUN, WAIT, durations
from pyspark_beanpole.statistics.keys import SECOND_US

SLO_KEYS: Final = ("day", "tube", "protocol")


def partial(events: DataFrame, wait_s: float, run_s: float) -> DataFrame:
    """Return n and how many of them were within the limit, for each of SLO_KEYS and kind.

    The limit is among the keys, so that rows of different limits are never added up.
    """
    limit_s = F.when(F.col("kind") == WAIT, F.lit(float(wait_s))).otherwise(F.lit(float(run_s)))
    within = F.col("duration_us") <= limit_s * F.lit(SECOND_US)
    return (
        durations(events)
        .where(F.col("kind").isin(WAIT, RUN))
        .groupBy(*SLO_KEYS, "kind", limit_s.alias("limit_s"))
        .agg(F.count("*").alias("n"), F.count(F.when(within, 1)).alias("within"))
    )


def finish(partials: DataFrame, by: Sequence[str] = SLO_KEYS) -> DataFrame:
    """Return count, within and their share for each of `by`, kind and limit."""
    return (
        partials.groupBy(*by, "kind", "limit_s")
        .agg(F.sum("n").alias("count"), F.sum("within").alias("within"))
        .withColumn("share", F.col("within") / F.col("count"))
    )
