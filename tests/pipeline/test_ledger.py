"""Check the product against a ledger of its clients, written from the documentation alone.

Every reply is compared with the events of an export, and every event with the commands. Run another
size or seed by `make ledger COMMANDS=300000 SEED=7`.
"""

import asyncio
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.support.nodes import BEANPOLE, Cluster
from tests.pipeline.ledger import compare, naive, naive_depths
from tests.pipeline.ledger import events as exported
from tests.pipeline.ledger.book import Book, Burst
from tests.pipeline.ledger.events import Event
from tests.pipeline.ledger.lives import Lives
from tests.pipeline.ledger.matching import FINDINGS_MAX, Matched, match
from tests.pipeline.ledger.run import export, run
from tests.pipeline.ledger.stretching import stretch

COMMANDS: Final = int(os.environ.get("LEDGER_COMMANDS", "20000"))
SEED: Final = int(os.environ.get("LEDGER_SEED") or secrets.randbelow(1_000_000))
# A run of 20,000 commands takes some seconds; the limit allows for 200 commands a second.
TIMEOUT_S: Final = 300 + COMMANDS // 200

pytestmark = [pytest.mark.long, pytest.mark.timeout(TIMEOUT_S)]


@dataclass
class Told:
    """A run, the events of its export, and their comparison."""

    directory: Path
    book: Book
    events: list[Event]
    matched: Matched
    lives: Lives


def judge(book: Book, events: list[Event]) -> tuple[Matched, Lives]:
    matched = match(book, events)
    lives = Lives(book, matched)
    lives.follow(events)
    return matched, lives


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    directory = tmp_path_factory.mktemp("ledger")
    sys.stdout.write(f"LEDGER_SEED={SEED} LEDGER_COMMANDS={COMMANDS} in {directory}\n")
    with Cluster(directory / "cluster").running() as cluster:
        book = asyncio.run(run(cluster, COMMANDS, SEED))
        book.save(directory / "ledger.jsonl")
        export(cluster, directory / "export")
    events = exported.read(directory / "export")
    yield Told(directory, book, events, *judge(book, events))


def story(told: Told, findings: list[str]) -> str:
    head = f"{len(findings)} findings; LEDGER_SEED={SEED}, {told.directory}"
    return "\n".join([head, *findings[:FINDINGS_MAX]])


def test_each_command_is_its_events_and_each_event_is_explained(told: Told) -> None:
    findings = told.matched.findings + told.lives.findings
    assert not findings, story(told, findings)
    commands = [command for one in told.book.connections for command in one.commands]
    confirmed = sum(len(command.jobs) for command in commands)
    explained = told.matched.counts + told.lives.counts
    assert told.matched.counts["answered"] == confirmed > COMMANDS / 2
    assert explained.total() == len(told.events)
    # The run was large enough and had events of each important kind.
    assert len(commands) >= COMMANDS
    assert explained["timed_out ttr"] and explained["due"] and explained["returned connection_lost"]
    assert len({node for _, node in told.book.kills}) >= 2
    assert any(not command.reply for command in commands)
    sys.stdout.write(f"{len(commands)} commands, {dict(explained)}\n")


def test_the_jobs_at_the_end_are_those_that_the_cluster_counts(told: Told) -> None:
    last = [command for one in told.book.connections for command in one.commands][-2]
    lines = last.payload.decode().splitlines()
    states = Counter(life.state for life in told.lives.jobs.values())
    assert last.line == "stats"
    for state in ("ready", "reserved", "delayed", "buried"):
        assert f"current-jobs-{state}: {states[state]}" in lines, story(told, lines)
    assert f"total-jobs: {len(told.lives.jobs)}" in lines


def changed(event: Event, column: str) -> Event:
    """Return an event with another value in one column."""
    value: Any = getattr(event, column)
    other: dict[str, Any] = {column: f"{value}x" if isinstance(value, str) else (value or 0) + 1}
    return event._replace(**other)


# The columns that `lives` computes; the others determine the command of an event.
COMPUTED: Final = tuple(
    name
    for name in Event._fields
    if name not in ("offset", "log_index", "position", "time_us", "event", "job_id")
    and name not in ("wall_time", "node", "incarnation", "session", "external_id")
)


def test_each_wrong_column_is_found(told: Told) -> None:
    """A single wrong value in each column is reported."""
    planted = list(told.events)
    # Each in the last event of a different job: a wrong value could explain later events.
    last = [event for event in planted if event.event == "deleted" and event.run_us is not None]
    chosen = dict(zip(COMPUTED, last[:: len(last) // len(COMPUTED)], strict=False))
    for column, event in chosen.items():
        planted[event.offset] = changed(event, column)
    _, lives = judge(told.book, planted)
    for column, event in chosen.items():
        assert any(f"offset={event.offset}," in found for found in lives.findings), column


def missing(events: list[Event], at: int) -> None:
    del events[at]
    events[at:] = [event._replace(offset=event.offset - 1) for event in events[at:]]


def doubled(events: list[Event], at: int) -> None:
    events[at:] = [event._replace(offset=event.offset + 1) for event in events[at:]]
    events.insert(at, events[at]._replace(offset=at))


def of_another(events: list[Event], at: int) -> None:
    other = next(event for event in events if event.session and event.who != events[at].who)
    events[at] = events[at]._replace(session=other.session, node=other.node)


def earlier(events: list[Event], at: int) -> None:
    events[at] = events[at]._replace(wall_time=events[at].wall_time - 60_000_000)


def of_another_job(events: list[Event], at: int) -> None:
    events[at] = changed(events[at], "job_id")


def of_another_kind(events: list[Event], at: int) -> None:
    events[at] = events[at]._replace(event="touched")


@pytest.mark.parametrize(
    "plant", [missing, doubled, of_another, earlier, of_another_job, of_another_kind]
)
def test_each_wrong_event_is_found(told: Told, plant: Any) -> None:
    planted = list(told.events)
    answered = [offset for offset in told.matched.commands if planted[offset].event == "released"]
    plant(planted, answered[len(answered) // 2])
    matched, lives = judge(told.book, planted)
    assert matched.findings or lives.findings, SEED


def report(export: Path, to: Path) -> Path:
    """Write the tables of an export as docs/pipeline-statistics.md describes."""
    command = [*BEANPOLE, "pipeline", "report", "--from", str(export), "--to", str(to)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return to


@pytest.fixture(scope="module")
def reported(told: Told) -> Path:
    return report(told.directory / "export", told.directory / "report")


TABLES: Final = naive.TABLES | naive_depths.TABLES


def check_tables(events: list[Event], directory: Path) -> None:
    """Compare all tables of a report with the naive ones."""
    assert {path.name for path in (directory / "tables").iterdir()} == set(TABLES)
    found = [
        difference
        for name, table in TABLES.items()
        for difference in compare.differences(name, compare.read(directory, name), table(events))
    ]
    assert not found, "\n".join([f"LEDGER_SEED={SEED}, {directory}", *found[:FINDINGS_MAX]])


def test_every_table_is_the_naive_one(told: Told, reported: Path) -> None:
    check_tables(told.events, reported)


def test_every_table_of_hours_is_the_naive_one(told: Told) -> None:
    """The comparison with all times multiplied: two days, hundreds of minutes, slots of hours."""
    longer = told.directory / "longer"
    stretch(told.directory / "export", longer)
    events = exported.read(longer)
    assert naive.at(events[0].wall_time).date() < naive.at(events[-1].wall_time).date()
    check_tables(events, report(longer, told.directory / "report of hours"))


def test_each_wrong_value_of_a_table_is_found(told: Told) -> None:
    """In each column one value differs by two percent or by one; or a row is missing."""
    for name, table in TABLES.items():
        rows = table(told.events)
        assert not rows or compare.differences(name, rows[1:], rows), name
        for column in rows[0] if rows else ():
            wrong = [dict(row) for row in rows]
            value = wrong[-1][column]
            wrong[-1][column] = other_than(value)
            assert compare.differences(name, wrong, rows), (name, column, value, SEED)


def other_than(value: Any) -> Any:
    if isinstance(value, str | None):
        return f"{value}x"
    if isinstance(value, float):
        return value * 1.02 + 0.001
    return value + (timedelta(days=1) if isinstance(value, date) else 1)


def most(burst: Burst, depths: list[naive.Row], column: str) -> list[int]:
    """Return a column of the burst's tube in the minutes that the burst touched."""
    began, ended = (naive.at(at_us) for at_us in (burst.began_us, burst.ended_us))
    return [
        row[column]
        for row in depths
        if row["tube"] == burst.tube and began.replace(second=0, microsecond=0) <= row["minute"]
        if row["minute"] <= ended
    ]


def test_the_most_of_a_minute_is_that_of_a_burst_that_it_drained(
    told: Told, reported: Path
) -> None:
    depths = compare.read(reported, "depth")
    within_a_minute = 0
    for burst in told.book.bursts:
        for state in burst.states:
            assert max(most(burst, depths, f"{state}_max")) == burst.jobs, (SEED, burst, state)
            assert most(burst, depths, state)[-1] == 0, (SEED, burst, state)
        within_a_minute += len(most(burst, depths, "ready")) == 1
    assert within_a_minute, SEED
