"""The allowed transitions of a job, checked event by event with window functions.

Each event is compared with the earlier events of the same job: its state, its counters, and the
times computed again from `time_us`. The verdict over a whole log is in `audit`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from beanpole import events as e
from beanpole.exports import UNCOUNTED
from pyspark_beanpole.statistics.chunks import FINISHING, REMOVING, USED_UP
from pyspark_beanpole.statistics.keys import SECOND_US, STATES

# The longest time of a client, before or after 1970, whose differences are checked.
CLIENT_US_MAX: Final = 1 << 61
_FINISHED: Final = ("done", "failed")
_AT_REST: Final = ("ready", "delayed", "buried")
# The allowed transitions: (event, states before, states after).
_MOVES: Final = (
    ("put", ("gone",), ("ready", "delayed")),
    ("due", ("delayed",), ("ready",)),
    ("reserved", ("ready", "delayed", "buried"), ("reserved",)),
    ("touched", ("reserved",), ("reserved",)),
    ("released", ("reserved",), ("ready", "delayed")),
    ("returned", ("reserved",), ("ready",)),
    ("timed_out", ("reserved",), ("ready",)),
    # Not from reserved if a Workq client fails a beanstalk job that no worker holds.
    ("buried", ("ready", "delayed", "reserved"), ("buried",)),
    ("kicked", ("buried", "delayed"), ("ready",)),
    ("deleted", (*STATES, *_FINISHED), ("gone",)),
    # Events of protocols other than beanstalk, since machine version 3.
    ("done", STATES, ("done", "gone")),
    ("failed", STATES, ("failed", "gone", "ready")),
    ("expired", (*STATES, *_FINISHED), ("gone",)),
    # Since machine version 4: moved by a policy, or by an administrator, who may change order and
    # delay, too.
    ("moved", STATES, (*_AT_REST, "moving")),
    ("moved", ("moving",), _AT_REST),
)
# The transitions of qless, whose jobs have more states and move from queue to queue.
_BLOCKED: Final = ("depends", "throttled")
_WAITING: Final = ("ready", "delayed", *_BLOCKED)
_QLESS_MOVES: Final = (
    ("put", ("gone",), _WAITING),
    ("due", ("delayed",), ("ready",)),
    ("reserved", ("ready",), ("reserved",)),
    ("touched", ("reserved",), ("reserved",)),
    ("released", ("reserved",), (*_WAITING, "moving")),
    ("timed_out", ("reserved",), ("ready",)),
    ("kicked", ("failed",), ("ready", "moving")),
    ("moved", (*_WAITING, "reserved", *_FINISHED), (*_WAITING, "moving")),
    ("moved", ("moving",), _WAITING),
    ("blocked", _WAITING, _BLOCKED),
    ("unblocked", _BLOCKED, ("ready", "delayed")),
    # Not from reserved if the job arrived in this state from another server.
    ("done", ("reserved", "ready"), ("done", "gone")),
    ("failed", ("reserved", "ready"), ("failed",)),
    ("deleted", (*_WAITING, "reserved", *_FINISHED), ("gone",)),
    ("expired", ("done",), ("gone",)),
)
# Each event increments its counter of the job by 1, except those of `_used_up`; qless jobs have no
# counters.
_COUNTERS: Final = (
    ("attempt", "reserved"),
    ("timeouts", "timed_out"),
    ("releases", "released"),
    ("buries", "buried"),
    ("kicks", "kicked"),
)
NO_PUT: Final = "jobs without a put"
RESURRECTED: Final = "jobs that came back from the dead"
RESERVED_TWICE: Final = "reservations of a reserved job"
BROKEN: Final = "broken chains"
IMPOSSIBLE: Final = "impossible transitions"
WRONG_COUNTER: Final = "wrong counters"
TIME_WENT_BACK: Final = "times that went back"
WRONG_WAIT: Final = "wrong waits"
WRONG_RUN: Final = "wrong runs"
WRONG_READY: Final = "wrong times of becoming ready"
# fmt: off
# Jobs that went behind all others of their rank: each used up a number from the sequence of ids.
# A failed job does, and in Gearman's queues each job that returns; other queues may count more.
GEARMANS: Final = f"{e.PROTOCOL_NAMES[e.GEARMAN]}:%"
BACK: Final = ("returned", "released", "timed_out")
FAULTS: Final = (
    NO_PUT, RESURRECTED, RESERVED_TWICE, BROKEN, IMPOSSIBLE, WRONG_COUNTER, TIME_WENT_BACK,
    WRONG_WAIT, WRONG_RUN, WRONG_READY,
)
_NEEDED: Final = (
    "offset", "job_id", "tube", "event", "state_before", "state", "time_us", "worker", "wait_us",
    "run_us", "ready_at_us", "reason", "protocol", "client_time_us",
)
# fmt: on


def _count_of(condition: Column) -> Column:
    """Count the rows for which a condition holds."""
    return F.count(F.when(condition, 1))


def _shown(value: Column) -> Column:
    return F.coalesce(value.cast("string"), F.lit("none"))


def _possible() -> Column:
    """Return the condition that the event may lead from the state before to the state after."""
    return F.when(_of_qless(), _among(_QLESS_MOVES)).otherwise(_among(_MOVES))


def _of_qless() -> Column:
    return F.coalesce(F.col("tube").startswith(UNCOUNTED), F.lit(False))


def _among(moves: Iterable[tuple[str, Sequence[str], Sequence[str]]]) -> Column:
    possible = F.lit(False)
    for event, before, after in moves:
        move = F.col("state_before").isin(*before) & F.col("state").isin(*after)
        possible = possible | ((F.col("event") == event) & move)
    return F.coalesce(possible, F.lit(False))


def _order_faults(from_start: bool) -> list[tuple[str, Column, Column]]:
    """Return (kind, condition, description) for each fault in the order of a job's events."""
    last, before = F.col("last_state"), F.col("state_before")
    event = F.col("event")
    dead = F.coalesce(last == "gone", F.lit(False))
    twice = (event == "reserved") & (F.coalesce(last, before) == "reserved")
    apart = F.coalesce(last != before, F.lit(False))
    unborn = last.isNull() & (event != "put") & F.lit(from_start)
    return [
        (NO_PUT, unborn, F.concat(event, F.lit(" is its first event"))),
        (RESURRECTED, dead, F.concat(event, F.lit(" after it was deleted"))),
        (
            RESERVED_TWICE,
            twice & ~dead,
            F.concat(F.lit("to "), _shown(F.col("worker")), F.lit(", while it was reserved")),
        ),
        (
            BROKEN,
            apart & ~dead & ~twice,
            F.concat(event, F.lit(" from "), before, F.lit(", but it was "), last),
        ),
        (
            IMPOSSIBLE,
            ~_possible() & ~twice,
            F.concat(
                _shown(event),
                F.lit(" from "),
                _shown(before),
                F.lit(" to "),
                _shown(F.col("state")),
            ),
        ),
        (
            TIME_WENT_BACK,
            F.coalesce(F.col("time_us") < F.col("last_time_us"), F.lit(False)),
            F.concat(_shown(F.col("last_time_us")), F.lit(" us, then "), _shown(F.col("time_us"))),
        ),
    ]


def _counter_faults() -> list[tuple[str, Column, Column]]:
    """Return the counter faults: a counter moves by 1 with its event only; it is 0 before a put."""
    faults: list[tuple[str, Column, Column]] = []
    for counter, event in _COUNTERS:
        before = F.coalesce(f"last_{counter}", F.when(F.col("event") == "put", 0))
        moved = F.col("event") == event
        if event == "timed_out":  # a job whose last attempt timed out has failed
            moved |= (F.col("event") == "failed") & F.col("reason").eqNullSafe("ttr")
        # A policy's event takes the place of the one that would have ended the last attempt, as its
        # reason says. Burials are a worker's.
        if event == "buried":
            moved &= ~_used_up(USED_UP)
        elif event == "released":
            moved |= _used_up((e.REASON_NAMES[e.ATTEMPTS],))
        elif event == "timed_out":
            moved |= _used_up((e.REASON_NAMES[e.ATTEMPTS_TTR],))
        wanted = before + moved.cast("int")
        words = F.concat(
            F.lit(f"{counter} is "), _shown(F.col(counter)), F.lit(", not "), _shown(wanted)
        )
        wrong = ~_of_qless() & wanted.isNotNull() & ~wanted.eqNullSafe(F.col(counter))
        faults.append((WRONG_COUNTER, wrong, words))
    return faults


def _used_up(reasons: Sequence[str]) -> Column:
    """Return the condition that a policy took the job away at the end of its last attempt.

    Args:
        reasons: those of the event (USED_UP) that count.
    """
    by_policy = F.col("event").isin("moved", "buried") & (F.col("state_before") == "reserved")
    return by_policy & F.coalesce(F.col("reason").isin(*reasons), F.lit(False))


def _time_faults(from_start: bool) -> list[tuple[str, Column, Column]]:
    """Return the faults of waits, runs and ready times, all computed from the raw times.

    A time that began before the first event cannot be computed and is trusted.
    """
    time_us, event = F.col("time_us"), F.col("event")
    before, state = F.col("state_before"), F.col("state")
    became = (state == "ready") & (before != "ready")
    # A job is known from its put on: then no earlier ready time means that it was never ready.
    known = F.col("ready_since_us").isNotNull() | (F.col("born") == 1) | F.lit(from_start)
    ready_us = F.when(became, time_us).otherwise(F.col("ready_since_us"))
    waited = (event == "reserved") & (before == "ready")
    ran = (before == "reserved") & (event != "touched")
    # Waits of qless begin with the put or the previous attempt, by the clocks of clients.
    wait_us = F.when(waited, time_us - F.col("ready_since_us"))
    waits = ~_of_qless() & (~waited | F.col("ready_since_us").isNotNull())
    run_us = F.when(ran, time_us - F.col("reserved_since_us"))
    runs = ~_of_qless() & (~ran | F.col("reserved_since_us").isNotNull())
    ready_us = F.when(_of_qless(), F.when(state == "ready", time_us)).otherwise(ready_us)
    known |= _of_qless()
    faults = [
        (kind, checked & ~wanted.eqNullSafe(F.col(column)), _differs(column, wanted))
        for kind, column, wanted, checked in (
            (WRONG_WAIT, "wait_us", wait_us, waits),
            (WRONG_RUN, "run_us", run_us, runs),
            (WRONG_READY, "ready_at_us", ready_us, became | known),
        )
    ]
    return [*faults, _qless_run_fault(ran)]


def _qless_run_fault(ran: Column) -> tuple[str, Column, Column]:
    """Return the run fault of qless: runs are differences of client times, maybe whole seconds."""
    times = ("client_time_us", "client_since_us")
    # Clients may send any time; the differences of far ones have no 64 bits, and are trusted.
    near = F.greatest(*[F.coalesce(F.abs(name), F.lit(0)) for name in times]) < CLIENT_US_MAX
    wanted = F.when(ran & near, F.col(times[0]) - F.col(times[1]))
    differs = F.abs(F.col("run_us") - wanted) > SECOND_US
    lacks = F.col("run_us").isNull() != wanted.isNull()
    known = ~ran | (F.col("client_since_us").isNotNull() & near)
    wrong = _of_qless() & known & (lacks | F.coalesce(differs, F.lit(False)))
    return WRONG_RUN, wrong, _differs("run_us", wanted)


def _differs(column: str, wanted: Column) -> Column:
    return F.concat(F.lit(f"{column} is "), _shown(F.col(column)), F.lit(", not "), _shown(wanted))


def chained(events: DataFrame, from_start: bool) -> DataFrame:
    """Return each event with `faults`, an array of (kind, said), and the columns that `ends` needs.

    Args:
        events: of whole lives, or from some offset on.
        from_start: whether no event is older, so that every life must begin with a put.
    """
    job = Window.partitionBy("job_id").orderBy("offset")
    earlier = job.rowsBetween(Window.unboundedPreceding, -1)
    became = (F.col("state") == "ready") & (F.col("state_before") != "ready")
    links = events.select(
        *_NEEDED,
        *[counter for counter, _ in _COUNTERS],
        F.lag("state").over(job).alias("last_state"),
        F.lag("time_us").over(job).alias("last_time_us"),
        *[F.lag(counter).over(job).alias(f"last_{counter}") for counter, _ in _COUNTERS],
        F.last(F.when(became, F.col("time_us")), ignorenulls=True)
        .over(earlier)
        .alias("ready_since_us"),
        F.last(F.when(F.col("event") == "reserved", F.col("time_us")), ignorenulls=True)
        .over(earlier)
        .alias("reserved_since_us"),
        F.last(F.when(F.col("event") == "reserved", F.col("client_time_us")), ignorenulls=True)
        .over(earlier)
        .alias("client_since_us"),
        F.max(F.when(F.col("event") == "put", 1)).over(earlier).alias("born"),
        F.lead("offset").over(job).isNull().alias("is_last"),
    )
    faults = [*_order_faults(from_start), *_counter_faults(), *_time_faults(from_start)]
    each = F.array(
        *[
            F.when(wrong, F.struct(F.lit(kind).alias("kind"), said.alias("said")))
            for kind, wrong, said in faults
        ]
    )
    # A deletion that does not show that the worker has done the job.
    taken = F.coalesce(F.col("protocol").isin(*FINISHING), F.lit(False))
    taken |= F.coalesce(F.col("reason").isin(*REMOVING), F.lit(False))
    return links.select(
        "offset",
        "job_id",
        "tube",
        "event",
        "state_before",
        "state",
        "last_state",
        "is_last",
        taken.alias("taken"),
        F.array_compact(each).alias("faults"),
    )


def went_last() -> Column:
    """Return the condition that the event moved its job behind all others of its rank."""
    back = F.col("event").isin(*BACK) & F.col("tube").like(GEARMANS)
    return F.col("state").isin("ready", "delayed") & ((F.col("event") == "failed") | back)


def defects(links: DataFrame) -> DataFrame:
    """Return a row (kind, job_id, tube, offset, said) for each fault."""
    return links.select("job_id", "tube", "offset", F.explode("faults").alias("fault")).select(
        "fault.kind", "job_id", "tube", "offset", "fault.said"
    )


def ends(links: DataFrame) -> Row:
    """Count the outcomes of all jobs, in one row.

    `STATE_still` counts the jobs in that state at the end, `STATE_before` those in it before their
    first event here, and `STATE_change` is the change of their number. Jobs of qless are left out,
    because the cluster does not count them by these states. Each of FAULTS has its count.
    """
    state, before = F.col("state"), F.col("state_before")
    deleted = (F.col("event") == "deleted") & ~before.isin(*_FINISHED)
    held = deleted & (before == "reserved") & ~F.col("taken")
    failed = (F.col("event") == "failed") & (state != "ready")
    began = F.col("last_state").isNull() & (F.col("event") != "put")
    there, came = (F.when(~_of_qless(), one) for one in (state, before))
    return links.agg(
        F.count("*").alias("events"),
        _count_of(F.col("event") == "put").alias("puts"),
        _count_of(began).alias("began_before"),
        _count_of((F.col("event") == "done") | held).alias("done"),
        _count_of(deleted & ~held).alias("removed"),
        _count_of(failed).alias("given_up"),
        _count_of((F.col("event") == "expired") & ~before.isin(*_FINISHED)).alias("expired"),
        *[_count_of(F.col("is_last") & (there == name)).alias(f"{name}_still") for name in STATES],
        *[_count_of(began & (came == name)).alias(f"{name}_before") for name in STATES],
        *[
            (_count_of(there == name) - _count_of(came == name)).alias(f"{name}_change")
            for name in STATES
        ],
        *[F.sum(_faults_of(kind)).alias(kind) for kind in FAULTS],
    ).collect()[0]


def _faults_of(kind: str) -> Column:
    return F.size(F.filter("faults", lambda fault: fault["kind"] == kind))
