"""The reduced parts of events yield the numbers of a naive walk, for any split into ranges.

Random histories are cut at random and merged in random order; no Spark.
"""

from collections import Counter
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given

from pyspark_beanpole.statistics import answers, reigns
from pyspark_beanpole.statistics.keys import KEYS, OUTCOMES
from pyspark_beanpole.statistics.parts import SCHEMAS, merged, reduced, with_looked
from tests.pipeline import double, naive
from tests.pipeline.double import BEGAN
from tests.pipeline.histories import TUBES, Event, History, Pace
from tests.pipeline.kept import (
    DAYS,
    FAILING,
    JUMPS,
    MINUTES,
    Row,
    batch,
    by_key,
    history,
    many,
    scattered,
    seeds,
    whole,
)


@many
@example(seed=1)
@given(seed=seeds)
def test_the_same_events_give_the_same_numbers_in_any_ranges(seed: int) -> None:
    events = history(seed, JUMPS, count=Random(seed).choice((1, 2, 40, 900)))
    one, other = (answers.finished(parts) for parts in (whole(events), scattered(events, seed)))
    for name, table in one.items():
        if name != "times":
            assert other[name].equals(table), name
    for row, again in zip(one["times"].to_pylist(), other["times"].to_pylist(), strict=True):
        std_s = row.pop("std_s")
        assert again.pop("std_s") == (std_s and pytest.approx(std_s, rel=1e-9))
        assert again == row


@many
@example(seed=1)
@given(seed=seeds)
def test_counts_are_the_naive_ones(seed: int) -> None:
    events = history(seed, DAYS)
    parts = scattered(events, seed)
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for event in events:
        cell = counts.setdefault(naive.key_of(event), Counter())
        if event["event"] == "put":
            cell.update(puts=1, put_bytes=event["body_bytes"], growth=1)
        elif outcome := naive.outcome_of(event):
            cell.update({outcome: 1, "growth": -1})
        if event["event"] in answers.NAMED:
            cell[event["event"]] += 1
    found = by_key(answers.throughput(parts), *KEYS)
    assert found.keys() == counts.keys()
    for key, cell in counts.items():
        numbers = {name: value for name, value in found[key].items() if name not in KEYS}
        assert numbers == {name: cell[name] for name in numbers}
        assert cell.keys() <= numbers.keys() | {""}
    [total] = answers.throughput(parts, ()).to_pylist()
    assert total["puts"] == sum(cell["puts"] for cell in counts.values())
    tried = by_key(answers.attempts(parts), *KEYS, "outcome", "attempts")
    ended = Counter(
        (*naive.key_of(event), outcome, event["attempt"])
        for event in events
        if (outcome := naive.outcome_of(event))
    )
    assert {key: row["jobs"] for key, row in tried.items()} == ended
    reasons: Counter[tuple[Any, ...]] = Counter()
    spent_s: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        ends = event["state_before"] == "reserved" and event["event"] != "touched"
        if ends and not naive.completes(event):
            key = (*naive.key_of(event), event["event"], event["reason"] or "unsaid")
            reasons[key] += 1
            spent_s[key] += event["run_us"] / 1e6
    failed = by_key(answers.failures(parts), *KEYS, "event", "reason")
    assert {key: row["count"] for key, row in failed.items()} == reasons
    assert {key: row["run_s"] for key, row in failed.items()} == pytest.approx(spent_s)


@many
@example(seed=1)
@given(seed=seeds)
def test_workers_are_known_by_their_host(seed: int) -> None:
    events = history(seed, DAYS)
    found = by_key(answers.workers(scattered(events, seed)), "worker")
    owners = {naive.worker_of(event) for event in events} - {None}
    assert found.keys() == {(owner,) for owner in owners}
    assert {worker for (worker,) in found} <= {"10.0.0.1", "10.0.0.2", "n2"}
    ends_total = failed_total = 0
    for (worker,), row in found.items():
        own = [event for event in events if naive.worker_of(event) == worker]
        happened = Counter(event["event"] for event in own)
        ended = [e for e in own if e["state_before"] == "reserved" and e["event"] != "touched"]
        failed = sum(event["event"] in FAILING for event in ended)
        assert row["reservations"] == happened["reserved"]
        assert row["done"] == sum(map(naive.completes, ended))
        # Also where a job's own limit or a policy ended it after its last attempt.
        reasons = Counter((event["reason"] or "").removeprefix("attempts_") for event in ended)
        lost = reasons["ttr"] + reasons["connection_lost"] + reasons["node_down"]
        assert row["lost_leases"] == lost
        assert row["tubes"] == len({event["tube"] for event in own})
        assert row["failed"] == failed
        assert row["failed_share"] == (pytest.approx(failed / len(ended)) if ended else None)
        busy_s = sum(event["run_us"] for event in ended) / 1e6
        assert row["busy_s"] == pytest.approx(busy_s)
        # In a log whose beginning is gone, reservations may have begun before it.
        begun_us = min(event["time_us"] - (event["run_us"] or 0) for event in own)
        present_s = (own[-1]["time_us"] - begun_us) / 1e6
        assert row["present_s"] == pytest.approx(present_s)
        assert row["utilisation"] == (pytest.approx(busy_s / present_s) if present_s else None)
        ends_total, failed_total = ends_total + len(ended), failed_total + failed
    for row in found.values():
        share = failed_total / ends_total if ends_total else None
        assert row["fleet_failed_share"] == (pytest.approx(share) if ends_total else None)


def test_the_words_of_a_worker_lose_no_lease() -> None:
    """The reason of a failed job of qless is its group, as its worker names it."""
    ends = [("failed", "qless", "ttr"), ("failed", "gearman", "ttr"), ("buried", "beanstalk", None)]
    events = [event for event in history(1, DAYS) if event["event"] == "buried"][: len(ends)]
    events = [
        {**one, "node": "n0", "host": None, "state_before": "reserved", "event": event}
        | {"protocol": protocol, "reason": reason}
        for one, (event, protocol, reason) in zip(events, ends, strict=True)
    ]
    [row] = answers.workers(whole(events)).to_pylist()
    assert (row["failed"], row["lost_leases"]) == (3, 1)


LEASE = {"event": "reserved", "state_before": "ready", "state": "reserved"}
QLESS = {"protocol": "qless", "tube": "qless:mail"}


def test_a_reservation_from_before_a_log_counts_from_its_beginning() -> None:
    hour_s, host = 3600, {"host": "10.0.0.9"}
    end = {"event": "deleted", "state_before": "reserved", "state": "gone", **host}
    events = [
        at(7, 10 * hour_s, **end, run_us=9 * hour_s * 10**6),
        at(8, 10 * hour_s + 60, **LEASE, **host, job_id=2),
        at(9, 11 * hour_s, **end, job_id=2, run_us=(hour_s - 60) * 10**6),
    ]
    [row] = answers.workers(whole(events)).to_pylist()
    assert (row["busy_s"], row["present_s"]) == (10 * hour_s - 60, 10 * hour_s)
    assert row["utilisation"] == pytest.approx(1, rel=0.01)


def test_a_lock_of_qless_that_times_out_is_not_charged_to_who_takes_the_job() -> None:
    end = {"state_before": "reserved", **QLESS}
    events = [
        at(0, 0, ready_at_us=0, **QLESS),
        at(1, 1, **LEASE, **QLESS, worker="w1", host="10.0.0.1"),
        at(2, 99, **end, event="timed_out", state="ready", host="10.0.0.2", run_us=98_000_000),
        at(3, 99, **LEASE, **QLESS, worker="w2", host="10.0.0.2"),
        at(4, 100, **end, event="done", state="done", host="10.0.0.2", run_us=1_000_000),
    ]
    found = by_key(answers.workers(whole(events)), "worker")
    assert found["10.0.0.1",]["reservations"] == 1
    taker = found["10.0.0.2",]
    names = ("reservations", "done", "timed_out", "lost_leases", "failed", "busy_s")
    assert tuple(taker[name] for name in names) == (1, 1, 0, 0, 0, 1)
    [failure] = answers.failures(whole(events)).to_pylist()
    assert (failure["event"], failure["count"]) == ("timed_out", 1)


def test_an_administrator_who_deletes_a_reserved_job_is_no_worker() -> None:
    end = {"event": "deleted", "state_before": "reserved", "state": "gone", "reason": "admin"}
    events = [
        at(0, 0, ready_at_us=0),
        at(1, 1, **LEASE, host="10.0.0.1"),
        at(2, 3601, **end, host=None, node="n1", run_us=3600 * 10**6),
    ]
    [row] = answers.workers(whole(events)).to_pylist()
    assert (row["worker"], row["reservations"], row["busy_s"]) == ("10.0.0.1", 1, 0)


@many
@example(seed=1)
@given(seed=seeds)
def test_dead_letters_are_the_jobs_that_are_buried_at_the_end(seed: int) -> None:
    events = history(seed, MINUTES)
    parts = scattered(events, seed)
    last = {event["job_id"]: event["state"] for event in events}
    burials = {event["job_id"]: event for event in naive.burials(events)}
    buried = {job: event for job, event in burials.items() if last[job] == "buried"}
    found = by_key(answers.dead_letters(parts), "job_id")
    assert {job for (job,) in found} == buried.keys()
    assert parts["buried"].num_rows == len(buried), "nothing is kept of those that came out"
    for (job,), row in found.items():
        for column in set(row) - {"buried_at"}:
            assert row[column] == buried[job][column], column
        assert row["buried_at"] == buried[job]["wall_time"]


def test_a_change_of_a_buried_job_is_no_burial() -> None:
    events = [
        at(0, 0),
        at(1, 1, event="reserved", state_before="ready", state="reserved"),
        at(2, 2, event="buried", state_before="reserved", state="buried", worker="n0:1:1"),
        at(3, 3600, event="moved", state_before="buried", state="buried", reason="admin"),
    ]
    for parts in (whole(events), scattered(events, 1)):
        [row] = answers.dead_letters(parts).to_pylist()
        assert (row["offset"], row["worker"], row["reason"]) == (2, "n0:1:1", None)
        assert row["buried_at"] == BEGAN + timedelta(seconds=2)


def at(offset: int, after_s: float, **columns: Any) -> Event:
    """Return an event of job 1, some time after the beginning of the log."""
    times = {"time_us": round(after_s * 1e6), "wall_time": BEGAN + timedelta(seconds=after_s)}
    return double.event(offset, **{"job_id": 1, **times, **columns})


def shown(table: pa.Table, *names: str) -> dict[tuple[str, datetime], Row]:
    return {
        (row.get("tube", ""), row["minute"]): {name: row[name] for name in names}
        for row in table.to_pylist()
    }


@many
@example(seed=2)
@given(seed=seeds)
def test_depth_is_what_a_walk_through_the_events_finds(seed: int) -> None:
    events = history(seed, JUMPS if seed % 2 else MINUTES)
    parts = scattered(events, seed)
    names = [name for state in naive.DEPTHS for name in (state, f"{state}_max")]
    depth, total = answers.depth(parts), answers.whole_depth(parts)
    assert shown(depth, *names) == naive.at_most(events)
    assert shown(total, *names) == naive.at_most(events, together=True)
    flows = Counter(outcome for event in events if (outcome := naive.outcome_of(event)))
    flows.update(
        puts=sum(event["event"] == "put" for event in events),
        reservations=sum(event["event"] == "reserved" for event in events),
        failed=sum(
            event["event"] in FAILING and event["state_before"] == "reserved" for event in events
        ),
    )
    for name, amount in flows.items():
        assert sum(depth[name].to_pylist()) == sum(total[name].to_pylist()) == amount
    last = total.to_pylist()[-1]
    left = flows["puts"] - sum(flows[name] for name in OUTCOMES)
    at_work = sum(last[state] for state in naive.DEPTHS[:4])
    assert at_work == left, "no job is lost"
    ends = {row["tube"]: row["until"] for row in depth.to_pylist()}
    assert set(ends.values()) == {last["until"]}, "the last rows hold until the end"


def burst(jobs: int) -> list[Event]:
    """Return events of jobs that are put and done within one minute."""
    history = History(1, Pace(longest_us=1))
    for _ in range(jobs):
        history._put()
    for job in list(history.jobs):
        if job.state == "delayed":
            history._wake(job, "due")
    for job in list(history.jobs):
        history._reserve(job)
        history._delete(job)
    return history.events


def test_depths_of_chosen_tubes_reach_the_end_of_the_log() -> None:
    mail = at(0, 0, tube="mail", ready_at_us=0)
    other = at(1, 3600, job_id=2, tube="other", ready_at_us=3_600_000_000)
    parts = reduced([batch([mail, other])], tubes=["mail"])
    until = BEGAN + timedelta(minutes=61)
    [row], [whole_row] = (f(parts).to_pylist() for f in (answers.depth, answers.whole_depth))
    assert row["until"] == whole_row["until"] == until
    [stretch] = answers.backlog(answers.depth(parts)).to_pylist()
    assert (stretch["until"], stretch["minutes"]) == (until, 61)


def test_a_state_that_is_not_known_at_the_start_is_null() -> None:
    """A report that skips earlier events knows of no jobs that keep a result."""
    gone = at(10, 0, tube="workq:m", event="expired", state_before="done", state="gone")
    parts = whole([gone])
    start = answers.before(parts).drop_columns(["kept"])
    for table in (answers.depth(parts, start), answers.whole_depth(parts, start)):
        assert table.select(["ready", "kept", "kept_max"]).to_pylist() == [
            {"ready": 0, "kept": None, "kept_max": None}
        ]
        assert table.schema == answers.depth(parts).select(table.schema.names).schema


def test_a_burst_that_is_drained_within_a_minute_shows_its_maximum() -> None:
    events = burst(500)
    for cut in (0, 100, 400, 700, len(events)):
        parts = merged([reduced([batch(events[cut:])]), reduced([batch(events[:cut])])])
        [row] = answers.whole_depth(parts).to_pylist()
        assert (row["ready"], row["reserved"]) == (0, 0)
        assert (row["ready_max"], row["reserved_max"]) == (500, 1)
        assert row["puts"] == row["done"] == 500


@many
@example(seed=11)
@given(seed=seeds)
def test_depth_of_a_log_whose_beginning_is_gone_counts_the_jobs_that_were_there(seed: int) -> None:
    events = history(seed, MINUTES)
    rest = events[Random(seed).randrange(len(events)) :]
    parts = scattered(rest, seed)
    expected = naive.first_states(rest)
    if rest[0]["offset"] == 0:
        expected = {}
    started = {
        row["tube"]: {state: row[state] for state in naive.DEPTHS if row[state]}
        for row in answers.before(parts).to_pylist()
    }
    assert started == expected
    rows = answers.depth(parts).to_pylist()
    assert all(row[state] >= 0 for row in rows for state in naive.DEPTHS)
    put_from = next((event["job_id"] for event in rest if event["event"] == "put"), 2**60)
    hinted = reduced([batch(rest)], put_from=put_from)
    assert answers.before(hinted).equals(answers.before(reduced([batch(rest)])))
    given = answers.depth(parts, pa.table({"tube": ["mail"], "ready": [10**6]}))
    assert all(row["ready"] > 5 * 10**5 for row in given.to_pylist() if row["tube"] == "mail")


@many
@example(seed=4)
@given(seed=seeds)
def test_backlog_is_the_minutes_in_which_nobody_took_what_was_there(seed: int) -> None:
    events = history(seed, MINUTES)
    found: dict[str, set[datetime]] = {tube: set() for tube in TUBES}
    ends: dict[str, set[datetime]] = {tube: set() for tube in TUBES}
    stretches = answers.backlog(answers.depth(scattered(events, seed))).to_pylist()
    for row in stretches:
        assert row["until"] - row["begin"] == timedelta(minutes=row["minutes"])
        for number in range(row["minutes"]):
            found[row["tube"]].add(row["begin"] + timedelta(minutes=number))
        ends[row["tube"]] |= {row["begin"], row["until"]}
    for tube in TUBES:
        assert found[tube] == naive.unserved(events, tube)
        own = [row for row in stretches if row["tube"] == tube]
        assert len(ends[tube]) == 2 * len(own), "stretches that touch are one"


@many
@example(seed=5)
@given(seed=seeds)
def test_the_oldest_ready_job_is_known_at_every_full_minute(seed: int) -> None:
    events = history(seed, MINUTES)
    parts = scattered(events, seed)
    cells = answers.unresolved(parts)
    pieces = [reigns.looked([batch(events[low : low + 250])], cells) for low in range(0, 700, 250)]
    parts = with_looked(parts, pieces)
    found: dict[str, dict[datetime, tuple[int, datetime]]] = {tube: {} for tube in TUBES}
    for row in answers.oldest(parts).to_pylist():
        at = row["begin"]
        while at < row["until"]:
            assert at not in found[row["tube"]], "reigns do not overlap"
            found[row["tube"]][at] = (row["job_id"], row["ready_since"])
            at += timedelta(minutes=1)
    assert found == {tube: naive.oldest(events, tube) for tube in TUBES}


def test_the_oldest_is_so_by_cluster_time_when_the_wall_clock_drifts() -> None:
    """The job that was ready first left later, after the wall clock had jumped ahead."""
    rows = {
        "tube": ["mail", "mail"],
        "first": [11, 11],
        "end": [12, 12],
        "ready_at_us": [1_000, 1_005],
        "since_us": [600_000_030, 600_000_010],
        "job_id": [8, 7],
    }
    assert reigns.merged("left", pa.table(rows, reigns.LEFT))["job_id"].to_pylist() == [8]


@many
@example(seed=6)
@given(seed=seeds)
def test_the_oldest_job_of_a_log_whose_beginning_is_gone(seed: int) -> None:
    events = history(seed, MINUTES)
    rest = events[Random(seed).randrange(len(events) - 1) :]
    parts = scattered(rest, seed)
    parts = with_looked(parts, [reigns.looked([batch(rest)], answers.unresolved(parts))])
    until = rest[-1]["wall_time"] + timedelta(minutes=1)
    for tube in TUBES:
        ready: dict[int, int] = {}
        for event in rest:
            if event["tube"] == tube:
                since = ready.pop(event["job_id"], None)
                if event["state"] == "ready" and event["state_before"] != "ready":
                    ready[event["job_id"]] = event["time_us"]
                elif event["state"] == "ready" and since is not None:
                    ready[event["job_id"]] = since  # only its priority changed
        eldest = min(((since, job) for job, since in ready.items()), default=(0, 0))[1]
        rows = [row for row in answers.oldest(parts).to_pylist() if row["tube"] == tube]
        last = [row["job_id"] for row in rows if row["until"] >= until]
        # The job has a reign unless it became the oldest after the last full minute.
        assert last in ([eldest], []) if eldest else last == []


def test_queues_of_qless_have_no_oldest_job() -> None:
    """Their events tell when a job becomes ready, and not when a job that leaves became so."""
    events = [
        at(0, 0, ready_at_us=0, **QLESS),
        at(1, 1, **LEASE, **QLESS),
        at(2, 2, **QLESS, event="done", state_before="reserved", state="done"),
        at(3, 600, job_id=2, tube="mail", ready_at_us=600_000_000),
    ]
    rows = answers.oldest(whole(events)).to_pylist()
    assert {row["tube"] for row in rows} == {"mail"}


def test_a_job_is_the_oldest_after_a_log_that_ends_on_a_full_minute() -> None:
    for last_s in (3599.9, 3600.0, 3600.1):
        mail = at(0, 0, tube="mail", ready_at_us=0)
        other = at(1, last_s, job_id=2, tube="other", ready_at_us=round(last_s * 1e6))
        rows = by_key(answers.oldest(whole([mail, other])), "tube")
        minutes = int(last_s // 60) + 2  # up to and including the first one after the end
        assert rows["mail",]["until"] == BEGAN + timedelta(minutes=minutes), last_s


def test_a_job_that_nobody_looked_for_is_as_old_as_its_minute() -> None:
    events = burst(40)[:40]
    row = answers.oldest(reduced([batch(events)])).to_pylist()[0]
    assert row["job_id"] is None
    [tube] = [cell for cell in TUBES if cell == row["tube"]]
    first = min(event["wall_time"] for event in events if event["tube"] == tube)
    assert timedelta(0) <= first - row["ready_since"] < timedelta(minutes=1)


@many
@given(seed=seeds)
def test_only_the_chosen_tubes_are_counted(seed: int) -> None:
    events = history(seed, MINUTES)
    parts = reduced([batch(events)], tubes={"mail", "nothing"})
    own = [event for event in events if event["tube"] == "mail"]
    assert shown(answers.depth(parts), "ready_max", "ready") == {
        key: {name: row[name] for name in ("ready_max", "ready")}
        for key, row in naive.at_most(own).items()
    }
    [total] = answers.throughput(parts, ()).to_pylist()
    assert total["puts"] == sum(event["event"] == "put" for event in own)
    [span] = parts["covered"].to_pylist()
    assert (span["first"], span["end"], span["events"]) == (0, len(events), len(events))


def test_columns_may_be_dictionaries_and_those_of_an_older_version_lack() -> None:
    events = [{**event, "host": None} for event in history(3, MINUTES)]
    rows = batch(events)
    names = [name for name in rows.schema.names if name != "host"]
    old = rows.select(names).slice(0, 300)
    columns = [
        column.dictionary_encode() if pa.types.is_string(column.type) else column
        for column in rows.columns
    ]
    new = pa.RecordBatch.from_arrays(columns, rows.schema.names)
    mixed = [old, *[new.slice(first, 30) for first in range(300, len(events), 30)]]
    for name, table in reduced(mixed).items():
        assert equal(table, reduced([rows])[name]), name


def equal(table: pa.Table, other: pa.Table) -> bool:
    """Compare tables, except for the order of rows and the last digits of squared differences."""
    names = [column for column in table.schema.names if column != "m2_us2"]
    order = [(column, "ascending") for column in names]
    return bool(table.select(names).sort_by(order).equals(other.select(names).sort_by(order)))


def test_no_events_give_empty_tables() -> None:
    for parts in (reduced([]), merged([]), merged([reduced([]), reduced([])])):
        assert {name: table.schema for name, table in parts.items()} == SCHEMAS
        for name, table in answers.finished(parts).items():
            assert table.num_rows == 0, name


def test_tables_have_the_same_columns_with_and_without_events() -> None:
    empty, some = (answers.finished(reduced(b)) for b in ([], [batch(history(1, MINUTES))]))
    for name, table in some.items():
        assert empty[name].schema == table.schema, name


def test_ranges_that_overlap_are_refused() -> None:
    events = history(1, MINUTES)
    parts = [reduced([batch(events[:300])]), reduced([batch(events[299:])])]
    with pytest.raises(ValueError, match="ranges overlap"):
        merged(parts)
