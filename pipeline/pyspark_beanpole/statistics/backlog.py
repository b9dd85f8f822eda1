"""When jobs were ready and nobody took any: whole minutes without a reservation."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def backlog(depth: DataFrame) -> DataFrame:
    """Return each stretch of such minutes of a tube, from the table of `depth`.

    `ready` is the most that were ready at the end of one of its minutes.
    """
    minute = F.expr("interval 1 minute")
    # In a minute with reservations somebody worked, but nobody did in those that follow it
    # without a row.
    begin = F.when(F.col("reservations") > 0, F.col("minute") + minute).otherwise(F.col("minute"))
    rows = (
        depth.where(F.col("ready") > 0)
        .select("tube", begin.alias("from"), "until", "ready")
        .where(F.col("from") < F.col("until"))
    )
    in_order = Window.partitionBy("tube").orderBy("from")
    new = F.coalesce(F.lag("until").over(in_order) != F.col("from"), F.lit(True))
    rows = rows.withColumn("new", new.cast("int"))
    stretch = F.sum("new").over(in_order)
    length_us = F.unix_micros("until") - F.unix_micros("from")
    return (
        rows.withColumn("stretch", stretch)
        .groupBy("tube", "stretch")
        .agg(
            F.min("from").alias("from"),
            F.max("until").alias("until"),
            F.max("ready").alias("ready"),
        )
        .drop("stretch")
        .withColumn("minutes", (length_us / 60_000_000).cast("long"))
    )
