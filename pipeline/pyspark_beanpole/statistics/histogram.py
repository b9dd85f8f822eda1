"""Wait and run time as the histogram of qless: 148 slots that get wider with the duration.

Seconds 0 to 59, minutes 1 to 59, hours 1 to 23, days 1 to 6. Durations of seven days and more are
counted in slots beyond these (d7, d8, ...), as qless does, and are not among the 148.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS
from pyspark_beanpole.expressions import divided
from pyspark_beanpole.statistics.durations import durations
from pyspark_beanpole.statistics.keys import SECOND_US

# (letter, seconds of one, the slot that would be its number 0), the widest first: slot 59 + 1 is
# one minute, slot 118 + 1 one hour, slot 141 + 1 one day.
UNITS: Final[tuple[tuple[str, int, int], ...]] = (
    ("d", 86_400, 141),
    ("h", 3600, 118),
    ("m", 60, 59),
    ("s", 1, 0),
)
SLOTS: Final = 148


def slot(duration_us: Column) -> Column:
    """Return the slot of a duration; a negative one counts as 0."""
    seconds = divided(F.greatest(duration_us, F.lit(0)), SECOND_US)
    found = seconds
    for _, unit_s, zero in reversed(UNITS[:-1]):
        found = F.when(seconds >= unit_s, divided(seconds, unit_s) + zero).otherwise(found)
    return found.cast("int")


def place(number: int) -> tuple[str, int, int]:
    """Return (label, first second, width in seconds) of a slot, which is not negative."""
    letter, unit_s, zero = next(unit for unit in UNITS if number > unit[2] or unit[1] == 1)
    return f"{letter}{number - zero}", (number - zero) * unit_s, unit_s


def partial(events: DataFrame) -> DataFrame:
    """Return n for each of KEYS, kind and slot."""
    return (
        durations(events)
        .groupBy(*KEYS, "kind", slot(F.col("duration_us")).alias("slot"))
        .agg(F.count("*").alias("n"))
    )


def merge(partials: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Add partials up to fewer keys."""
    return partials.groupBy(*by, "kind", "slot").agg(F.sum("n").alias("n"))


def finish(partials: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Return a row for each slot in use: label, from_s, width_s, count, and count per second."""
    number = F.col("slot")
    label = F.concat(F.lit("s"), number)
    from_s, width_s = number, F.lit(1)
    for letter, unit_s, zero in reversed(UNITS[:-1]):
        label = F.when(number > zero, F.concat(F.lit(letter), number - zero)).otherwise(label)
        from_s = F.when(number > zero, (number - zero) * unit_s).otherwise(from_s)
        width_s = F.when(number > zero, unit_s).otherwise(width_s)
    return merge(partials, by).select(
        *by,
        "kind",
        "slot",
        label.alias("label"),
        from_s.alias("from_s"),
        width_s.alias("width_s"),
        F.col("n").alias("count"),
        (F.col("n") / width_s).alias("count_per_s"),
    )


def as_lists(partials: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Return `histogram`, an array of 148 counts, as qless's `stats` command shows it."""
    counts = F.map_from_entries(F.collect_list(F.struct("slot", "n")))
    zero = F.lit(0).cast("long")
    return (
        merge(partials, by)
        .where(F.col("slot") < SLOTS)
        .groupBy(*by, "kind")
        .agg(counts.alias("counts"))
        .withColumn(
            "histogram",
            F.transform(
                F.sequence(F.lit(0), F.lit(SLOTS - 1)),
                lambda number: F.coalesce(F.try_element_at("counts", number), zero),
            ),
        )
        .drop("counts")
    )
