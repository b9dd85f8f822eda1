"""Small Spark expressions that several modules share."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.statistics.keys import DAY_US

FINE_KEYS: Final = ("day", "tube", "protocol", "worker")


def divided(amount: Column, by: int) -> Column:
    """Return the whole part of a division of integers; `/` would go through floating point."""
    return F.call_function("div", amount, F.lit(by))


def rounded_up(amount: Column, by: int) -> Column:
    """Return how many whole steps of `by` reach `amount`."""
    return divided(amount + F.lit(by - 1), by)


def with_day(events: DataFrame) -> DataFrame:
    """Add `day`, the date of `wall_time` in UTC."""
    days = divided(F.unix_micros("wall_time"), DAY_US)
    return events.withColumn("day", F.date_from_unix_date(days.cast("int")))


def count_of(condition: Column) -> Column:
    """Count the rows for which a condition holds."""
    return F.count(F.when(condition, 1))
