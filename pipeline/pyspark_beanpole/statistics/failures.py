"""Why reservations ended without the job being done: by event and reason."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS

FAILURES: Final = ("released", "returned", "timed_out", "buried")
# Where an event has no reason, the worker gave none: the protocol has no word for it.
UNSAID: Final = "unsaid"


def failures(transitions: DataFrame, by: Sequence[str] = KEYS) -> DataFrame:
    """Return how often each (event, reason) ended a reservation, from `transitions`."""
    return (
        transitions.where(F.col("event").isin(*FAILURES))
        .groupBy(*by, "event", F.coalesce("reason", F.lit(UNSAID)).alias("reason"))
        .agg(F.sum("events").alias("count"), (F.sum("run_us") / 1e6).alias("run_s"))
    )
