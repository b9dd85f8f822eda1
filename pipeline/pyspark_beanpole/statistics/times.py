"""Wait and run time in numbers: count, mean, standard deviation, percentiles, the longest.

Partials hold n, the mean and the sum of squared differences from it (m2), which are added up by
Chan's formula, because sums of squares lose the digits that matter; and a KLL sketch, of which
any percentile can be asked after merging.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS
from pyspark_beanpole.statistics.durations import durations
from pyspark_beanpole.statistics.keys import SECOND_US

# Up to this many values percentiles are exact; beyond, the rank is off by 0.3 % of n at most (with
# 99 % confidence), for about 24 kB a sketch.
SKETCH_K: Final = 1000
PERCENTILES: Final = (50, 90, 95, 99)


def partial(events: DataFrame) -> DataFrame:
    """Return n, mean_s, m2_s2, max_s and sketch for each of KEYS and kind."""
    seconds = F.col("duration_us") / F.lit(SECOND_US)
    return (
        durations(events)
        .withColumn("seconds", seconds)
        .groupBy(*KEYS, "kind")
        .agg(
            F.count("*").alias("n"),
            F.avg("seconds").alias("mean_s"),
            (F.var_pop("seconds") * F.count("*")).alias("m2_s2"),
            F.max("seconds").alias("max_s"),
            F.kll_sketch_agg_double("seconds", SKETCH_K).alias("sketch"),
        )
    )


def _joined(left: Column, right: Column) -> Column:
    """Chan's formula: the moments of two sets together."""
    n = left["n"] + right["n"]
    apart = right["mean_s"] - left["mean_s"]
    mean = left["mean_s"] + apart * right["n"] / n
    m2 = left["m2_s2"] + right["m2_s2"] + apart * apart * left["n"] * right["n"] / n
    return F.struct(n.alias("n"), mean.alias("mean_s"), m2.alias("m2_s2"))


def merge(partials: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Add partials up to fewer keys."""
    none = F.struct(
        F.lit(0).cast("long").alias("n"), F.lit(0.0).alias("mean_s"), F.lit(0.0).alias("m2_s2")
    )
    return (
        partials.groupBy(*by, "kind")
        .agg(
            F.collect_list(F.struct("n", "mean_s", "m2_s2")).alias("parts"),
            F.max("max_s").alias("max_s"),
            F.kll_merge_agg_double("sketch", SKETCH_K).alias("sketch"),
        )
        .withColumn("moments", F.aggregate("parts", none, _joined))
        .select(*by, "kind", "moments.*", "max_s", "sketch")
    )


def finish(partials: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Return count, mean_s, std_s (of a sample: null for one), p50_s to p99_s, max_s, total_s."""
    ranks = F.array(*[F.lit(percent / 100) for percent in PERCENTILES])
    n = F.col("n")
    return (
        merge(partials, by)
        .withColumn("quantiles", F.kll_sketch_get_quantile_double("sketch", ranks))
        .select(
            *by,
            "kind",
            n.alias("count"),
            "mean_s",
            F.when(n > 1, F.sqrt(F.col("m2_s2") / (n - 1))).alias("std_s"),
            *[
                F.col("quantiles")[place].alias(f"p{percent}_s")
                for place, percent in enumerate(PERCENTILES)
            ],
            "max_s",
            (n * F.col("mean_s")).alias("total_s"),
        )
    )
