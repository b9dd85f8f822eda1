"""The audit accepts clean histories, and names each planted defect."""

import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pyspark_beanpole import chains
from pyspark_beanpole.audit import BALANCED, NAMED_MAX, UNBALANCED, Audit, audit, gaps, run_audit
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.chunks import USED_UP
from tests.pipeline import naive
from tests.pipeline.histories import DAYS, Event, History, Pace, rows

pytestmark = pytest.mark.usefixtures("interpreted")
STATES = ("ready", "reserved", "delayed", "buried")


def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(rows(events), EVENTS).cache()


def states_after(events: list[Event]) -> Counter[str]:
    """Return the number of jobs in each state after these events."""
    last = {event["job_id"]: event["state"] for event in events}
    return Counter(state for state in last.values() if state != "gone")


def kinds(result: Audit) -> dict[str, int]:
    return {finding.kind: finding.total for finding in result.findings}


def named(result: Audit, kind: str) -> tuple[str, ...]:
    return next(finding.named for finding in result.findings if finding.kind == kind)


def renumbered(events: list[Event]) -> list[Event]:
    """Return the same events with dense offsets."""
    return [{**event, "offset": number} for number, event in enumerate(events)]


def test_a_whole_history_adds_up(spark: SparkSession) -> None:
    events = History(21, Pace(jumps=True)).run(1500).events
    result = audit(frame(spark, events), first=0, end=1500, jobs=states_after(events))
    assert result.findings == ()
    assert result.exit_code == BALANCED
    assert (result.first, result.end, result.events) == (0, 1500, 1500)
    assert result.began_before == 0 and result.compared
    assert result.puts == sum(event["event"] == "put" for event in events)
    assert result.puts == result.done + result.removed + sum(result.still.values())
    assert result.lines()[-1] == "everything adds up"


@pytest.mark.long
def test_a_history_with_results_adds_up(spark: SparkSession) -> None:
    events = History(26, Pace(results=True)).run(1500).events
    result = audit(frame(spark, events), first=0, end=1500, jobs=states_after(events))
    assert result.findings == ()
    outcomes = Counter(filter(None, map(naive.outcome_of, events)))
    ends = (result.done, result.removed, result.given_up, result.expired)
    assert ends == tuple(outcomes[name] for name in ("done", "removed", "given_up", "expired"))
    assert all(ends)
    assert result.puts == sum(ends) + sum(result.still.values())
    assert f"{ends[2]:,} given up, {ends[3]:,} expired" in "\n".join(result.lines())


@pytest.mark.long
def test_a_history_with_an_administrator_adds_up(spark: SparkSession) -> None:
    events = History(29, Pace(administered=True)).run(1500).events
    moved = [event for event in events if event["event"] == "moved"]
    assert {event["state"] for event in moved} == {"moving", "ready", "delayed", "buried"}
    taken = [event for event in events if event["reason"] == "admin" and event["state"] == "gone"]
    assert any(event["state_before"] == "reserved" for event in taken)
    result = audit(frame(spark, events), first=0, end=len(events), jobs=states_after(events))
    assert result.findings == ()
    assert result.removed >= len(taken)


def test_the_ends_of_attempts_that_a_policy_used_up_add_up(spark: SparkSession) -> None:
    """The policy's event is the only one of the last release, time-out or lost connection."""
    events = History(29, Pace(administered=True)).run(900).events
    spent = used_up(events)
    assert {event["event"] for event in spent} == {"moved", "buried"}
    assert {event["reason"] for event in spent} == set(USED_UP)
    result = audit(frame(spark, events), first=0, end=len(events), jobs=states_after(events))
    assert result.findings == ()


@pytest.mark.parametrize(
    ("reason", "grown"),
    [
        ("attempts", ("releases", "timeouts")),
        ("attempts_ttr", ("timeouts", "releases")),
        ("attempts_ttr", ()),
        ("attempts_node_down", ("timeouts",)),
        ("attempts_nobody_waiting", ("buries",)),
    ],
)
def test_a_policy_moves_no_other_counters(
    spark: SparkSession, reason: str, grown: tuple[str, ...]
) -> None:
    """The end of an attempt counts as what it was, and a burial by a policy is none by a worker."""
    events = History(29, Pace(administered=True)).run(900).events
    # Without what follows, because the counter would seem wrong again there.
    end = next(event for event in used_up(events) if event["event"] == "buried")["offset"] + 1
    *earlier, last = events[:end]
    before = next(one for one in reversed(earlier) if one["job_id"] == last["job_id"])
    counters = {name: before[name] for name in ("timeouts", "releases", "buries")}
    counters |= {name: before[name] + 1 for name in grown}
    last = {**last, **counters, "reason": reason}
    result = audit(frame(spark, [*earlier, last]))
    assert kinds(result) == {chains.WRONG_COUNTER: 1}


def used_up(events: list[Event]) -> list[Event]:
    """Return the events with which a policy took reserved jobs away."""
    return [
        event
        for event in events
        if event["reason"] in USED_UP and event["state_before"] == "reserved"
    ]


@pytest.mark.long
def test_ids_that_may_be_new_places_of_jobs_are_not_missed(spark: SparkSession) -> None:
    """A job that moves behind all others of its rank consumes a number from the sequence of ids."""
    events = History(27, Pace(results=True)).run(600).events
    again = sum(one["event"] == "failed" and one["state"] == "ready" for one in events)
    assert again > 2
    moved = [{**one, "job_id": one["job_id"] + 1000 * (one["job_id"] > 5)} for one in events]
    few = [{**one, "job_id": one["job_id"] + 2 * (one["job_id"] > 5)} for one in events]
    assert kinds(audit(frame(spark, few))) == {}
    assert kinds(audit(frame(spark, moved))) == {"missing puts of jobs": 1000}


@pytest.mark.long
def test_a_history_whose_beginning_is_gone_adds_up_with_the_counts_from_before(
    spark: SparkSession,
) -> None:
    events = History(22, DAYS).run(900).events
    before = states_after(events[:400])
    rest = frame(spark, events[400:])
    result = audit(rest, first=400, end=900, jobs=states_after(events), jobs_before=before)
    assert result.findings == ()
    assert result.began_before <= before.total()
    assert result.still == {state: states_after(events)[state] for state in STATES}
    # Without the earlier counts the audit checks less, but finds no defect.
    assert audit(rest).findings == ()
    # Wrong earlier counts are reported.
    fewer = dict.fromkeys(STATES, 0)
    assert "states before the first event" in kinds(audit(rest, jobs_before=fewer))


def test_a_folder_with_a_colon_is_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run_audit(frame(spark, History(26).run(20).events), Path("at 12:30"))
    assert result.exit_code == 0
    found = {path.name for path in (tmp_path / "at 12:30").iterdir()}
    assert found == {"audit.json", "defects", "gaps"}


def test_an_empty_log_adds_up(spark: SparkSession) -> None:
    result = audit(spark.createDataFrame([], EVENTS), first=0, end=0, jobs={})
    assert (result.events, result.findings) == (0, ())


@pytest.mark.long
def test_missing_and_repeated_offsets_are_named(spark: SparkSession) -> None:
    events = History(23).run(600).events
    kept = [event for event in events if not (100 <= event["offset"] < 103)]
    result = audit(frame(spark, [*kept[:-1], kept[250]]), first=0, end=600)
    assert named(result, "missing offsets") == ("100 to 102", "599 to 599")
    assert kinds(result)["missing offsets"] == 4
    assert "  and more" not in result.lines()  # the list names both ranges
    assert named(result, "repeated offsets") == (f"{kept[250]['offset']} to {kept[250]['offset']}",)
    assert result.exit_code == UNBALANCED
    assert result.lines()[-1] == "does not add up"


@pytest.mark.long
def test_gaps_are_found_across_chunks(spark: SparkSession) -> None:
    numbers = spark.range(1_000_000).withColumnRenamed("id", "offset")
    kept = numbers.where("offset not between 200000 and 799999 and offset != 999999")
    found = sorted(tuple(row) for row in gaps(kept, "offset", 0, 1_000_000).collect())
    assert sum(end - first for _, first, end in found) == 600_001
    assert found[0][:2] == ("missing", 200_000)
    assert [before[2] == after[1] for before, after in pairwise(found)] == (
        [True] * (len(found) - 2) + [False]
    )
    assert gaps(numbers, "offset", 0, 1_000_000).collect() == []


@pytest.mark.long
def test_a_job_that_is_lost_without_an_event_makes_the_counts_differ(spark: SparkSession) -> None:
    events = History(24).run(600).events
    jobs = states_after(events)
    result = audit(frame(spark, events), jobs={**jobs, "ready": jobs["ready"] + 1})
    assert kinds(result) == {"states at the end": 1}
    ready = jobs["ready"]
    assert named(result, "states at the end") == (
        f"ready: {ready} by the events, {ready + 1} by the cluster",
    )


@pytest.mark.long
def test_a_job_without_any_event_is_missed_by_its_number(spark: SparkSession) -> None:
    events = History(25).run(600).events
    rest = renumbered([event for event in events if event["job_id"] != 40])
    result = audit(frame(spark, rest))
    assert kinds(result) == {"missing puts of jobs": 1}
    assert named(result, "missing puts of jobs") == ("40 to 40",)


def planted(events: list[Event]) -> dict[str, int]:
    """Plant one defect of each kind, each in a different job; return the jobs by defect."""
    victims: dict[str, int] = {}

    def find(kind: str, **wanted: str | None) -> int:
        """Return the index of a matching event of a job without a defect."""
        for place, event in enumerate(events):
            free = event["job_id"] not in victims.values()
            if free and all(event[name] == value for name, value in wanted.items()):
                victims[kind] = event["job_id"]
                return place
        raise AssertionError(f"the history has nothing for {kind}")

    def change(kind: str, place: int, **changes: object) -> None:
        events[place] = {**events[place], **changes}

    place = find(chains.WRONG_WAIT, event="reserved", state_before="ready")
    change(chains.WRONG_WAIT, place, wait_us=events[place]["wait_us"] + 1)
    place = find(chains.WRONG_RUN, event="deleted", state_before="reserved")
    change(chains.WRONG_RUN, place, run_us=None)
    place = find(chains.WRONG_READY, event="timed_out")
    change(chains.WRONG_READY, place, ready_at_us=events[place]["time_us"] - 1)
    # On the last event of a job, so that the counter does not seem wrong again later.
    place = find(chains.WRONG_COUNTER, event="deleted", state_before="reserved")
    change(chains.WRONG_COUNTER, place, attempt=events[place]["attempt"] + 1)
    place = find(chains.BROKEN, event="kicked", state_before="buried", state="ready")
    change(chains.BROKEN, place, state_before="delayed")
    place = find(chains.IMPOSSIBLE, event="due")
    change(chains.IMPOSSIBLE, place, event="released", releases=events[place]["releases"] + 1)
    events[:] = [
        {**event, "releases": event["releases"] + 1}
        if number > place and event["job_id"] == victims[chains.IMPOSSIBLE]
        else event
        for number, event in enumerate(events)
    ]
    place = find(chains.NO_PUT, event="put", state="ready")
    del events[place]
    place = find(chains.RESERVED_TWICE, event="touched")
    again = {"event": "reserved", "attempt": events[place]["attempt"] + 1, "worker": "n9:1:1"}
    events[place] = {**events[place], **again}
    place = find(chains.RESURRECTED, event="deleted", state_before="ready")
    ghost = {"event": "put", "state_before": "gone", "state": "ready"}
    events.append({**events[place], **ghost, "time_us": events[-1]["time_us"]})
    place = find(chains.TIME_WENT_BACK, event="deleted", state_before="buried")
    change(chains.TIME_WENT_BACK, place, time_us=1)
    return victims


def test_each_planted_defect_is_found_in_its_job(spark: SparkSession, tmp_path: Path) -> None:
    events = History(26).run(1500).events
    victims = planted(events)
    result = run_audit(frame(spark, renumbered(events)), tmp_path / "audit")
    for kind, job in victims.items():
        words = named(result, kind)
        assert any(f"job {job}, " in name for name in words), (kind, job, words)
    assert named(result, "missing puts of jobs") == (
        f"{victims[chains.NO_PUT]} to {victims[chains.NO_PUT]}",
    )
    assert "to n9:1:1, while it was reserved" in named(result, chains.RESERVED_TWICE)[0]
    assert result.exit_code == UNBALANCED
    # The tables list all findings in machine-readable form.
    table = spark.read.parquet(str(tmp_path / "audit" / "defects")).collect()
    assert {row["job_id"] for row in table} == set(victims.values())
    counts = Counter(row["kind"] for row in table)
    assert all(kinds(result)[kind] == count for kind, count in counts.items())
    said = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert said["balanced"] is False
    assert {finding["kind"] for finding in said["findings"]} == kinds(result).keys()


@pytest.mark.long
def test_only_the_first_of_many_are_named(spark: SparkSession) -> None:
    events = [{**event, "kicks": event["kicks"] + 7} for event in History(27).run(300).events]
    result = audit(frame(spark, events))
    assert kinds(result) == {chains.WRONG_COUNTER: result.puts}
    assert len(named(result, chains.WRONG_COUNTER)) == NAMED_MAX
    assert "  and more" in result.lines()


def test_the_status_is_the_answer_for_a_reader_who_has_seen_enough() -> None:
    """The reader closes the pipe early, as in `audit | head`."""
    program = """
import sys
from argparse import Namespace
from pyspark_beanpole.audit import Audit, Finding
from pyspark_beanpole.cli import audit, common

lost = Finding("missing offsets", 1, ("5 to 5",) * 20_000)
common.spark = common.events = lambda *_: None
common.audited = lambda *_: Audit(*[0] * 7, {}, True, (lost,))
sys.exit(audit.run(Namespace(json=False, to=None)))
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.wait() == UNBALANCED
