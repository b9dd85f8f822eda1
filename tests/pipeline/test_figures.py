"""The figures and findings of a page, compared with a naive walk over events; no Spark."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench import pipeline_events
from pyspark_beanpole.report import collect as collecting
from pyspark_beanpole.report import series, windows
from pyspark_beanpole.report.collect import bars
from pyspark_beanpole.report.period import ANY, Asked, Period
from pyspark_beanpole.report.queues import most_failing
from pyspark_beanpole.report.series import steps_of
from pyspark_beanpole.statistics import answers
from pyspark_beanpole.statistics.keys import MINUTE_US, SECOND_US, STATES, Limits
from pyspark_beanpole.statistics.parts import reduced
from tests.pipeline import naive
from tests.pipeline.double import event
from tests.pipeline.histories import Event, History, Pace
from tests.pipeline.made import Made, made, read_of, table_of

QUICK = Pace(longest_us=61 * SECOND_US)
seeds = st.integers(0, 2**32)
many = settings(max_examples=15, deadline=None)
Row = dict[str, Any]


def wall_us(one: Event) -> int:
    wall_time: datetime = one["wall_time"]
    return round(wall_time.timestamp() * 1e6)


def cut_of(events: Sequence[Event], seed: int) -> Asked:
    """Return a period of full minutes somewhere in a log."""
    first, last = wall_us(events[0]) // MINUTE_US, wall_us(events[-1]) // MINUTE_US
    since = first + (last - first) * (seed % 7) // 10
    return Asked(since * MINUTE_US, max(since + (last - first) // 3, since + 1) * MINUTE_US)


@many
@example(seed=1)
@given(seed=seeds)
def test_the_figures_of_a_period_are_the_naive_ones(seed: int) -> None:
    events = History(seed, QUICK).run(500).events
    asked = cut_of(events, seed)
    found = made(table_of(events), asked, ranges=5, seed=seed, limits=Limits(5.0, 0.5))
    period = found.figures.period
    now = [one for one in events if period.since_us <= wall_us(one) < period.until_us]
    before = [one for one in events if period.before.since_us <= wall_us(one) < period.since_us]
    assert found.figures.events == len(now)
    for queue in [found.figures.whole, *found.figures.queues]:
        own = [one for one in now if queue.name in ("", one["tube"])]
        counts = Counter(one["event"] for one in own)
        assert queue.now.counts["puts"] == counts["put"]
        assert queue.now.failed == sum(counts[n] for n in ("timed_out", "returned", "buried"))
        ended = [
            one for one in own if one["state_before"] == "reserved" and one["event"] != "touched"
        ]
        assert queue.now.ended == len(ended)
        check_depths(queue, events, period)
        earlier = [one for one in before if queue.name in ("", one["tube"])]
        if queue.before is not None:
            puts = sum(one["event"] == "put" for one in earlier)
            assert queue.before.counts["puts"] == puts
        check_waits(queue, own)
    told = {queue.name for queue in found.figures.queues}
    assert {one["tube"] for one in now} <= told, "each queue with events is listed"


def check_waits(queue: Any, own: Sequence[Event]) -> None:
    waits = [one["wait_us"] / 1e6 for one in own if one["wait_us"] is not None]
    assert sum(queue.now.bins["wait"].jobs) == len(waits)
    if waits:
        exact = naive.percentile(waits, 99)
        assert queue.now.seconds("wait", "p99_s") == pytest.approx(exact, rel=0.01)
        late = sum(wait > 5.0 for wait in waits) / len(waits)
        assert queue.now.late_share("wait") == pytest.approx(late)
    else:
        assert queue.now.seconds("wait", "p99_s") is None


def check_depths(queue: Any, events: Sequence[Event], period: Period) -> None:
    """Check the jobs in each state at both ends of the period, and the maximum in each step."""
    steps = steps_of(period)
    now: Counter[str] = Counter()
    most = {state: np.zeros(steps.number, int) for state in STATES}
    begin: Counter[str] | None = None
    for one in [*events, None]:
        if one is not None and queue.name not in ("", one["tube"]):
            continue
        at_us = period.until_us if one is None else min(wall_us(one), period.until_us)
        if begin is None and at_us >= period.since_us:
            begin = Counter(now)
            for state in STATES:
                most[state][0] = now[state]
        if one is None or at_us >= period.until_us:
            break
        now[one["state_before"]] -= 1
        now[one["state"]] += 1
        if at_us >= period.since_us:
            place = (at_us // MINUTE_US - steps.first_min) // steps.step_min
            for state in STATES:
                most[state][place] = max(most[state][place], now[state])
    assert {state: queue.end[state] for state in STATES} == {s: now[s] for s in STATES}
    assert begin is not None
    assert {state: queue.begin[state] for state in STATES} == {s: begin[s] for s in STATES}
    for state in STATES:
        drawn = queue.course.depth[state]
        assert (drawn >= most[state]).all(), "the most in a minute is not less than was there"
        assert drawn.max() == max(most[state].max(), begin[state], now[state])


@many
@given(seed=seeds, ranges=st.integers(1, 9))
def test_windows_put_together_are_the_log(seed: int, ranges: int) -> None:
    events = History(seed, Pace(longest_us=61 * SECOND_US, jumps=True)).run(400).events
    asked = Asked(cut_of(events, seed).since_us)
    if wall_us(events[-1]) < (asked.since_us or 0):
        return
    read = read_of(table_of(events), asked, ranges=ranges, seed=seed)
    whole = reduced(table_of(events).to_batches())
    assert read.waits is not None
    one = answers.throughput(read.log, ()).to_pylist()
    assert one == answers.throughput(whole, ()).to_pylist()
    assert sum(read.waits["count"].to_pylist()) == sum(
        row["count"] for row in answers.times(read.now, ()).to_pylist() if row["kind"] == "wait"
    )


@pytest.mark.parametrize("ranges", [1, 2, 5, 8])
def test_windows_do_not_depend_on_ranges_when_a_clock_goes_back(ranges: int) -> None:
    """The second leader's clock is half an hour behind that of the first."""
    offsets_s = [*(36 * n for n in range(100)), *(1800 + 10 * n for n in range(100))]
    one = lives(1)[0]
    events = []
    for number, offset_s in enumerate(offsets_s):
        place = {"offset": number, "job_id": number + 1, "time_us": number * 10**6}
        events.append({**one, **place, "wall_time": one["wall_time"] + timedelta(seconds=offset_s)})
    asked = Asked(wall_us(one) + 3000 * SECOND_US, wall_us(one) + 7200 * SECOND_US)
    whole = made(table_of(events), asked, ranges=ranges, seed=3).figures.whole
    assert whole.now.counts["puts"] == 200 - 84
    assert whole.before is not None and whole.before.counts["puts"] == 84


def test_waits_below_zero_do_not_count_over_time() -> None:
    """The clocks of clients of qless differ."""
    events = lives(20)
    for job in range(1, 21):
        worked(events, job, -5.0 if job < 16 else 3.0, 0.001)
    [stretch] = made(table_of(events)).figures.waits
    assert stretch["p50_s"] == pytest.approx(3.0, rel=0.01)


def test_waits_over_time_have_the_percentiles_of_their_stretch() -> None:
    events = pipeline_events.make(20_000, hours=24, seed=2)
    found = made(events, ranges=4)
    rows = found.figures.waits
    assert 20 <= len(rows) <= windows.STRETCHES + 1
    columns = (events[name].to_pylist() for name in ("wall_time", "wait_us"))
    walls = [(time.timestamp() * 1e6, wait) for time, wait in zip(*columns, strict=True)]
    for row in rows:
        own: list[float] = [
            wait / 1e6
            for at_us, wait in walls
            if wait is not None and row["begin_us"] <= at_us < row["until_us"]
        ]
        assert row["p50_s"] == pytest.approx(naive.percentile(own, 50), rel=0.01)
        assert row["p99_s"] == pytest.approx(naive.percentile(own, 99), rel=0.01)


def test_a_queue_is_chosen() -> None:
    events = pipeline_events.make(20_000, hours=24, seed=2)
    found = made(events, queues=["emails", "reports"])
    assert {queue.name for queue in found.figures.queues} == {"emails", "reports"}
    tubes = Counter(events["tube"].to_pylist())
    assert found.figures.events == tubes["emails"] + tubes["reports"]
    whole = made(events).figures
    own = next(queue for queue in whole.queues if queue.name == "emails")
    again = next(queue for queue in found.figures.queues if queue.name == "emails")
    assert (own.now.counts, own.end) == (again.now.counts, again.end)
    assert "The chosen queues together" in found.html and "of queues emails, reports" in found.html


def test_the_period_before_is_beside_each_number() -> None:
    events = pipeline_events.make(60_000, hours=72, seed=3)
    found = made(events)
    figures = found.figures
    assert figures.comparable and figures.before == figures.period.before
    whole = figures.whole
    assert whole.before is not None and whole.before.counts["puts"] > 0
    assert f"before: {whole.before.counts['puts']:,} (" in found.html
    short = made(pipeline_events.make(2_000, hours=12, seed=3))
    assert short.figures.before is None and "there is nothing to compare with" in short.html
    some = made(pipeline_events.make(20_000, hours=30, seed=3))
    assert some.figures.before is not None and not some.figures.comparable
    assert "so counts are not compared" in some.html and "before: " in some.html


def lives(count: int, step_s: float = 1.0, **changes: object) -> list[Event]:
    """Return `count` puts, one every `step_s` seconds."""
    begin = datetime(2026, 3, 2, 12, tzinfo=UTC)
    found = []
    for number in range(count):
        time_us = round(number * step_s * 1e6)
        moment = {
            "time_us": time_us,
            "wall_time": begin + timedelta(microseconds=time_us),
            "ready_at_us": time_us,
            "body_bytes": 1,
            **dict.fromkeys(("attempt", "timeouts", "releases", "buries", "kicks"), 0),
        }
        found.append(event(number, job_id=number + 1, **{**moment, **changes}))
    return found


def then(events: list[Event], job: int, after_s: float, **changes: object) -> None:
    """Append an event of a job, after the last event."""
    before = next(one for one in reversed(events) if one["job_id"] == job)
    time_us = events[-1]["time_us"] + round(after_s * 1e6)
    moved = events[-1]["wall_time"] + timedelta(seconds=after_s)
    news = {
        "offset": len(events), "time_us": time_us, "wall_time": moved,
        "state_before": before["state"], "wait_us": None, "run_us": None, "reason": None,
    }  # fmt: skip
    events.append({**before, **news, **changes})


def worked(events: list[Event], job: int, wait_s: float, run_s: float, **end: object) -> None:
    """Append a reservation of a job and its end."""
    wait = {"wait_us": round(wait_s * 1e6), "attempt": 1, "node": "n0"}
    then(events, job, 0.0, event="reserved", state="reserved", **wait)
    done = {"event": "deleted", "state": "gone", "run_us": round(run_s * 1e6), **end}
    then(events, job, run_s, **done)


def words(found: Made, kind: str) -> str:
    return " ".join(one.words for one in found.findings if one.kind == kind)


def test_a_queue_that_grows_and_has_no_workers() -> None:
    found = made(table_of(lives(900)))
    [queue] = found.figures.queues
    assert queue.drain_s is None and queue.growth == 900
    assert queue.oldest is not None and queue.oldest.job_id == 1
    assert queue.oldest.age_s == 15 * 60
    assert found.kinds("default") == {"grows", "unserved", "oldest"}
    assert "ended with 900 ready jobs, and with 900 more" in words(found, "grows")
    assert "it keeps growing" in words(found, "grows")
    assert "and has none yet" in words(found, "unserved")
    assert "has a ready job, 1, that waits for 15 min" in words(found, "oldest")
    assert {one.pressing for one in found.findings} == {"bad", "warn"}
    assert found.findings[0].pressing == "bad"
    assert 'href="#q1-time"' in found.html and 'id="q1-time"' in found.html


def test_a_queue_that_drains_says_when() -> None:
    events = lives(600, 0.001)
    for job in range(1, 301):
        worked(events, job, 1.0, 0.5)
    found = made(table_of(events))
    [queue] = found.figures.queues
    minutes = queue.lately["minutes"]
    assert queue.end["ready"] == 300 and minutes == 3
    # 600 puts and 300 completions within the hour: the queue grows.
    assert queue.drain_s is None
    later = made(table_of(events), Asked(wall_us(events[600]) + MINUTE_US))
    [queue] = later.figures.queues
    ends = queue.now.counts["done"]
    rate = ends / (queue.lately["minutes"] * 60)
    assert queue.now.counts["puts"] == 0
    assert queue.drain_s == pytest.approx(300 / rate, rel=0.02)
    assert "grows" not in later.kinds("default")


def test_a_backlog_that_flows_is_none() -> None:
    events = lives(300, 0.001)
    for job in range(1, 291):
        worked(events, job, 1.0, 0.001)
    [queue] = made(table_of(events)).figures.queues
    assert (queue.end["ready"], queue.drain_s) == (10, 0.0)


@many
@example(seed=1)
@given(seed=seeds)
def test_failures_are_those_of_reservations_also_where_a_policy_ends_them(seed: int) -> None:
    """Not those of waiting jobs that an administrator buries or moves."""
    events = History(seed, QUICK._replace(administered=True)).run(500).events
    [whole] = [made(table_of(events)).figures.whole]
    held = [one for one in events if one["state_before"] == "reserved"]
    kinds = Counter(one["event"] for one in held)
    failed = sum(kinds[name] for name in ("timed_out", "returned", "buried", "moved"))
    assert whole.now.failed == failed
    assert whole.now.ended == failed + kinds["released"] + sum(map(naive.completes, held))


def test_buried_waiting_jobs_are_no_failed_reservations() -> None:
    events = lives(20, 0.001)
    for job in range(1, 21):
        then(events, job, 1.0, event="buried", state="buried")
    found = made(table_of(events))
    assert (found.figures.whole.now.failed, found.figures.whole.now.failed_share) == (0, None)
    assert "fails" not in found.kinds("default")


def test_late_failing_and_timed_out_jobs() -> None:
    events = lives(200, 0.001)
    for job in range(1, 101):
        worked(events, job, 90.0 if job <= 5 else 0.1, 45.0 if job > 90 else 0.1)
    for job in range(101, 121):
        ends: dict[str, object] = {"event": "timed_out", "state": "ready", "reason": "ttr"}
        worked(events, job, 0.1, 60.0, **ends)
    for job in range(121, 124):
        worked(events, job, 0.1, 1.0, event="buried", state="buried")
    found = made(table_of(events))
    kinds = found.kinds("default")
    assert {"late", "fails", "ttr", "buried"} <= kinds
    assert "let 4.07 % of its jobs wait longer than 1 min" in words(found, "late")
    assert "failed in 18.7 % of reservations: 23." in words(found, "fails")
    assert "lost 20 reservations (16.3 %) to the TTR, after 1 min" in words(found, "ttr")
    assert "the TTR may be too short" in words(found, "ttr")
    assert "has 3 buried jobs, 3 jobs more" in words(found, "buried")
    assert "The latest" not in found.html and "beanpole pipeline job 123 --from /srv/export" in (
        found.html
    )


def test_the_ttr_of_the_last_attempts_counts() -> None:
    """A policy's event is the only one of that end."""
    events = lives(40, 0.001)
    for job in range(1, 31):
        reason = "attempts_ttr" if job <= 3 else "attempts"
        worked(events, job, 0.1, 60.0, event="buried", state="buried", reason=reason)
    found = made(table_of(events))
    assert "lost 3 reservations (10 %) to the TTR, after 1 min" in words(found, "ttr")
    assert "buried, attempts ttr" in found.html


def test_a_release_is_not_the_most_frequent_failure() -> None:
    events = lives(40, 0.001)
    for job in range(1, 31):
        worked(events, job, 0.1, 1.0, event="released", state="ready")
    for job in range(31, 34):
        worked(events, job, 0.1, 1.0, event="buried", state="buried")
    found = made(table_of(events)).figures
    assert found.queues[0].failures[0]["event"] == "released"
    shown = most_failing(found)
    assert "buried" in shown and "released" not in shown


def test_failures_are_judged_by_the_period_before() -> None:
    def failing(share: float, before: float) -> Made:
        events = lives(400, 0.001)
        for job in range(1, 401):
            own = before if job <= 200 else share
            if job == 201:
                then(events, 400, 30.0, event="touched")
            ends: dict[str, object] = {"event": "buried", "state": "buried"}
            worked(events, job, 0.1, 1.0, **(ends if job % 100 < own * 100 else {}))
        middle = wall_us(next(one for one in events if one["event"] == "touched"))
        return made(table_of(events), Asked(middle))

    assert "fails" in failing(0.20, 0.05).kinds("default")
    assert "fails" not in failing(0.20, 0.19).kinds("default")
    assert "(5 % in the period before)" in words(failing(0.20, 0.05), "fails")


def test_nothing_stands_out_in_a_quiet_log() -> None:
    events = lives(100, 0.001)
    for job in range(1, 101):
        worked(events, job, 0.1, 0.1)
    found = made(table_of(events))
    assert found.findings == []
    assert "Nothing stands out" in found.html


def test_many_queues_are_named_by_a_few_lines() -> None:
    events = []
    for number in range(300):
        [one] = lives(1, tube=f"q{number:03}")
        news = {"offset": number, "job_id": number + 1}
        events.append({**one, **news, "wall_time": one["wall_time"] + timedelta(seconds=number)})
    then(events, 1, 3600.0, event="kicked")
    found = made(table_of(events))
    figures = found.figures
    assert (len(figures.queues), figures.queues_total) == (collecting.QUEUES_MAX, 300)
    assert sum(queue.course is not None for queue in figures.queues) == collecting.CHARTS_MAX
    assert len(found.findings) < 15
    assert "more queues have a ready job that waits for longer" in words(found, "oldest")
    assert "The first 200 of 300" in found.html


def test_a_standing_backlog_without_events_is_not_hidden() -> None:
    events = lives(50)
    events += [{**events[0], "offset": 50, "job_id": 51, "tube": "busy"}]
    events[-1]["wall_time"] = events[49]["wall_time"] + timedelta(hours=3)
    events[-1]["time_us"] += 3 * 3600 * 10**6
    found = made(table_of(events), Asked(wall_us(events[49]) + 60 * MINUTE_US))
    queue = next(queue for queue in found.figures.queues if queue.name == "default")
    assert queue.now.counts["puts"] == 0 and queue.end["ready"] == 50
    assert {"unserved", "oldest"} <= found.kinds("default")


def test_a_standing_backlog_is_not_hidden_where_a_period_ends_without_events() -> None:
    """The log goes on after the period, so nothing has happened until its end."""
    events = lives(50)
    events += [{**events[0], "offset": 50, "job_id": 51, "tube": "busy"}]
    events[-1]["wall_time"] = events[49]["wall_time"] + timedelta(hours=3)
    events[-1]["time_us"] += 3 * 3600 * 10**6
    found = made(table_of(events), Asked(wall_us(events[0]), wall_us(events[0]) + 60 * MINUTE_US))
    [queue] = found.figures.queues
    assert queue.course is not None and set(queue.course.depth["ready"].tolist()) == {50}
    assert queue.oldest is not None and queue.oldest.age_s == 3600
    assert {"unserved", "oldest"} <= found.kinds("default")
    assert "for 1 h from 2026-03-02 12:00 on, and has none yet" in words(found, "unserved")


@pytest.mark.parametrize("later_min", [0, 30])
def test_a_queue_without_workers_has_none_yet_at_the_end_of_the_log(later_min: int) -> None:
    """Nothing is known of the time after the last event, so a later end changes nothing."""
    events = lives(900)
    until_us = (wall_us(events[-1]) // MINUTE_US + 1 + later_min) * MINUTE_US
    found = made(table_of(events), Asked(wall_us(events[0]), until_us))
    assert "for 15 min from 2026-03-02 12:00 on, and has none yet" in words(found, "unserved")
    assert [one.pressing for one in found.findings if one.kind == "unserved"] == ["bad"]


def test_missing_events_come_first() -> None:
    events = History(3, QUICK).run(300).events
    del events[100:120]
    found = made(table_of(events), ANY, missing=[(100, 120)])
    assert found.findings[0].kind == "missing"
    assert "20 events are missing" in found.findings[0].words


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60))
def test_bars_hold_every_duration(durations: list[int]) -> None:
    events = lives(len(durations), 0.001)
    for number, wait_us in enumerate(durations, 1):
        then(events, number, 0.0, event="reserved", state="reserved", wait_us=wait_us)
    table = answers.bins(reduced(table_of(events).to_batches()), ())
    found = bars(table)
    assert sum(found.jobs) == len(durations)
    assert list(found.low_s) == sorted(found.low_s)
    assert all(low < high for low, high in zip(found.low_s, found.high_s, strict=True))
    assert found.low_s[0] <= min(durations) / 1e6 * 1.02
    assert found.high_s[-1] >= max(durations) / 1e6 * 0.98


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-50, 900), st.integers(1, 400), st.integers(0, 99))),
    length=st.integers(1, 800),
)
def test_the_most_of_each_step(rows: list[tuple[int, int, int]], length: int) -> None:
    steps = steps_of(Period(0, length * MINUTE_US))
    columns = [np.array([row[place] for row in rows], int) for place in range(3)]
    found = series.most(steps, columns[0], columns[0] + columns[1], columns[2])
    exact = [0] * steps.number
    for begin, lasts, value in rows:
        for minute in range(begin, begin + lasts):
            place = minute // steps.step_min
            if 0 <= place < steps.number:
                exact[place] = max(exact[place], value)
    assert found.tolist() == exact


@settings(deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(-50, 900), st.integers(1, 400), st.integers(0, 50))),
    length=st.integers(1, 800),
)
def test_the_age_of_the_oldest(rows: list[tuple[int, int, int]], length: int) -> None:
    steps = steps_of(Period(0, length * MINUTE_US))
    begin, lasts, early = (np.array([row[place] for row in rows], int) for place in range(3))
    since_us = (begin - early) * MINUTE_US
    found = series.ages(steps, begin, begin + lasts, since_us)
    exact = [0.0] * steps.number
    for first, count, more in rows:
        for minute in range(first, first + count):
            place = minute // steps.step_min
            if 0 <= place < steps.number:
                exact[place] = max(exact[place], 60.0 * (minute - first + more))
    assert found.tolist() == exact
