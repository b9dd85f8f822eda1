"""How long jobs waited and ran: one row for each wait and each run, as the events tell them.

Wait is booked on the day of the reservation and run on the day of its end, as qless does. What is
computed from these rows is in `times`, `histogram` and `slo`.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS
from pyspark_beanpole.expressions import with_day

# From ready to reserved, without a deliberate delay.
WAIT: Final = "wait"
# From reserved to deleted by its worker: what qless calls the run of a completed job.
RUN: Final = "run"
# From reserved to any other end: released, buried, timed out or returned.
UNFINISHED: Final = "unfinished"
KINDS: Final = (WAIT, RUN, UNFINISHED)


def durations(events: DataFrame) -> DataFrame:
    """Return a row (KEYS, kind, duration_us) for each wait and each end of a reservation."""
    kind = (
        F.when(F.col("wait_us").isNotNull(), WAIT)
        .when(F.col("event") == "deleted", RUN)
        .otherwise(UNFINISHED)
    )
    duration_us = F.coalesce("wait_us", "run_us")
    return (
        with_day(events)
        .where(duration_us.isNotNull())
        .select(*KEYS, kind.alias("kind"), duration_us.alias("duration_us"))
    )
