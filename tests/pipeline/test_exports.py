"""Exports through Spark: the five ways to read one, and their reports of damage."""

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from beanpole.exports import BadExport
from beanpoled.cli import main
from beanpoled.eventlog.export import compact
from pyspark_beanpole import exports, inputs, session
from pyspark_beanpole.audit import Audit
from pyspark_beanpole.cli import common
from pyspark_beanpole.exports import opened
from pyspark_beanpole.inputs import Input
from tests.pipeline.double import event
from tests.pipeline.exported import write_export
from tests.pipeline.histories import History
from tests.unit.exporting.made import DAMAGES, damaged, exported

# The commands that read exports; each detects damage without Spark.
COMMANDS = {
    "report": ["pipeline", "report", "--to", "OUT", "--from"],
    "audit": ["pipeline", "audit", "--from"],
    "redrive": ["pipeline", "redrive", "--addresses", "127.0.0.1:1", "--from"],
    "job": ["pipeline", "job", "1", "--from"],
    "compact": ["events", "compact"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("what", DAMAGES)
def test_each_damage_is_one_line_and_exit_status_3_before_spark_starts(
    command: str,
    what: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "start", lambda *_, **__: pytest.fail("Spark is started"))
    directory = tmp_path / "in"
    files = exported(directory, [(0, 40, 0), (40, 20, 0), (60, 20, 0)])
    name = damaged(directory, files, what)
    words = [str(tmp_path / "out") if word == "OUT" else word for word in COMMANDS[command]]
    status = main([*words, str(directory)])
    said = capsys.readouterr().err.splitlines()
    if command == "compact" and what == "unknown":
        # It merges the files in the manifest and leaves unknown files alone.
        assert (status, said) == (0, [])
        return
    assert status == 3
    assert len(said) == 1 and name in said[0], said
    assert sorted((tmp_path / "out").glob("*")) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_export_is_one_line_and_exit_status_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "out") if word == "OUT" else word for word in COMMANDS[command]]
    assert main([*words, str(tmp_path / "none")]) == 2
    assert main([*words, "ftp://host/x"]) == 2
    exported(tmp_path / "in", [(0, 10, 0)])
    (tmp_path / "in" / "_manifest.json").write_text('{"version": 3}')
    assert main([*words, str(tmp_path / "in")]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 3
    assert "is of version 3; this program knows 1 and 2" in said[2]


def offsets(rows: list[Row]) -> list[int]:
    return sorted(row[0] for row in rows)


def test_the_data_source_reads_an_export(spark: SparkSession, tmp_path: Path) -> None:
    events = [event(number) for number in range(100)]
    files = write_export(tmp_path / "in", events, rows_max=30)
    reader = spark.read.format("beanpole").option("columns", "offset,tube")
    frame = reader.load(str(tmp_path / "in"))
    assert offsets(frame.collect()) == list(range(100))
    assert frame.columns == ["offset", "tube"]
    path = tmp_path / "in" / files[2].name
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"?" + content[41:])
    with pytest.raises(Exception, match=rf"{path.name} is damaged: its checksum is not that of"):
        frame.collect()
    path.unlink()
    with pytest.raises(Exception, match=rf"{path.name} is not there"):
        reader.load(str(tmp_path / "in")).collect()
    less = reader.option("failOnDataLoss", False).load(f"file:{tmp_path / 'in'}")
    assert offsets(less.collect()) == [*range(60), *range(90, 100)]
    with pytest.raises(Exception, match="unknown option 'minpartitions'; allowed are columns,"):
        reader.option("minPartitions", 3).load(str(tmp_path / "in")).collect()


def test_large_exports_are_checked_in_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "AHEAD_BYTES_MAX", 0)
    events = [event(number) for number in range(100)]
    files = write_export(tmp_path / "in dir%41[x]", events, rows_max=9)
    found = inputs.from_directory(spark, str(tmp_path / "in dir%41[x]"))
    assert offsets(found.events.select("offset").collect()) == list(range(100))
    path = tmp_path / "in dir%41[x]" / files[7].name
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"?" + content[41:])
    found = inputs.from_directory(spark, str(tmp_path / "in dir%41[x]"))
    with pytest.raises(Exception, match=rf"{path.name} is damaged"):
        _ = found.events
    monkeypatch.setattr(exports, "AHEAD_BYTES_MAX", 1 << 20)
    with pytest.raises(BadExport, match=rf"{path.name} is damaged"):
        inputs.from_directory(spark, str(tmp_path / "in dir%41[x]"))


@pytest.mark.long
@pytest.mark.usefixtures("interpreted")
def test_an_audit_without_lost_events_does_not_add_up(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This includes events at the beginning, to which no other event refers."""
    files = write_export(tmp_path / "in", History(3).run(100).events, rows_max=30)
    where = ["pipeline", "audit", "--from", str(tmp_path / "in")]
    assert main(where) == 0
    (tmp_path / "in" / files[0].name).unlink()
    capsys.readouterr()
    assert main([*where, "--allow-missing"]) == 1
    said = capsys.readouterr()
    assert f"passed over: {tmp_path / 'in' / files[0].name} is not there" in said.err
    assert "missing offsets: 30\n  0 to 29\n" in said.out


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("is_planned", [False, True])
def test_an_audit_begins_once_more_if_a_compaction_replaces_files(
    is_planned: bool,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_export(tmp_path / "in", History(3).run(100).events, rows_max=30)
    real = common.audited
    looks: list[int] = []

    def late(found: Input, directory: Path | None = None) -> Audit:
        if is_planned:
            _ = found.events
        looks.append(compact(str(tmp_path / "in"), "")[0])
        return real(found, directory)

    monkeypatch.setattr(common, "audited", late)
    assert main(["pipeline", "audit", "--from", str(tmp_path / "in")]) == 0
    assert "events 0 to 100: 100\n" in capsys.readouterr().out
    assert len(looks) == 2 and looks[0] > looks[1]


def test_an_export_in_an_object_store_is_read_without_hadoop(
    spark: SparkSession, tmp_path: Path, bucket: str
) -> None:
    from pyarrow.fs import FileSystem

    events = [event(number) for number in range(100)]
    write_export(tmp_path / "in", events, rows_max=30)
    store, path = FileSystem.from_uri(f"s3://test:test@events/in?allow_bucket_creation=1&{bucket}")
    for found in (tmp_path / "in").rglob("[!.]*"):
        if found.is_file():
            store.create_dir("events")
            with store.open_output_stream(f"{path}/{found.relative_to(tmp_path / 'in')}") as file:
                file.write(found.read_bytes())
    name = f"s3a://test:test@events/in?{bucket}"
    read = inputs.from_directory(spark, name)
    assert (read.cluster, list(read.spans)) == ("double", [(0, 100)])
    assert offsets(read.events.select("offset").collect()) == list(range(100))


def test_an_empty_export_has_no_events(spark: SparkSession, tmp_path: Path) -> None:
    write_export(tmp_path / "in", [])
    assert opened(str(tmp_path / "in")).rows == 0
    assert inputs.from_directory(spark, str(tmp_path / "in")).events.count() == 0
    assert spark.read.format("beanpole").load(str(tmp_path / "in")).count() == 0
