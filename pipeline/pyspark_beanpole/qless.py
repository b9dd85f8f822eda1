"""The statistics of qless, computed from events: the reply of `stats` for a queue on a day.

This module covers waits and runs by queue, and by day of the clients' clocks. The statistics of
all protocols, by days of the leader's wall clock, are in `statistics`.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from beanpole.exports import UNCOUNTED
from pyspark_beanpole.statistics.bins import SLOTS, UNITS
from pyspark_beanpole.statistics.chunks import ADVANCED
from pyspark_beanpole.statistics.keys import DAY_US, RUN, SECOND_US, WAIT

_KEYS: Final = ("queue", "day_s", "kind")
_NEEDED: Final = ("tube", "event", "reason", "state_before", "wait_us", "run_us", "client_time_us")


def stats(events: DataFrame) -> DataFrame:
    """Return a row for each queue of qless, day, and kind (`wait`, `run`) with at least one job.

    Args:
        events: rows with the columns of docs/pipeline.md, in any order.

    Returns:
        `queue`, its name; `day_s`, the first second of the day since 1970, by the clocks of
        clients; `kind`; `count`; `mean_s` and `std_s` (of a sample, 0 for one) in seconds; and
        `histogram`, the 148 numbers of `stats`. Sorted by the first three.
    """
    rows = events.select(*_NEEDED).where(F.col("tube").startswith(UNCOUNTED))
    done = (F.col("event") == "done") & (F.col("state_before") == "reserved")
    advanced = (F.col("event") == "released") & F.col("reason").eqNullSafe(ADVANCED)
    length_us = F.when(F.col("event") == "reserved", F.col("wait_us")).when(
        done | advanced, F.col("run_us")
    )
    lengths = rows.select(
        F.substring("tube", len(UNCOUNTED) + 1, 2**31 - 1).alias("queue"),
        _day_s(F.col("client_time_us")).alias("day_s"),
        F.when(F.col("event") == "reserved", WAIT).otherwise(RUN).alias("kind"),
        length_us.alias("length_us"),
    ).where(F.col("length_us").isNotNull() & F.col("day_s").isNotNull())
    seconds = F.col("length_us") / SECOND_US
    moments = lengths.groupBy(*_KEYS).agg(
        F.count("*").alias("count"),
        F.mean(seconds).alias("mean_s"),
        F.coalesce(F.stddev_samp(seconds), F.lit(0.0)).alias("std_s"),
    )
    return moments.join(_histograms(lengths), [*_KEYS]).orderBy(*_KEYS)


def _day_s(time_us: Column) -> Column:
    """Return the first second of a day, in integers: `/` would go through floating point."""
    begin_us = time_us - F.pmod(time_us, F.lit(DAY_US))
    return F.call_function("div", begin_us, F.lit(SECOND_US))


def _histograms(lengths: DataFrame) -> DataFrame:
    slots = lengths.groupBy(*_KEYS, _slot().alias("slot")).agg(F.count("*").alias("amount"))
    pairs = F.collect_list(F.when(F.col("slot").isNotNull(), F.struct("slot", "amount")))
    found = slots.groupBy(*_KEYS).agg(F.map_from_entries(pairs).alias("amounts"))
    bars = F.transform(
        F.sequence(F.lit(0), F.lit(SLOTS - 1)),
        lambda slot: F.coalesce(F.col("amounts")[slot.cast("long")], F.lit(0)),
    )
    return found.select(*_KEYS, bars.alias("histogram"))


def _slot() -> Column:
    """Return the slot of a length in the histogram; null below 0 s and from a week on.

    Clients whose clocks differ make negative lengths. qless counts them in fields such as s-1,
    which its reply does not show; `statistics.bins.slots_of`, for all protocols, counts them as 0.
    """
    seconds = F.floor(F.col("length_us") / SECOND_US)
    slot = seconds
    for _, unit_s, zero in reversed(UNITS[:-1]):  # the narrowest first
        slot = F.when(seconds >= unit_s, F.floor(seconds / unit_s) + zero).otherwise(slot)
    return F.when((seconds >= 0) & (slot < SLOTS), slot)
