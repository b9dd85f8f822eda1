"""The figures of the page, few for any number of events: their types, and derived shares.

`collect` computes them from statistics, `findings` judges them, `plots` and `page` draw them.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from pyspark_beanpole.report.period import Period
from pyspark_beanpole.report.series import Steps
from pyspark_beanpole.statistics.keys import MINUTE_US, SECOND_US

Row = Mapping[str, Any]
Rows = Sequence[Row]
# The states in which a job still has to be worked on.
LIVE: Final = ("ready", "reserved", "delayed")
# The events by which a reservation fails; a release is the worker's own decision, not a failure.
# The table `failures` has `moved` only of jobs that went to a dead tube after their last attempt.
FAILED: Final = ("timed_out", "returned", "buried", "failed", "moved")
# Rates at the end cover this time, or the whole period if it is shorter: long enough for jobs that
# arrive in bursts, short enough to be current.
LATELY_MIN: Final = 60
# Ready jobs that depart within this time at the present rate are no backlog.
FLOWING_S: Final = 60.0


class Outside(NamedTuple):
    """The events after a period's end that have a time in it: a clock was set back."""

    events: int = 0
    is_least: bool = False  # Whether there may be more: not all were looked at.

    def warnings(self) -> list[str]:
        """Return a warning if there are such events."""
        if not self.events:
            return []
        count = f"{'at least ' if self.is_least else ''}{self.events:,}"
        verb = "event has" if self.events == 1 else "events have"
        return [
            f"{count} {verb} a time in this period but "
            f"{'is' if self.events == 1 else 'are'} not in it: a clock was set back "
            "(docs/pipeline-statistics.md)"
        ]


class Covered(NamedTuple):
    """The log that a report covers; times are in microseconds since 1970."""

    cluster: str
    first: int
    end: int
    begin_us: int  # wall time of its first event
    last_us: int  # wall time of its last one
    # The missing ranges of offsets, each first <= offset < end.
    missing: Sequence[tuple[int, int]]
    # The option that named the events on the command line: `--from DIR`.
    source: str
    # Events before this time were skipped; None: all were read.
    passed_over_us: int | None = None
    outside: Outside = Outside()

    def warnings(self) -> list[str]:
        """Return warnings about events that the numbers lack."""
        return [*self._missing(), *self.outside.warnings()]

    def _missing(self) -> list[str]:
        if not self.missing:
            return []
        gaps = ", ".join(f"{first:,} to {end - 1:,}" for first, end in self.missing)
        return [
            f"The events of offsets {gaps} are missing: depths behind them are only relative, and "
            "times and counts lack what happened there."
        ]


class Bins(NamedTuple):
    """A histogram with a logarithmic axis: adjacent bars, in order."""

    low_s: Sequence[float]
    high_s: Sequence[float]
    jobs: Sequence[int]


class Numbers(NamedTuple):
    """The statistics of one queue, or of all queues, in one period."""

    counts: Row  # of `throughput`
    times: Mapping[str, Row]  # of `times`, by kind
    levels: Mapping[str, Row]  # of `slo`, by kind
    failures: Rows
    bins: Mapping[str, Bins]  # by kind

    @property
    def failed(self) -> int:
        """Reservations that timed out, were returned, or ended in a burial or a failure.

        `counts` would not do: it has the burials of jobs that nobody held, too.
        """
        return int(sum(row["count"] for row in self.failures if row["event"] in FAILED))

    @property
    def ended(self) -> int:
        """Reservations that ended."""
        return int(self.counts["done"] + self.counts["released"]) + self.failed

    @property
    def failed_share(self) -> float | None:
        """The share of reservations that failed; None if none ended."""
        return self.failed / self.ended if self.ended else None

    def seconds(self, kind: str, name: str) -> float | None:
        """Return a percentile or another length of `times`; None if there was none."""
        row = self.times.get(kind)
        return None if row is None or row[name] is None else float(row[name])

    def late_share(self, kind: str) -> float | None:
        """Return the share of waits or runs above the service level; None if there was none."""
        row = self.levels.get(kind)
        return None if row is None or not row["count"] else 1.0 - row["within"] / row["count"]


class Course(NamedTuple):
    """The development over time: NumPy arrays with a value for each step."""

    depth: Mapping[str, Any]  # by state: the maximum in the step
    puts: Any  # per minute
    ends: Any
    failed: Any
    age_s: Any  # of the oldest ready job


class Oldest(NamedTuple):
    """The ready job with the longest wait at the end of the period."""

    job_id: int | None  # None: several became ready in that minute, and their order is not known
    age_s: float
    queue: str


class Queue(NamedTuple):
    """All figures of one queue, or of all queues together (`name` is empty)."""

    name: str
    anchor: str  # the page's anchor of its charts
    now: Numbers
    before: Numbers | None
    course: Course | None  # None: the queue has no charts
    begin: Row  # jobs in each state at the beginning of the period
    end: Row  # and at its end
    lately: Row  # puts and ends of the last LATELY_MIN, and its `minutes`
    oldest: Oldest | None
    failures: Rows
    attempts: Rows

    @property
    def drain_s(self) -> float | None:
        """Seconds until its ready jobs are gone at the rates of the end; None if never.

        0 if there are none, or no more than depart within FLOWING_S.
        """
        ready = self.end["ready"]
        seconds = self.lately["minutes"] * 60
        ends, puts = self.lately["ends"] / seconds, self.lately["puts"] / seconds
        if ready <= ends * FLOWING_S:
            return 0.0
        return ready / (ends - puts) if ends > puts else None

    @property
    def growth(self) -> int:
        """The increase of the jobs that are still to be worked on."""
        return int(sum(self.end[state] - self.begin[state] for state in LIVE))


class Figures(NamedTuple):
    """All figures of the page."""

    covered: Covered
    period: Period
    before: Period | None  # None: the log has nothing of it
    # Whether the log covers the whole previous period, so that numbers can be compared.
    comparable: bool
    events: int  # in the period
    wait_limit_s: float
    run_limit_s: float
    asked: Sequence[str]  # the requested queues; empty: all
    steps: Steps
    whole: Queue
    queues: Sequence[Queue]  # the busiest; the first of them have charts
    queues_total: int
    days: Rows  # counts and times of each day, if there are several
    waits: Rows  # p50_s and p99_s of waits over time: begin_min, end_min
    workers: Rows
    workers_total: int
    buried: Rows
    buried_total: int
    backlog: Rows
    backlog_total: int

    @property
    def known_us(self) -> int:
        """The end of what is known of the period: nothing is, after the log's last minute."""
        return min(self.period.until_us, (self.covered.last_us // MINUTE_US + 1) * MINUTE_US)


def clock(time_us: float) -> str:
    """Format a wall time, to the minute."""
    return f"{datetime.fromtimestamp(time_us / SECOND_US, UTC):%Y-%m-%d %H:%M}"
