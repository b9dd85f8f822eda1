"""What happened over time in few enough points to draw: the most of each stretch of time."""

from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import divided
from pyspark_beanpole.statistics.keys import MINUTE_US, STATES

# A chart is about this many pixels wide: more points would not be seen.
POINTS_MAX: Final = 360
# How much time a point may stand for, in minutes: what people count in.
STEPS_MIN: Final = (1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 10_080, 43_200)


def step_of(begin: datetime, end: datetime) -> int:
    """Return how many minutes a point stands for."""
    minutes = (end - begin).total_seconds() / 60
    return next((step for step in STEPS_MIN if minutes / step <= POINTS_MAX), STEPS_MIN[-1])


def _number(time: str) -> Column:
    return divided(F.unix_micros(time), MINUTE_US)


def depth_points(depth: DataFrame, step: int) -> DataFrame:
    """Return (tube, minute, STATES...) with the deepest of each stretch of `step` minutes.

    `minute` is the first one of the stretch, counted from 1970.
    """
    first, last = divided(_number("minute"), step), divided(_number("until") - 1, step)
    return (
        depth.withColumn("stretch", F.explode(F.sequence(first, last)))
        .groupBy("tube", (F.col("stretch") * step).alias("minute"))
        .agg(*[F.max(state).alias(state) for state in STATES])
    )


def flow_points(depth: DataFrame, step: int) -> DataFrame:
    """Return (tube, minute, puts, ends, failed), each per minute on average of its stretch."""
    flows = {
        "puts": F.col("puts"),
        "ends": F.col("done") + F.col("removed"),
        "failed": F.col("failed"),
    }
    return depth.groupBy("tube", (divided(_number("minute"), step) * step).alias("minute")).agg(
        *[(F.sum(flow) / step).alias(name) for name, flow in flows.items()]
    )


def age_points(oldest: DataFrame, step: int) -> DataFrame:
    """Return (tube, minute, age_s) with the greatest age of the oldest ready job in each stretch.

    The age is that at the last full minute of the stretch at which the job was the oldest.
    """
    first, last = _number("from"), _number("until") - 1
    stretch = F.col("stretch")
    seen = F.least(F.col("last"), (stretch + 1) * step - 1)
    age_s = (seen * MINUTE_US - F.unix_micros("ready_since")) / 1e6
    return (
        oldest.select("tube", "ready_since", first.alias("first"), last.alias("last"))
        .withColumn(
            "stretch",
            F.explode(F.sequence(divided(F.col("first"), step), divided(F.col("last"), step))),
        )
        .groupBy("tube", (stretch * step).alias("minute"))
        .agg(F.max(age_s).alias("age_s"))
    )
