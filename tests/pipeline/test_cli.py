"""The commands `stream` and `redrive`, in this process and against doubles of nodes."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from beanpole.pb import jobs_pb2
from beanpoled.cli import main
from pyspark_beanpole.schema import EVENTS
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log, event
from tests.pipeline.exported import write_export
from tests.pipeline.histories import History
from tests.pipeline.test_streaming import numbers, of_batch, same


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
        r"batch 3 \[#{24}\] 100 of 100 events, 0 behind, [\d,]+ a second", capsys.readouterr().err
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


def test_stream_adds_statistics_up(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    log = Log(events=History(5).run(400).events)
    later = log.events[300:]
    del log.events[300:]
    node = start(log)
    where = ["--addresses", node.address, "--to", str(tmp_path)]
    assert main(["pipeline", "stream", *where, "--rows", "200", "--once", "--no-statistics"]) == 0
    log.events += later
    log.batches.clear()
    # The files written without statistics are now read to compute them.
    assert main(["pipeline", "stream", *where, "--rows", "200", "--once"]) == 0
    assert same(numbers(tmp_path), of_batch(log))
    found = spark.read.parquet(str(tmp_path / "tables" / "throughput"))
    assert found.agg({"puts": "sum"}).first() == (sum(e["event"] == "put" for e in log.events),)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            ["--start", "foo"],
            "--start 'foo' is not allowed: it must be earliest, latest, or an offset from 0 to",
        ),
        (["--start", "11"], "--start = 11 is not allowed: cluster 'double' has events to 10"),
    ],
)
def test_stream_refuses_where_it_cannot_begin(
    more: list[str], words: str, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stream(start(Log(), 10), tmp_path, *more) == 2
    assert capsys.readouterr().err.startswith(f"beanpole: {words}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s3://", "s3: is not allowed: it names no bucket"),
        ("s3a://key:secret@?region=x", "s3a: is not allowed: it names no bucket"),
        ("/dev/null", "--to /dev/null: Not a directory"),
        ("/dev/null/out", "--to /dev/null/out: Not a directory"),
    ],
)
def test_stream_refuses_what_is_no_directory(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No node is asked: `s3:///events` would be a bucket of that name."""
    assert main(["pipeline", "stream", "--addresses", "127.0.0.1:1", "--to", name]) == 2
    assert capsys.readouterr().err == f"beanpole: {words}\n"


def buried_log() -> Log:
    """A log of jobs 1 to 6: in the end 2 to 5 are buried, job 4 again after a kick."""
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


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out.splitlines()[-1]


def test_redrive_kicks_what_is_chosen(
    spark: SparkSession, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(buried_log())
    assert redrive(node, "--where", "tube = 'mail'", "--dry-run") == 0
    assert capsys.readouterr().out == "3 buried jobs\n           3  mail  buried  -\n"
    assert node.kicked == []
    assert redrive(node, "--where", "tube = 'mail' AND buries < 4") == 0
    assert last_line(capsys) == "2 kicked"
    assert node.kicked == [2, 3]
    assert redrive(node, "--state", "delayed") == 1
    node.moved = {5}
    capsys.readouterr()
    assert redrive(node) == 0
    assert last_line(capsys) == "1 kicked; 3 not: no longer buried in that queue"
    assert node.kicked == [2, 3, 4]
    buried = jobs_pb2.JOB_STATE_BURIED
    assert node.filters == [("mail", buried), ("mail", buried), ("sms", buried)]
    assert redrive(node) == 1
    assert last_line(capsys) == "0 kicked; 4 not: no longer buried in that queue"


def test_redrive_says_which_kicks_are_unsure(
    spark: SparkSession, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reply is lost, so the repetition finds nothing to kick; then no node answers."""
    node = start(buried_log())
    node.lost_kicks = range(1)
    assert redrive(node) == 3
    assert last_line(capsys) == "1 kicked; 3 perhaps: without an answer"
    assert node.kicked == [2, 3, 4, 5]
    node = start(buried_log())
    node.kicks_max = 1
    assert redrive(node, "--patience", "0") == 3
    found = capsys.readouterr()
    assert found.out.splitlines()[-1] == "           1  sms  buried  -"
    assert found.err.startswith("broken off: 3 kicked\nbeanpole: no node answers: ")
    node = start(buried_log())
    node.lost_kicks, node.kicks_max = range(1, 2), 2
    assert redrive(node, "--patience", "0") == 3
    words = "broken off: 3 kicked; 1 perhaps: without an answer\n"
    assert capsys.readouterr().err.startswith(words)


def test_redrive_leaves_jobs_of_qless_to_their_clients(
    spark: SparkSession, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    states = {"event": "buried", "state_before": "reserved", "state": "buried"}
    log.events.append(event(0, job_id=1, tube="qless:crawl", **states))
    node = start(log)
    assert redrive(node) == 1
    assert last_line(capsys) == "0 kicked; 1 not: use a client of qless"
    assert node.filters == []


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("colour = 'red'", r"with name `colour` cannot be resolved"),
        ("tube = = 1", r"Syntax error at or near '='"),
        ("", "Syntax error"),
        ("tube", "is not a boolean"),
        # Errors of constants, which the plan finds.
        ("wall_time > '2026-13-01'", "'2026-13-01' of the type"),
        ("1 / 0 = 1", "Division by zero"),
        # Errors that only the evaluation can find.
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
    printed = capsys.readouterr().err
    (said,) = [line for line in printed.splitlines() if line.startswith("beanpole: --")]
    assert "Traceback" not in printed
    assert f"--where {where!r}: " in said
    assert re.search(words, said), said
    assert said.endswith(f"its columns are {', '.join(EVENTS.names)}")
    assert node.kicked == []


def test_redrive_reads_exported_events(
    spark: SparkSession, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(Log(), 20)
    assert redrive(node, "--from", str(tmp_path)) == 2
    assert "is not a directory that `beanpole events export` wrote" in capsys.readouterr().err
    write_export(tmp_path / "in", buried_log().events)
    assert redrive(node, "--from", str(tmp_path / "in")) == 0
    assert sorted(node.kicked) == [2, 3, 4, 5]
    write_export(tmp_path / "other", buried_log().events, "other")
    assert redrive(node, "--from", str(tmp_path / "other")) == 2
    assert "of cluster 'other', --addresses are of cluster 'double'" in capsys.readouterr().err
    assert len(node.kicked) == 4


def test_redrive_refuses_events_of_another_cluster_of_the_same_name(
    spark: SparkSession, start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node = start(Log(birth="b" * 32), 20)
    write_export(tmp_path / "other", buried_log().events, birth="a" * 32)
    assert redrive(node, "--from", str(tmp_path / "other")) == 2
    words = f"with the birth id {'a' * 32}, --addresses are of the one with {'b' * 32}"
    assert words in capsys.readouterr().err
    assert node.kicked == []
    # An export or a node of release 0.3.0 does not tell it.
    node.log.birth = ""
    assert redrive(node, "--from", str(tmp_path / "other")) == 0
    assert sorted(node.kicked) == [2, 3, 4, 5]
    # But a cluster with fewer events is another one.
    more = ["--from", str(tmp_path / "other"), "--patience", "0"]
    del node.log.events[5:]
    assert redrive(node, *more) == 2
    assert "offset 14 lies beyond the events of cluster 'double'" in capsys.readouterr().err
    gone = start(Log())
    gone.stop()
    assert redrive(node, *more, "--addresses", f"{node.address},{gone.address}") == 3
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


@pytest.mark.parametrize("command", ["report", "audit"])
def test_a_folder_that_cannot_be_made_is_told_before_events_are_read(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    where = ["--from", str(tmp_path / "no export"), "--to", str(tmp_path / "file" / "out")]
    assert main(["pipeline", command, *where]) == 2
    assert capsys.readouterr().err == f"beanpole: --to {tmp_path}/file/out: Not a directory\n"


def test_no_node_is_one_line(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    node = start(Log())
    node.stop()
    assert redrive(node, "--patience", "0") == 3
    assert capsys.readouterr().err.startswith("beanpole: no node answers: 127.0.0.1:")
