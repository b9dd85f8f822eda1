"""How often what happened: a small cube of counts that answers several questions.

`throughput`, `failures` and `workers` are sums over it, so that events are read once for all
three.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS
from pyspark_beanpole.expressions import with_day

CUBE: Final = (*KEYS, "event", "reason", "state_before", "state")


def partial(events: DataFrame) -> DataFrame:
    """Return events, body_bytes, run_us and the first and last time_us for each cell of CUBE."""
    return _summed(
        with_day(events),
        events=F.count("*"),
        body_bytes=F.sum(F.col("body_bytes").cast("long")),
        run_us=F.sum("run_us"),
        first_us=F.min("time_us"),
        last_us=F.max("time_us"),
    )


def merge(partials: DataFrame) -> DataFrame:
    """Add partials up."""
    return _summed(
        partials,
        events=F.sum("events"),
        body_bytes=F.sum("body_bytes"),
        run_us=F.sum("run_us"),
        first_us=F.min("first_us"),
        last_us=F.max("last_us"),
    )


def _summed(rows: DataFrame, **columns: Column) -> DataFrame:
    return rows.groupBy(*CUBE).agg(*[column.alias(name) for name, column in columns.items()])


def happened(event: str) -> Column:
    """Sum the cells of one kind of event."""
    return F.sum(F.when(F.col("event") == event, F.col("events")).otherwise(0))


def done() -> Column:
    """Sum the jobs that were deleted by the worker that held them."""
    finished = (F.col("event") == "deleted") & (F.col("state_before") == "reserved")
    return F.sum(F.when(finished, F.col("events")).otherwise(0))
