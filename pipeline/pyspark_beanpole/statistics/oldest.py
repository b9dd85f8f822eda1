"""Which ready job was the oldest at any full minute, and since when it was ready.

The events of jobs that leave the ready ones say since when they were there. Of two jobs that are
ready at once the one with the earlier time is the older, so in the order of these times a job is
the oldest only after all before it have left: each tube's time falls into reigns that do not
overlap, and there are never more of them than minutes.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import rounded_up
from pyspark_beanpole.statistics.keys import MINUTE_US


def _left(events: DataFrame) -> DataFrame:
    """Jobs that were ready: (tube, job_id, since_us, until_us) by the wall clock of their leaving.

    Their age is that of cluster time, so `since_us` is counted back from there.
    """
    left = (F.col("state_before") == "ready") & (F.col("state") != "ready")
    wall_us = F.unix_micros("wall_time")
    age_us = F.col("time_us") - F.col("ready_at_us")
    return events.where(left & F.col("ready_at_us").isNotNull()).select(
        "tube", "job_id", (wall_us - age_us).alias("since_us"), wall_us.alias("until_us")
    )


def _still(events: DataFrame) -> DataFrame:
    """Jobs that are ready at the end of the log, until the minute after its last event."""
    entered = F.max(F.when(F.col("state") == "ready", F.col("offset")))
    left = F.max(
        F.when((F.col("state_before") == "ready") & (F.col("state") != "ready"), F.col("offset"))
    )
    jobs = (
        events.groupBy("tube", "job_id")
        .agg(
            entered.alias("entered"), left.alias("left"), F.max("ready_at_us").alias("ready_at_us")
        )
        .where(F.col("entered") > F.coalesce("left", F.lit(-1)))
    )
    wall_us = F.unix_micros("wall_time")
    last = events.agg(
        F.max_by(wall_us - F.col("time_us"), "offset").alias("clock_us"),
        F.max_by(wall_us, "offset").alias("wall_us"),
    )
    return jobs.crossJoin(F.broadcast(last)).select(
        "tube",
        "job_id",
        (F.col("ready_at_us") + F.col("clock_us")).alias("since_us"),
        (F.col("wall_us") + MINUTE_US).alias("until_us"),
    )


def _shown(minute: str) -> Column:
    return F.timestamp_micros(F.col(minute) * F.lit(MINUTE_US))


def oldest(events: DataFrame) -> DataFrame:
    """Return reigns (tube, from, until, job_id, ready_since), `from` and `until` full minutes.

    At a full minute T with `from <= T < until` the age of the tube's oldest ready job is
    `T - ready_since`; where there is no row, none was ready.
    """
    jobs = _left(events).unionByName(_still(events))
    jobs = jobs.select(
        "tube",
        rounded_up(F.col("since_us"), MINUTE_US).alias("first"),
        rounded_up(F.col("until_us"), MINUTE_US).alias("end"),
        "since_us",
        "job_id",
    ).where(F.col("first") < F.col("end"))
    # Of jobs that came and left in the same minutes only the oldest counts: few rows remain.
    rows = (
        jobs.groupBy("tube", "first", "end")
        .agg(F.min(F.struct("since_us", "job_id")).alias("oldest"))
        .select("tube", "first", "end", "oldest.*")
    )
    elder = (
        Window.partitionBy("tube")
        .orderBy("since_us", "job_id")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    begin = F.greatest("first", F.max("end").over(elder))
    return (
        rows.withColumn("begin", begin)
        .where(F.col("begin") < F.col("end"))
        .select(
            "tube",
            _shown("begin").alias("from"),
            _shown("end").alias("until"),
            "job_id",
            F.timestamp_micros("since_us").alias("ready_since"),
        )
    )
