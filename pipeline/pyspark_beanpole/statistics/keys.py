"""The vocabulary of statistics: grouping keys, states, kinds of durations, limits.

Days and minutes are those of the leader's wall clock in UTC, whatever time zone a session has.
Durations come from cluster time, which does not jump.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

# Partial statistics by name; `parts.SCHEMAS` has the columns.
Parts: TypeAlias = "Mapping[str, pa.Table]"

# The finest granularity of a day's rows; anything coarser is their sum.
KEYS: Final = ("day", "tube", "protocol")

SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
DAY_US: Final = 86_400 * SECOND_US

# The states of unfinished jobs; `gone` is the state before a put and after the end.
STATES: Final = ("ready", "reserved", "delayed", "buried")
# Jobs that are done or have failed, but keep their result until their TTL ends.
KEPT: Final = "kept"
# All states that depths count: puts minus ends of jobs equal the sum of these.
DEPTHS: Final = (*STATES, KEPT)

# From ready to reserved, without a deliberate delay.
WAIT: Final = "wait"
# From reserved to the end of the job by its worker: what qless calls the run of a completed job.
RUN: Final = "run"
# From reserved to any other end of the reservation.
UNFINISHED: Final = "unfinished"
KINDS: Final = (WAIT, RUN, UNFINISHED)

# The ends of a job: completed by its worker; deleted while no worker held it; failed and not
# retried; expired because its TTL ended first.
OUTCOMES: Final = ("done", "removed", "given_up", "expired")

# The default limits of a wait and a run: a minute is the TTR that most clients ask for.
WAIT_SLO_S: Final = 60.0
RUN_SLO_S: Final = 60.0


class Limits(NamedTuple):
    """The longest wait and run within the service level, in seconds."""

    wait_s: float = WAIT_SLO_S
    run_s: float = RUN_SLO_S


DEFAULT_LIMITS: Final = Limits()
