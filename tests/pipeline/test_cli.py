"""The commands `stream` and `redrive`, in this process and against doubles of nodes."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual as assert_equal

from beanpole.errors import ConfigurationError
from beanpoled.cli import main
from pyspark_beanpole import progress, streamed
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.tables import finished, partials
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log, event
from tests.pipeline.exported import write_export
from tests.pipeline.histories import History, rows


def offsets(spark: SparkSession, directory: Path) -> list[int]:
    rows = spark.read.parquet(str(directory / "events")).select("offset").collect()
    return sorted(row.offset for row in rows)


def stream(node: Double, directory: Path, *more: str) -> int:
    where = ["--addresses", node.address, "--to", str(directory), "--rows", "40"]
    return main(["pipeline", "stream", *where, "--once", "--no-statistics", *more])


def test_stream_writes_tables_and_goes_on(
    spark: SparkSession, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(log := Log(), 100)
    assert stream(node, tmp_path) == 0
    assert offsets(spark, tmp_path) == list(range(100))
    assert re.search(
        r"batch 2 \[#{24}\] 100 of 100 events, 0 behind, [\d,]+ a second", capsys.readouterr().err
    )
    log.grow(10)
    assert stream(node, tmp_path) == 0
    assert offsets(spark, tmp_path) == list(range(110))
    dates = {path.name for path in (tmp_path / "events").glob("date=*")}
    assert dates == {"date=2026-01-31"}


def test_stream_says_in_one_line_why_it_ended(
    spark: SparkSession, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(log := Log(), 100)
    assert stream(node, tmp_path) == 0
    log.grow(100)
    node.first = 150
    assert stream(node, tmp_path) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("beanpole: the events from offset 100 on are gone: ")
    assert stream(node, tmp_path, "--skip-lost") == 0
    assert offsets(spark, tmp_path) == [*range(100), *range(150, 200)]


def test_a_batch_that_is_written_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    write = streamed.writer(str(tmp_path), statistics=False)
    batches = [
        spark.createDataFrame([event(first + n) for n in range(100)], EVENTS).repartition(parts)
        for first, parts in ((0, 3), (100, 2), (100, 1), (0, 1))
    ]
    write(batches[0], 0)
    write(batches[3], 0)
    write(batches[1], 1)
    write(batches[2], 1)
    assert offsets(spark, tmp_path) == list(range(200))
    with pytest.raises(ConfigurationError, match="has batches of another checkpoint"):
        write(batches[0], 0)


def test_a_first_batch_of_another_checkpoint_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    write = streamed.writer(str(tmp_path), statistics=False)

    def batch(*numbers: int) -> DataFrame:
        return spark.createDataFrame([event(number) for number in range(*numbers)], EVENTS)

    # A try that was killed leaves some of its events.
    write(batch(5, 8), 0)
    write(batch(0, 10), 0)
    for other in (batch(5, 10), batch(0, 9)):
        with pytest.raises(ConfigurationError, match="has batches of another checkpoint"):
            write(other, 0)
    assert offsets(spark, tmp_path) == list(range(10))


@pytest.mark.usefixtures("interpreted")
def test_statistics_of_some_batches_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([event(number) for number in range(10)], EVENTS)
    for batch_id, statistics in enumerate((True, False)):
        streamed.writer(str(tmp_path), statistics)(
            frame.withColumn("offset", F.col("offset") + 10 * batch_id), batch_id
        )
        if statistics:
            streamed.refresh(spark, str(tmp_path))
    with pytest.raises(ConfigurationError, match="no statistics of 1 batches, 1 to 1, which were"):
        streamed.refresh(spark, str(tmp_path))


@pytest.mark.usefixtures("interpreted")
def test_stream_adds_statistics_up(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    log = Log(events=History(5).run(300).events)
    where = ["--addresses", start(log).address, "--to", str(tmp_path)]
    assert main(["pipeline", "stream", *where, "--rows", "200", "--once"]) == 0
    whole = finished(partials(spark.createDataFrame(rows(log.events), EVENTS)))
    for name in ("throughput", "histogram", "dead_letters"):
        found = spark.read.parquet(str(tmp_path / "tables" / name))
        assert_equal(found, whole[name])


def test_progress_of_an_empty_stream() -> None:
    told = {"batchId": 0, "sources": [{"endOffset": None, "latestOffset": None}]}
    assert progress.words(told).endswith("0 of 0 events, 0 behind, 0 a second")


def buried_log() -> Log:
    """Jobs 1 to 6: 2 to 5 are buried in the end, job 4 once more after a kick."""
    log = Log()
    for job in range(1, 7):
        log.events.append(event(len(log.events), job_id=job, tube="mail" if job < 5 else "sms"))
    for job in (1, 2, 3, 4, 5):
        log.events.append(bury(len(log.events), job))
    kicked = {"event": "kicked", "state_before": "buried", "state": "ready"}
    log.events.append(event(len(log.events), job_id=4, tube="mail", **kicked))
    log.events.append(bury(len(log.events), 4))
    log.events.append(
        event(len(log.events), job_id=1, event="deleted", state_before="buried", state="gone")
    )
    return log


def bury(offset: int, job: int) -> dict[str, object]:
    tube = "mail" if job < 5 else "sms"
    states = {"event": "buried", "state_before": "reserved", "state": "buried"}
    return event(offset, job_id=job, tube=tube, buries=job, **states)


def redrive(node: Double, *more: str) -> int:
    return main(["pipeline", "redrive", "--addresses", node.address, *more])


def test_redrive_kicks_what_is_chosen(
    spark: SparkSession, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(buried_log())
    assert redrive(node, "--where", "tube = 'mail'", "--dry-run") == 0
    assert capsys.readouterr().out == "3 buried jobs\n           3  mail  buried  -\n"
    assert node.kicked == []
    assert redrive(node, "--where", "tube = 'mail' AND buries < 4") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 kicked"
    assert sorted(node.kicked) == [2, 3]
    assert redrive(node, "--state", "delayed") == 1
    assert redrive(node) == 0
    assert sorted(node.kicked) == [2, 2, 3, 3, 4, 5]


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("colour = 'red'", r"with name `colour` cannot be resolved"),
        ("tube = = 1", r"Syntax error at or near '='"),
        ("", "Syntax error"),
        ("tube", "is not a boolean"),
        # What can be seen only when it is computed.
        ("tube > 3", r"'mail' of the type \"STRING\" cannot be cast to \"BIGINT\""),
        ("1 / (buries - buries) > 1", "Division by zero"),
        ("buries * 2147483647 = 1", "overflow"),
    ],
)
def test_redrive_names_what_is_wrong_with_an_expression(
    spark: SparkSession,
    start: Start,
    capsys: pytest.CaptureFixture[str],
    where: str,
    words: str,
) -> None:
    node = start(buried_log())
    assert redrive(node, "--where", where) == 2
    (said,) = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("beanpole: --")
    ]
    assert f"--where {where!r}: " in said
    assert re.search(words, said), said
    assert said.endswith(f"its columns are {', '.join(EVENTS.names)}")
    assert node.kicked == []


def test_redrive_reads_exported_events(
    spark: SparkSession, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(Log())
    assert redrive(node, "--from", str(tmp_path)) == 2
    assert "is not a directory that `beanpole events export` wrote" in capsys.readouterr().err
    write_export(tmp_path / "in", buried_log().events)
    assert redrive(node, "--from", str(tmp_path / "in")) == 0
    assert sorted(node.kicked) == [2, 3, 4, 5]
    write_export(tmp_path / "other", buried_log().events, "other")
    assert redrive(node, "--from", str(tmp_path / "other")) == 2
    assert "of cluster 'other', --addresses are of cluster 'double'" in capsys.readouterr().err
    assert len(node.kicked) == 4


@pytest.mark.usefixtures("interpreted")
def test_report_and_audit(
    spark: SparkSession, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(events=History(7).run(400).events)
    states = Counter({event["job_id"]: event["state"] for event in log.events}.values())
    log.jobs = {state: states[state] for state in ("ready", "reserved", "delayed", "buried")}
    node = start(log)
    where = ["--addresses", node.address, "--to", str(tmp_path / "report")]
    range_of_all = ["--since", "2026-01-01", "--until", "2100-01-01"]
    assert main(["pipeline", "report", *where, *range_of_all, "--audit"]) == 0
    page = tmp_path / "report" / "index.html"
    assert capsys.readouterr().out.startswith(
        f"400 events of cluster double, 2026-01-01 00:00 to 2100-01-01 00:00 UTC: {page}\n"
    )
    assert "double" in page.read_text()
    assert main(["pipeline", "audit", "--addresses", node.address, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["balanced"]
    log.jobs["ready"] += 1
    assert main(["pipeline", "audit", "--addresses", node.address]) == 1
    assert "states at the end" in capsys.readouterr().out


@pytest.mark.usefixtures("interpreted")
def test_report_names_events_that_are_missing(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [event(number) for number in (*range(5), *range(8, 14))]
    write_export(tmp_path / "in", events)
    out = tmp_path / "out"
    where = ["--from", str(tmp_path / "in"), "--to", str(out)]
    assert main(["pipeline", "report", *where]) == 3
    said = capsys.readouterr().err
    assert "in has no events 5 to 7: they were gone when it was written; --allow-missing" in said
    assert main(["pipeline", "report", *where, "--allow-missing"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("11 events of cluster double")
    words = "The events of offsets 5 to 7 are missing: depths behind them are only relative"
    assert words in said and words in (out / "index.html").read_text()
    assert json.loads((out / "summary.json").read_text())["missing"] == [[5, 8]]


def test_no_node_is_one_line(
    spark: SparkSession,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node = start(Log())
    node.stop()
    monkeypatch.setattr("pyspark_beanpole.inputs.PATIENCE_S", 0)
    assert redrive(node) == 3
    assert capsys.readouterr().err.startswith("beanpole: no node answers: 127.0.0.1:")
