"""The workers: how busy each was, and how its failures compare with those of all."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.statistics.keys import SECOND_US
from pyspark_beanpole.statistics.transitions import done, happened

# The worker had the job and is gone, or was too slow.
LOST: Final = ("connection_lost", "node_down")


def _lost() -> Column:
    lost = (F.col("event") == "timed_out") | F.col("reason").isin(*LOST)
    return F.sum(F.when(lost, F.col("events")).otherwise(0))


def workers(transitions: DataFrame) -> DataFrame:
    """Return a row for each worker, from the cube of `transitions`.

    `utilisation` is how many jobs it held on average between its first and its last event: 1 is a
    worker that always had one job. What it still holds at the end does not count yet.
    """
    rows = transitions.where(F.col("worker").isNotNull())
    present_s = (F.col("last_us") - F.col("first_us")) / SECOND_US
    each = rows.groupBy("worker").agg(
        F.count_distinct("tube").alias("tubes"),
        happened("reserved").alias("reservations"),
        done().alias("done"),
        happened("released").alias("released"),
        happened("buried").alias("buried"),
        happened("timed_out").alias("timed_out"),
        happened("returned").alias("returned"),
        _lost().alias("lost_leases"),
        (F.coalesce(F.sum("run_us"), F.lit(0)) / SECOND_US).alias("busy_s"),
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
    )
    failed = F.col("buried") + F.col("timed_out") + F.col("returned")
    ends = F.col("done") + F.col("released") + failed
    each = each.withColumn("failed", failed).withColumn("ends", ends)
    fleet = each.agg(F.try_divide(F.sum("failed"), F.sum("ends")).alias("fleet_failed_share"))
    return (
        each.crossJoin(F.broadcast(fleet))
        .withColumn("failed_share", F.try_divide("failed", "ends"))
        .withColumn("present_s", present_s)
        .withColumn("utilisation", F.try_divide("busy_s", "present_s"))
        .drop("ends", "first_us", "last_us")
    )
