"""Exports through Spark: the five ways to read one, and what each says of damages."""

from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from beanpole.exports import BadExport
from pyspark_beanpole import exports, inputs
from pyspark_beanpole.exports import opened
from tests.pipeline.double import event
from tests.pipeline.exported import write_export


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


def test_an_empty_export_has_no_events(spark: SparkSession, tmp_path: Path) -> None:
    write_export(tmp_path / "in", [])
    assert opened(str(tmp_path / "in")).rows == 0
    assert inputs.from_directory(spark, str(tmp_path / "in")).events.count() == 0
    assert spark.read.format("beanpole").load(str(tmp_path / "in")).count() == 0
