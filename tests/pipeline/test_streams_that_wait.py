"""Streams that must not go on by themselves.

A node is silent, the directory was taken, or a file of it is damaged.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from beanpole.client.events import Events, EventsLost
from beanpole.exporting.directory import listed
from beanpole.exports import BadExport
from beanpole.places import resolved
from pyspark_beanpole import exports
from pyspark_beanpole.exports import opened
from pyspark_beanpole.inputs import Input
from pyspark_beanpole.statistics.answers import finished
from pyspark_beanpole.statistics.chunks import COLUMNS
from pyspark_beanpole.streaming import batches
from pyspark_beanpole.streaming.stream import Settings, Stream
from tests.pipeline.conftest import Start
from tests.pipeline.double import Log
from tests.pipeline.test_streaming import NO_SPARK, catch_up, run_here


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "run", run_here)
    monkeypatch.setattr(Input, "reduce", reduced_here)


Reducer = Callable[[Iterator[pa.RecordBatch]], Mapping[str, pa.Table]]


def reduced_here(found: Input, reducer: Reducer) -> list[Mapping[str, pa.Table]]:
    """Run the tasks of `Input.reduce` in this process, in place of Spark."""
    return [reducer(found.source.read(*part, COLUMNS)) for part in found.source.ranges()]


def begun(directory: str, *addresses: str) -> Stream:
    settings = Settings(directory, addresses, 1, "earliest", 60, True, True)
    stream = Stream(settings, Events(addresses, 0))
    stream.open()
    try:
        stream.restore(NO_SPARK)
    except BadExport:
        stream.close()
        raise
    return stream


def test_events_that_a_restarting_node_has_are_not_skipped(start: Start, tmp_path: Path) -> None:
    node = start(log := Log(), 100)
    with closing(begun(str(tmp_path), node.address)) as stream:
        catch_up(stream)
    log.grow(100)
    node.first = 150
    with closing(begun(str(tmp_path), node.address, "127.0.0.1:1")) as stream:
        with pytest.raises(EventsLost) as raised:
            stream.step(NO_SPARK, 200)
        # The command waits, as for nodes that do not answer.
        assert not raised.value.certain
        assert stream.position == 100
    with closing(begun(str(tmp_path), node.address)) as stream:
        catch_up(stream)
        assert stream.directory.manifest.spans == ((0, 100), (150, 200))


def test_a_stream_whose_directory_was_taken_leaves_no_file(
    start: Start, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"s3a://test:test@events/taken/?{bucket}"
    resolved(f"{name}&allow_bucket_creation=1").files.create_dir("events")
    node = start(Log(), 100)
    with closing(begun(name, node.address)) as suspended:
        monkeypatch.setattr("beanpole.exporting.directory.OWNER_SILENT_MAX_S", 0)
        with closing(begun(name, node.address)) as other:
            other.step(NO_SPARK, 50)
            with pytest.raises(BadExport, match="was taken by another export, on "):
                suspended.step(NO_SPARK, 100)
            catch_up(other)
    assert opened(f"s3a://test:test@events/taken/events?{bucket}").spans == ((0, 100),)
    assert not [one for one in listed(resolved(name)) if "/_tries/" in one]


@pytest.mark.parametrize("ahead_bytes", [0, exports.AHEAD_BYTES_MAX])
def test_statistics_are_not_made_of_a_damaged_file(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_bytes: int
) -> None:
    """The tables would lack its events for ever, without a word."""
    # A large export is checked in tasks, a small one before they start.
    monkeypatch.setattr(exports, "AHEAD_BYTES_MAX", ahead_bytes)
    node = start(log := Log(), 100)
    with closing(begun(str(tmp_path), node.address)) as stream:
        catch_up(stream)
    log.grow(100)
    node.first = 150
    with closing(begun(str(tmp_path), node.address)) as stream:
        catch_up(stream)
        wanted = finished(stream._pieces.together())
    # The hole that --skip-lost has left is permitted.
    shutil.rmtree(tmp_path / "_parts")
    with closing(begun(str(tmp_path), node.address)) as stream:
        assert finished(stream._pieces.together())["throughput"].equals(wanted["throughput"])
    shutil.rmtree(tmp_path / "_parts")
    file = min(tmp_path.glob("events/date=*/*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadExport, match=f"{file.name} is damaged"):
        begun(str(tmp_path), node.address)
    assert not list(tmp_path.glob("_parts/*"))
