"""By what statistics are grouped, and the expressions of time that all of them share.

Days and minutes are those of the leader's wall clock in UTC, whatever time zone the session has.
Lengths of time come from cluster time, which does not jump.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

# The finest rows that are kept of a day; anything coarser is their sum.
KEYS: Final = ("day", "tube", "protocol", "worker")

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US

# The states that a job can be in; `gone` is before its put and after its end.
STATES: Final = ("ready", "reserved", "delayed", "buried")


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
