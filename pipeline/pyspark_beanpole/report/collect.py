"""Compute the page's figures from statistics of a period, the previous one, and the log up to then.

Pure: takes the reduced statistics, and returns plain values; nothing is drawn here.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_beanpole.report import series, windows
from pyspark_beanpole.report.figures import (
    LATELY_MIN,
    Bins,
    Course,
    Covered,
    Figures,
    Numbers,
    Oldest,
    Queue,
    Row,
    Rows,
)
from pyspark_beanpole.report.findings import findings
from pyspark_beanpole.report.period import Period
from pyspark_beanpole.report.series import Steps
from pyspark_beanpole.statistics import answers
from pyspark_beanpole.statistics.grouping import ints
from pyspark_beanpole.statistics.keys import (
    KINDS,
    MINUTE_US,
    OUTCOMES,
    SECOND_US,
    STATES,
    Limits,
    Parts,
)

# The most workers, stretches and buried jobs that are listed; the tables have all.
LISTED_MAX: Final = 20
# The most queues that have a row, and the most that have charts: a longer page is not readable.
QUEUES_MAX: Final = 200
CHARTS_MAX: Final = 16
# Counts are compared if at most this share is missing at the beginning of the previous period.
MISSING_SHARE: Final = 0.01
# Bars of a histogram for each power of two.
BARS: Final = 4


class Read(NamedTuple):
    """The statistics that a report is computed from."""

    covered: Covered
    period: Period
    now: Parts  # of the period
    before: "Parts | None"  # of the previous period
    log: Parts  # of all events up to the end of the period, including both periods
    limits: Limits
    # Jobs of each tube before the first event of `log`, if known: (tube, states...).
    start: pa.Table | None = None
    # The requested queues; empty: all.
    asked: Sequence[str] = ()
    # Of `windows.waits`: the number of waits in each bin over time.
    waits: pa.Table | None = None

    @property
    def end_min(self) -> int:
        """The end of what is known of the period, in minutes.

        The log may go on after a period that ends without events: its jobs have stayed until then.
        Nothing is known of the time after the last event of the log.
        """
        last_min = self.covered.last_us // MINUTE_US + 1
        return min(-(-self.period.until_us // MINUTE_US), last_min)


def collect(read: Read) -> Figures:
    """Return all figures of the page."""
    log = _Log(read)
    now = _Answers(read.now)
    before = None if read.before is None else _Answers(read.before)
    counts = now.counts
    names = sorted(
        (counts.keys() | log.left_over()) - {""},
        key=lambda name: (-(counts[name]["puts"] + counts[name]["reserved"]), name),
    )
    whole = log.queue("", "all", now, before)
    queues = [log.queue(name, "", now, before) for name in names[:QUEUES_MAX]]
    figures = _figures(read, log, whole, queues, len(names))
    ranked = _ranked(figures)
    charted = [
        log.charted(queue._replace(anchor=f"q{number}"), now, before)
        for number, queue in enumerate(ranked[:CHARTS_MAX], 1)
    ]
    return figures._replace(
        whole=log.charted(whole, now, before), queues=[*charted, *ranked[CHARTS_MAX:]]
    )


def _figures(read: Read, log: "_Log", whole: Queue, queues: Sequence[Queue], total: int) -> Figures:
    """Return the figures without charts."""
    period = read.period
    workers = answers.workers(read.now).sort_by(
        [("reservations", "descending"), ("worker", "ascending")]
    )
    buried = answers.dead_letters(read.log)
    letters = _rows(buried.slice(max(0, buried.num_rows - LISTED_MAX)), ("buried_at",))
    backlog = log.backlog()
    has_before = read.before is not None and read.before["transitions"].num_rows > 0
    allowed_us = MISSING_SHARE * period.length_us
    return Figures(
        covered=read.covered,
        period=period,
        before=period.before if has_before else None,
        comparable=has_before and read.covered.begin_us <= period.before.since_us + allowed_us,
        events=int(ints(read.now["transitions"], "events").sum()),
        wait_limit_s=read.limits.wait_s,
        run_limit_s=read.limits.run_s,
        asked=read.asked,
        steps=log.steps,
        whole=whole,
        queues=queues,
        queues_total=total,
        days=_days(read.now),
        waits=[] if read.waits is None else windows.percentiles(read.waits, period),
        workers=workers.slice(0, LISTED_MAX).to_pylist(),
        workers_total=workers.num_rows,
        buried=letters[::-1],
        buried_total=buried.num_rows,
        backlog=backlog[:LISTED_MAX],
        backlog_total=len(backlog),
    )


def _ranked(figures: Figures) -> list[Queue]:
    """Return the queues, those that need attention first, then the others, the busiest first."""
    places: dict[str, int] = {}
    for place, finding in enumerate(findings(figures)):
        places.setdefault(finding.queue, place)
    return sorted(figures.queues, key=lambda queue: places.get(queue.name, math.inf))


class _Answers:
    """The answers for one period, by tube; "" stands for all tubes together."""

    def __init__(self, parts: Parts) -> None:
        none = dict.fromkeys(answers.throughput(parts, ()).schema.names, 0)
        self._parts = parts
        # The counts of a tube without events in the period are all 0.
        self.counts: dict[str, Row] = defaultdict(lambda: none)
        self._times: dict[str, dict[str, Row]] = defaultdict(dict)
        self._levels: dict[str, dict[str, Row]] = defaultdict(dict)
        for row in _with_whole(answers.throughput, parts):
            self.counts[row["tube"]] = row
        for row in _with_whole(answers.times, parts):
            self._times[row["tube"]][row["kind"]] = row
        for row in _with_whole(answers.levels, parts):
            self._levels[row["tube"]][row["kind"]] = row
        self.failures: dict[str, list[Row]] = defaultdict(list)
        for row in _with_whole(answers.failures, parts):
            self.failures[row["tube"]].append(row)
        self.attempts: dict[str, list[Row]] = defaultdict(list)
        for row in _with_whole(answers.attempts, parts):
            self.attempts[row["tube"]].append(row)

    def numbers(self, name: str) -> Numbers:
        """Return the numbers of a queue, without histograms."""
        failures = self.failures[name]
        return Numbers(self.counts[name], self._times[name], self._levels[name], failures, {})

    @cached_property
    def _bins(self) -> pa.Table:
        return answers.bins(self._parts, ("tube",))

    def bars(self, name: str) -> dict[str, Bins]:
        """Return the histograms of a queue, by kind."""
        if not name:
            table = answers.bins(self._parts, ())
        else:
            table = self._bins.filter(pa.compute.equal(self._bins["tube"], name))
        return {kind: bars(table.filter(pa.compute.equal(table["kind"], kind))) for kind in KINDS}


def _with_whole(answer: Any, parts: Parts) -> list[dict[str, Any]]:
    """Return rows by tube, and rows of all tubes together, whose tube is ""."""
    rows: list[dict[str, Any]] = answer(parts, ("tube",)).to_pylist()
    return [*rows, *({**row, "tube": ""} for row in answer(parts, ()).to_pylist())]


def bars(table: pa.Table) -> Bins:
    """Combine bins into BARS bars for each power of two.

    Args:
        table: of `answers.bins`, of one kind, in order.
    """
    low_s: list[float] = []
    high_s: list[float] = []
    count: list[int] = []
    columns = (table[name].to_pylist() for name in ("from_us", "width_us", "count"))
    for from_us, width_us, jobs in zip(*columns, strict=True):
        # A bin is narrow compared with a bar, so it belongs to the bar of its middle.
        number = math.floor(BARS * math.log2(from_us + width_us // 2)) if from_us else None
        low_us = 0.0 if number is None else 2 ** (number / BARS)
        high_us = 1.0 if number is None else 2 ** ((number + 1) / BARS)
        if low_s and low_s[-1] == low_us / SECOND_US:
            count[-1] += jobs
        else:
            low_s.append(low_us / SECOND_US)
            high_s.append(high_us / SECOND_US)
            count.append(jobs)
    return Bins(low_s, high_s, count)


class _Log:
    """The figures that need the log from its beginning: depths and oldest jobs in the period."""

    def __init__(self, read: Read) -> None:
        self.period = read.period
        self.steps: Steps = series.steps_of(read.period)
        start = answers.before(read.log) if read.start is None else read.start
        self._start = {row["tube"]: row for row in start.to_pylist()}
        self._since_min = read.period.since_us // MINUTE_US
        self._end_min = read.end_min
        self._depth = answers.depth(read.log, start, self._end_min)
        self._whole = answers.whole_depth(read.log, start, self._end_min)
        self._oldest = answers.oldest(read.log, self._end_min)
        self._places = _places(self._depth)

    def left_over(self) -> set[str]:
        """Return the tubes that have jobs at the beginning or at the end of the period."""
        found = set()
        # Jobs from before the log that had no event are counted without a tube.
        for name in {*self._places, *self._start} - {None}:
            begin, end = self._ends(self._of(name), name)
            if any(begin.values()) or any(end.values()):
                found.add(name)
        return found

    def queue(self, name: str, anchor: str, now: _Answers, before: _Answers | None) -> Queue:
        """Return all figures of a queue except its charts."""
        rows = self._of(name)
        begin, end = self._ends(rows, name)
        earlier = None
        if before is not None and before.counts[name]["puts"] + before.counts[name]["reserved"]:
            earlier = before.numbers(name)
        failures = sorted(now.failures[name], key=lambda row: -row["count"])
        return Queue(
            name, anchor, now.numbers(name), earlier, None, begin, end, self._lately(rows),
            self._eldest(name), failures, now.attempts[name],
        )  # fmt: skip

    def charted(self, queue: Queue, now: _Answers, before: _Answers | None) -> Queue:
        """Return a queue with the figures of its charts."""
        name = queue.name
        earlier = queue.before
        if earlier is not None and before is not None:
            earlier = earlier._replace(bins=before.bars(name))
        return queue._replace(
            now=queue.now._replace(bins=now.bars(name)), before=earlier, course=self._course(name)
        )

    def backlog(self) -> Rows:
        """Return stretches without reservations that reach into the period, the longest first."""
        found = []
        for row in _rows(answers.backlog(self._depth), ("begin", "until")):
            begin_us = max(row["begin_us"], self.period.since_us)
            until_us = min(row["until_us"], self._end_min * MINUTE_US)
            minutes = (until_us - begin_us) // MINUTE_US
            if minutes > 0:
                times = {"begin_us": begin_us, "until_us": until_us, "minutes": minutes}
                found.append({**row, **times})
        return sorted(found, key=lambda row: (-row["minutes"], row["tube"], row["begin_us"]))

    def _of(self, name: str) -> pa.Table:
        """Return the rows of `depth` of a tube, or of all together, before the period's end."""
        table = self._whole if not name else self._depth.slice(*self._places.get(name, (0, 0)))
        return table.slice(0, int(np.searchsorted(_minutes(table, "minute"), self._end_min)))

    def _ends(self, rows: pa.Table, name: str) -> tuple[Row, Row]:
        """Return the number of jobs in each state at the beginning and at the end of the period."""
        known = [self._start.get(name, {})] if name else list(self._start.values())
        start = {state: sum(row.get(state, 0) for row in known) for state in STATES}

        def at(place: int) -> Row:
            if not place:
                return start
            return {state: rows[state][place - 1].as_py() for state in STATES}

        minute = _minutes(rows, "minute")
        return at(int(np.searchsorted(minute, self._since_min))), at(len(minute))

    def _lately(self, rows: pa.Table) -> Row:
        minutes = max(min(LATELY_MIN, self._end_min - self._since_min), 1)
        first = int(np.searchsorted(_minutes(rows, "minute"), self._end_min - minutes))
        late = rows.slice(first)
        ends = sum(int(ints(late, name).sum()) for name in OUTCOMES)
        return {"minutes": minutes, "puts": int(ints(late, "puts").sum()), "ends": ends}

    def _eldest(self, name: str) -> Oldest | None:
        """Return the oldest ready job at the end of the period."""
        begin, until = (_minutes(self._oldest, column) for column in ("begin", "until"))
        there = (begin <= self._end_min) & (self._end_min < until)
        rows = _rows(self._oldest.filter(pa.array(there)), ("ready_since",))
        rows = [row for row in rows if not name or row["tube"] == name]
        if not rows:
            return None
        row = min(rows, key=lambda row: row["ready_since_us"])
        age_s = (self._end_min * MINUTE_US - row["ready_since_us"]) / SECOND_US
        return Oldest(row["job_id"], age_s, row["tube"])

    def _course(self, name: str) -> Course:
        steps, rows = self.steps, self._of(name)
        minute, until = _minutes(rows, "minute"), _minutes(rows, "until")
        until = np.minimum(until, self._end_min)
        begin, _ = self._ends(rows.slice(0, 0), name)
        depth = {}
        for state in STATES:
            # A row's maximum counts within its minute, and its final value after that.
            within = series.most(steps, minute, minute + 1, ints(rows, f"{state}_max"))
            behind = series.most(steps, minute + 1, until, ints(rows, state))
            depth[state] = np.maximum(within, behind)
            if begin[state]:
                first = minute[:1] if len(minute) else np.array([self._end_min])
                low = np.array([min(self._since_min, int(first[0]))])
                early = series.most(steps, low, first, np.array([begin[state]]))
                depth[state] = np.maximum(depth[state], early)
        per = 1 / steps.step_min
        ends = sum(ints(rows, outcome) for outcome in OUTCOMES)
        oldest = self._oldest
        if name:
            oldest = oldest.filter(pa.compute.equal(oldest["tube"], name))
        age_s = series.ages(
            steps,
            _minutes(oldest, "begin"),
            np.minimum(_minutes(oldest, "until"), self._end_min + 1),
            ints(oldest, "ready_since"),
        )
        return Course(
            depth,
            series.summed(steps, minute, ints(rows, "puts")) * per,
            series.summed(steps, minute, ends) * per,
            series.summed(steps, minute, ints(rows, "failed")) * per,
            age_s,
        )


def _places(table: pa.Table) -> dict[str, tuple[int, int]]:
    """Return the place of each tube's rows, which are adjacent: (first, count)."""
    found: dict[str, tuple[int, int]] = {}
    runs = pa.compute.run_end_encode(table["tube"].combine_chunks())
    chunks = runs.chunks if isinstance(runs, pa.ChunkedArray) else [runs]
    begin = 0
    for chunk in chunks:
        ends = chunk.run_ends.to_pylist()
        for name, end in zip(chunk.values.to_pylist(), ends, strict=True):
            found[name] = (begin, end - begin)
            begin = end
    return found


def _minutes(table: pa.Table, name: str) -> Any:
    return ints(table, name) // MINUTE_US


def _rows(table: pa.Table, times: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows with times in microseconds, named NAME_us."""
    for name in times:
        table = table.append_column(f"{name}_us", pa.array(ints(table, name)))
    return [dict(row) for row in table.drop_columns(list(times)).to_pylist()]


def _days(parts: Parts) -> Rows:
    times: dict[Any, dict[str, Row]] = defaultdict(dict)
    for row in answers.times(parts, ("day",)).to_pylist():
        times[row["day"]][row["kind"]] = row
    return [
        {"day": row["day"], "counts": row, "times": times[row["day"]]}
        for row in answers.throughput(parts, ("day",)).to_pylist()
    ]
