"""Spark tasks that read ranges themselves yield the same numbers as one pass over all events."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from beanpole.exporting.files import GROUP_ROWS
from pyspark_beanpole import inputs
from pyspark_beanpole.exports import opened
from pyspark_beanpole.inputs import from_cluster, from_directory
from pyspark_beanpole.ranges import (
    RANGE_ROWS_MAX,
    RANGE_ROWS_MIN,
    ClusterSource,
    ExportSource,
    Source,
    first_at,
    put_from,
    split,
    step_of,
)
from pyspark_beanpole.report.period import ANY, chosen
from pyspark_beanpole.report.windows import cuts_of
from pyspark_beanpole.schema import EVENTS, arrow_schema
from pyspark_beanpole.statistics import answers, parts, reigns
from pyspark_beanpole.statistics.keys import MINUTE_US
from tests.pipeline.conftest import Start
from tests.pipeline.double import Log, event
from tests.pipeline.exported import write_export
from tests.pipeline.histories import SECOND_US, Event, History, Pace

MINUTES = Pace(longest_us=61 * SECOND_US)
NOTHING = dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)


def batch(events: list[Event]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(events, schema=arrow_schema(EVENTS))


def export(directory: Path, events: list[Event], rows_max: int = 300) -> Path:
    """Write events as an export of several small files."""
    write_export(directory, events, rows_max=rows_max)
    return directory


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split a few hundred events into many ranges, and let Spark take all looks."""
    monkeypatch.setattr("pyspark_beanpole.ranges.RANGE_ROWS_MIN", 100)
    monkeypatch.setattr("pyspark_beanpole.ranges.GROUP_ROWS", 100)
    monkeypatch.setattr(inputs, "LOOK_HERE_ROWS_MAX", 0)


@pytest.mark.usefixtures("small_ranges")
def test_ranges_of_an_export_in_tasks_give_what_one_walk_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = History(23, MINUTES).run(1500).events
    found = from_directory(spark, str(export(tmp_path / "export", events)))
    assert len(found.source.ranges()) >= 8
    kept = found.statistics()
    alone = parts.reduced([batch(events)])
    cells = answers.unresolved(alone)
    assert cells.num_rows, "a second look is needed"
    alone = {**alone, "looked": reigns.looked([batch(events)], cells)}
    for name, table in answers.finished(alone).items():
        again = answers.finished(kept)[name]
        if name == "times":
            table, again = table.drop_columns("std_s"), again.drop_columns("std_s")
        assert again.equals(table), name


@pytest.mark.usefixtures("small_ranges")
def test_ranges_of_a_cluster_in_tasks(spark: SparkSession, start: Start) -> None:
    log = Log(
        events=[
            event(n, tube=Random(n).choice(("mail", "sms")), ready_at_us=n * SECOND_US)
            for n in range(500)
        ]
    )
    nodes = [start(log), start(log)]
    found = from_cluster(spark, [node.address for node in nodes])
    kept = found.statistics(tubes=["mail"])
    [span] = kept["covered"].to_pylist()
    assert (span["first"], span["end"], span["events"]) == (0, 500, 500)
    mail = [one for one in log.events if one["tube"] == "mail"]
    [row] = answers.throughput(kept, ("tube",)).to_pylist()
    assert (row["tube"], row["puts"]) == ("mail", len(mail))
    assert all(node.reads for node in nodes), "tasks begin at different nodes"
    oldest = answers.oldest(kept).to_pylist()
    assert [row["job_id"] for row in oldest] == [mail[0]["job_id"]]


def test_tasks_look_for_nodes_as_long_as_is_asked(spark: SparkSession, start: Start) -> None:
    source = from_cluster(spark, [start(Log(), 5).address], 7).source
    assert isinstance(source, ClusterSource)
    assert source.patience_s == 7


def count(batches: Iterator[pa.RecordBatch], column: str) -> dict[str, pa.Table]:
    """Return the number of rows and the columns of the batches."""
    rows = 0
    for one in batches:
        assert set(one.schema.names) == {"offset", column}
        rows += one.num_rows
    return {"rows": pa.table({"rows": [rows]})}


def fail(batches: Iterator[pa.RecordBatch]) -> dict[str, pa.Table]:
    raise ValueError("a reducer failed")


def test_any_reducer_gets_the_columns_and_events_that_it_asks_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = History(24, MINUTES).run(700).events
    found = from_directory(spark, str(export(tmp_path / "export", events)))
    reducer = partial(count, column="tube")
    tables = found.reduce(reducer, 250, 650, ("tube",))
    assert sum(table["rows"]["rows"][0].as_py() for table in tables) == 400
    assert found.reduce(reducer, 700, 700, ("tube",)) == []
    with pytest.raises(PythonException, match="a reducer failed"):
        found.reduce(fail)


def test_a_source_knows_where_a_moment_is(tmp_path: Path, start: Start) -> None:
    log = Log()
    node = start(log, 300)
    directory = export(tmp_path / "export", log.events, rows_max=100)
    exported = ExportSource(opened(str(directory)))
    cluster = ClusterSource((node.address,), 0, 300, 1)
    sources: tuple[Source, ...] = (exported, cluster)
    for source in sources:
        edges = source.edges()
        assert edges is not None
        assert edges.last_us - edges.begin_us == 299 * SECOND_US
        for second in (0, 1, 99, 100, 250, 299):
            offset = source.offset_at(edges.begin_us + second * SECOND_US)
            assert second - 100 < offset <= second
            offset = source.offset_at_time(second * SECOND_US)
            assert second - 100 < offset <= second
        assert source.offset_at(edges.last_us + 1) == 300
        assert first_at(source, edges.last_us + 1) == 300
        assert first_at(source, edges.begin_us + 99 * SECOND_US) == 99
        assert source.offset_at_time(300 * SECOND_US) == 300
        exact = source.offset_at(edges.begin_us + 99 * SECOND_US)
    assert exact == 99, "nodes know it exactly"
    assert ClusterSource((node.address,), 7, 7, 1).edges() is None


@pytest.mark.parametrize("ahead_s", [0, 1, 61, 3000, 10**6])
def test_a_log_ends_with_its_latest_time(ahead_s: int, tmp_path: Path, start: Start) -> None:
    """The clock of a leader was ahead; a report up to the last event would lack all since."""
    log = Log()
    node = start(log, 300)
    for one in log.events[50:60]:
        one["wall_time"] += timedelta(seconds=ahead_s)  # type: ignore[operator]
    directory = export(tmp_path / "export", log.events, rows_max=100)
    walls = [datetime.timestamp(one["wall_time"]) for one in log.events]  # type: ignore[arg-type]
    sources: tuple[ExportSource | ClusterSource, ...] = (
        ExportSource(opened(str(directory))),
        ClusterSource((node.address,), 0, 300, 1),
        ClusterSource((node.address,), 0, 200, 1),
    )
    for source in sources:
        edges = source.edges()
        assert edges is not None and edges.begin_us == walls[0] * SECOND_US
        known = walls if isinstance(source, ExportSource) else walls[: source.end]
        assert edges.last_us // MINUTE_US == max(known) // 60
        assert cuts_of(source, chosen(ANY, *edges)).now == len(known)


@pytest.mark.parametrize("years", [1, 31, 33, 200])
def test_a_log_that_begins_with_a_clock_far_ahead(years: int, start: Start) -> None:
    """Its end was before its beginning if that was more than 32 years ahead."""
    node = start(log := Log(), 300)
    for one in log.events[:10]:
        one["wall_time"] += timedelta(days=366 * years)  # type: ignore[operator]
    edges = ClusterSource((node.address,), 0, 300, 1).edges()
    assert edges is not None
    assert edges.begin_us == datetime.timestamp(log.events[0]["wall_time"]) * SECOND_US  # type: ignore[arg-type]
    assert edges.last_us // MINUTE_US == edges.begin_us // MINUTE_US
    period = chosen(ANY, *edges)
    assert period.since_us <= edges.begin_us < period.until_us


def test_the_first_put_tells_which_jobs_were_there_before(tmp_path: Path) -> None:
    events = History(25, MINUTES).run(600).events
    rest = events[300:]
    whole = ExportSource(opened(str(export(tmp_path / "whole", events))))
    late = ExportSource(opened(str(export(tmp_path / "late", rest))))
    assert put_from(whole) == 0
    assert put_from(late) == next(one["job_id"] for one in rest if one["event"] == "put")


def test_jobs_that_never_had_an_event_count_where_only_numbers_are_known() -> None:
    rest = History(26, MINUTES).run(600).events[300:]
    kept = parts.reduced([batch(rest)])
    seen = sum(answers.before(kept)["ready"].to_pylist())
    start = answers.started(kept, {**NOTHING, "ready": seen + 1000})
    assert sum(start["ready"].to_pylist()) == seen + 1000
    whole = answers.whole_depth(kept, start)["ready"].to_pylist()
    known = answers.whole_depth(kept)["ready"].to_pylist()
    assert [more - less for more, less in zip(whole, known, strict=True)] == [1000] * len(whole)
    assert answers.depth(kept, start).equals(answers.depth(kept))
    assert answers.started(kept, NOTHING).equals(answers.before(kept))


@settings(deadline=None)
@given(first=st.integers(0, 10**9), rows=st.integers(0, 10**8))
def test_ranges_touch_and_are_of_a_size_that_is_worth_a_task(first: int, rows: int) -> None:
    step = step_of(rows)
    found = list(split(first, first + rows, step))
    assert [part.end for part in found[:-1]] == [part.first for part in found[1:]]
    assert sum(part.end - part.first for part in found) == rows
    if rows:
        assert (found[0].first, found[-1].end) == (first, first + rows)
    assert all(part.end - part.first <= 1.5 * RANGE_ROWS_MAX for part in found)
    if len(found) > 1:
        assert all(part.end - part.first >= RANGE_ROWS_MIN // 2 for part in found)
        assert step % GROUP_ROWS == 0 or step in (RANGE_ROWS_MIN, RANGE_ROWS_MAX)


def test_a_day_of_wall_time_is_found_in_the_metadata(tmp_path: Path) -> None:
    events = History(27).run(900).events
    source = ExportSource(opened(str(export(tmp_path / "export", events, rows_max=50))))
    middle = events[450]["wall_time"]
    offset = source.offset_at(round(middle.timestamp() * 1e6))
    assert events[offset]["wall_time"] <= middle
    assert middle - events[offset]["wall_time"] < timedelta(days=2)
