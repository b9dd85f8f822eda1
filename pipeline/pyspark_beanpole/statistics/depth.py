"""How many jobs were in each state at any time, and what flowed, by minute and tube.

Every event takes a job out of one state and puts it into another, so the depth is the running sum
of +1 and -1. Rows exist only for minutes in which something happened; each holds from its minute
until the next row's, so the depth at a time T is in the row with `minute <= T < until`.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import count_of, divided
from pyspark_beanpole.statistics.keys import MINUTE_US, STATES

# The minute of the wall clock is what is shown; that of cluster time keeps the order when a new
# leader's wall clock is behind the old one's.
_MINUTE: Final = ("tube", "cluster_minute", "minute")
_FLOWS: Final = ("puts", "reservations", "done", "removed", "failed")
# The change of the number of jobs in each state.
_CHANGES: Final = tuple(f"{state}_change" for state in STATES)
# The codes of states in `before`; a put comes from none of them.
_STATE_BITS: Final = 3


def partial(events: DataFrame) -> DataFrame:
    """Return flows and changes for each tube and minute."""
    event, before, after = F.col("event"), F.col("state_before"), F.col("state")
    held = before == "reserved"
    flows = {
        "puts": event == "put",
        "reservations": event == "reserved",
        "done": (event == "deleted") & held,
        "removed": (event == "deleted") & ~held,
        "failed": event.isin("timed_out", "returned", "buried"),
    }
    return events.groupBy(
        "tube",
        divided(F.col("time_us"), MINUTE_US).alias("cluster_minute"),
        divided(F.unix_micros("wall_time"), MINUTE_US).alias("minute"),
    ).agg(
        F.min("offset").alias("first_offset"),
        *[count_of(condition).alias(name) for name, condition in flows.items()],
        *[
            (count_of(after == state) - count_of(before == state)).alias(change)
            for state, change in zip(STATES, _CHANGES, strict=True)
        ],
    )


def merge(partials: DataFrame) -> DataFrame:
    """Add partials up."""
    return partials.groupBy(*_MINUTE).agg(
        F.min("first_offset").alias("first_offset"),
        *[F.sum(name).alias(name) for name in (*_FLOWS, *_CHANGES)],
    )


def before(events: DataFrame) -> DataFrame:
    """Return how many jobs of each tube were in each state before the first event of a log.

    Seen by the first event of each job that is not its put. For a log whose beginning is gone; a
    job that lay there without any event since is not known from events.
    """
    code = F.lit(0)
    for number, name in enumerate(STATES, 1):
        code = F.when(F.col("state_before") == name, number).otherwise(code)
    # The first event's state in one number, because Spark takes the smallest of numbers by hash,
    # but would sort all events to take the first of strings.
    first = F.min(F.shiftleft("offset", _STATE_BITS) + code).alias("first")
    jobs = events.groupBy("tube", "job_id").agg(first)
    state = F.col("first") % (1 << _STATE_BITS)
    return jobs.groupBy("tube").agg(
        *[count_of(state == number).alias(name) for number, name in enumerate(STATES, 1)]
    )


def _shown(minute: Column) -> Column:
    return F.timestamp_micros(minute * F.lit(MINUTE_US))


def finish(partials: DataFrame, start: DataFrame | None = None) -> DataFrame:
    """Return a row for each tube and minute with events: flows, and the depth at its end.

    Args:
        partials: from `partial`, of one log or added up.
        start: from `before`, when the log does not begin with offset 0.
    """
    in_order = Window.partitionBy("tube").orderBy("first_offset")
    # A wall clock that was set back shows the latest minute again until it has caught up.
    rows = merge(partials).withColumn("minute", F.max("minute").over(in_order))
    rows = rows.groupBy("tube", "minute").agg(
        *[F.sum(name).alias(name) for name in (*_FLOWS, *_CHANGES)]
    )
    end = rows.agg((F.max("minute") + 1).alias("end"))
    by_minute = Window.partitionBy("tube").orderBy("minute")
    so_far = {
        state: F.sum(change).over(by_minute) for state, change in zip(STATES, _CHANGES, strict=True)
    }
    if start is not None:
        rows = rows.join(F.broadcast(start), "tube", "left")
        so_far = {
            state: total + F.coalesce(F.col(state), F.lit(0)) for state, total in so_far.items()
        }
    until = F.coalesce(F.lead("minute").over(by_minute), F.col("end"))
    return rows.crossJoin(F.broadcast(end)).select(
        "tube",
        _shown(F.col("minute")).alias("minute"),
        _shown(until).alias("until"),
        *_FLOWS,
        *[total.alias(state) for state, total in so_far.items()],
    )
