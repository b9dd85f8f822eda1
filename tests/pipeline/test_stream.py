"""Streams of events: batches, restarts from a checkpoint, and unsuitable checkpoints."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.integration.support.waiting import wait_until
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log

# The first query of a session compiles for a minute while other tests use the cores.
TIMEOUT_S = 300


class Table:
    """A stream from nodes into Parquet files, with its checkpoint."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self.files = directory / "table"
        self.checkpoint = directory / "checkpoint"
        self.query: StreamingQuery | None = None

    def start(self, *nodes: Double, once: bool = True, **options: str | int) -> StreamingQuery:
        reader = self._spark.readStream.format("beanpole").option("patienceSeconds", 1)
        reader = reader.option("addresses", ",".join(node.address for node in nodes))
        given = {"startingOffsets": "earliest", "maxRowsPerTrigger": 300, **options}
        frame = reader.options(**{name: str(value) for name, value in given.items()}).load()
        writer = frame.writeStream.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(availableNow=True) if once else writer
        self.query = writer.format("parquet").start(str(self.files))
        return self.query

    def run(self, *nodes: Double, **options: str | int) -> list[int]:
        """Read the available events; return the number of rows of each batch."""
        query = self.start(*nodes, once=True, **options)
        assert query.awaitTermination(TIMEOUT_S)
        return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]

    def offsets(self) -> list[int]:
        rows = self._spark.read.schema("offset long").parquet(str(self.files)).collect()
        return sorted(row.offset for row in rows)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[Table]:
    found = Table(spark, tmp_path)
    yield found
    if found.query is not None:
        found.query.stop()


def test_batches_are_bounded_and_a_restart_goes_on_where_it_was(table: Table, start: Start) -> None:
    node = start(log := Log(), 700)
    assert table.run(node) == [300, 300, 100]
    assert table.run(node) == []
    log.grow(400)
    other = start(log)
    node.stop()
    assert table.run(node, other, minPartitions=2) == [300, 100]
    assert table.offsets() == list(range(1100))


@pytest.mark.long
def test_a_query_that_is_stopped_anywhere_goes_on(table: Table, start: Start) -> None:
    node = start(log := Log(), 5000)
    query = table.start(node, once=False, maxRowsPerTrigger=100)
    wait_until(lambda: len(node.reads) > 2, TIMEOUT_S, "some batches")
    query.stop()
    done = len(table.offsets())
    assert done < 5000
    log.grow(100)
    table.run(node, maxRowsPerTrigger=5000)
    assert table.offsets() == list(range(5100))


def test_a_running_query_sees_what_comes_and_tells_how_far_it_is(
    table: Table, start: Start
) -> None:
    node = start(log := Log(), 10)
    query = table.start(node, once=False)
    wait_until(lambda: table.files.exists() and len(table.offsets()) == 10, TIMEOUT_S)
    log.grow(5)
    wait_until(lambda: len(table.offsets()) == 15, TIMEOUT_S, "the new events")

    def is_told() -> bool:
        progress = query.lastProgress
        assert progress is not None
        latest = progress["sources"][0]["latestOffset"]
        return json.loads(latest) == {"cluster": "double", "offset": 15} if latest else False

    wait_until(is_told, TIMEOUT_S, "the progress")


def test_a_stream_begins_at_the_latest_event(table: Table, start: Start) -> None:
    node = start(log := Log(), 50)
    assert table.run(node, startingOffsets="latest") == []
    log.grow(7)
    assert table.run(node, startingOffsets="latest") == [7]
    assert table.offsets() == list(range(50, 57))


def test_a_checkpoint_of_another_cluster_is_refused(table: Table, start: Start) -> None:
    table.run(start(Log(), 10))
    with pytest.raises(StreamingQueryException, match=r"of cluster 'double', .* of cluster 'new'"):
        table.run(start(Log("new"), 20))


@pytest.mark.long
def test_a_checkpoint_of_an_earlier_life_is_refused(table: Table, start: Start) -> None:
    table.run(start(Log(), 10))
    with pytest.raises(StreamingQueryException, match=r"offset 10 lies beyond .* end at 4"):
        table.run(start(Log(), 4))


@pytest.mark.long
def test_nodes_that_are_behind_are_waited_for(table: Table, start: Start) -> None:
    table.run(start(log := Log(), 10))
    behind, dead = start(log), start(log)
    behind.behind = 5
    dead.stop()
    # One of two is no majority: the dead node may have had more events.
    assert table.run(behind, dead) == []
    behind.behind = 0
    log.grow(2)
    assert table.run(behind, dead) == [2]
    assert table.offsets() == list(range(12))


@pytest.mark.long
def test_events_that_went_while_nobody_read(table: Table, start: Start) -> None:
    node = start(log := Log(), 10)
    table.run(node)
    log.grow(90)
    node.first = 40
    with pytest.raises(StreamingQueryException, match=r"from offset 10 on are gone.* kept is 40"):
        table.run(node)
    assert table.run(node, failOnDataLoss="false") == [60]
    assert table.offsets() == [*range(10), *range(40, 100)]
