"""The data source over real gRPC and real Spark, against doubles of nodes that can fail."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from beanpole.errors import ConfigurationError
from beanpoled.eventlog import columns
from pyspark_beanpole import readers
from pyspark_beanpole.options import for_stream
from pyspark_beanpole.schema import EVENTS, arrow_schema
from tests.pipeline.conftest import Start
from tests.pipeline.double import BEGAN, Double, Log, stream


def load(spark: SparkSession, *nodes: Double, **options: object) -> DataFrame:
    reader = spark.read.format("beanpole").option("patienceSeconds", 1)
    reader = reader.option("addresses", ",".join(node.address for node in nodes))
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_the_schema_is_what_spark_wants_of_arrow(spark: SparkSession) -> None:
    assert arrow_schema(EVENTS) == to_arrow_schema(EVENTS, timezone="UTC")
    # The nodes send the same schema.
    assert arrow_schema(EVENTS) == columns.schema()


def test_all_events_are_read_by_several_tasks(spark: SparkSession, start: Start) -> None:
    log = Log()
    first, second = start(log, 1000), start(log)
    found = load(spark, first, second, minPartitions=3)
    assert found.schema == EVENTS
    assert offsets(found) == list(range(1000))
    assert sorted(first.reads) == [(0, 333), (666, 1000)]
    assert second.reads == [(333, 666)]


def test_values_arrive_as_they_are(spark: SparkSession, start: Start) -> None:
    node = start(log := Log(), 2)
    log.events[1].update(tube="münze", wait_us=2**40, attempt=3, reason=None)
    row = load(spark, node, startingOffsets=1).collect()[0].asDict()
    expected = {**log.events[1], "wall_time": row["wall_time"]}
    assert row == expected
    wall = load(spark, node).selectExpr("cast(unix_micros(wall_time) as string) us").collect()
    assert [one.us for one in wall] == ["1769860800000000", "1769860801000000"]


def test_times_are_written_as_other_tools_read_them(
    spark: SparkSession, start: Start, tmp_path: Path
) -> None:
    """Microseconds and UTC, in the file as in pandas, as our sessions are configured."""
    node = start(Log(), 2)
    load(spark, node).coalesce(1).write.parquet(str(tmp_path / "events"))
    (file,) = (tmp_path / "events").glob("*.parquet")
    column = pq.read_metadata(file).schema.column(EVENTS.names.index("wall_time"))
    assert column.physical_type == "INT64"
    assert pq.read_schema(file).field("wall_time").type == pa.timestamp("us", "UTC")
    assert pq.read_table(file).to_pandas()["wall_time"].min() == BEGAN


def test_only_the_offset_has_a_reserved_name(spark: SparkSession) -> None:
    """The docs name this column and its quoting."""
    spark.conf.set("spark.sql.ansi.enforceReservedKeywords", "true")
    try:
        words = spark.sql("SELECT keyword FROM sql_keywords() WHERE reserved").collect()
    finally:
        spark.conf.unset("spark.sql.ansi.enforceReservedKeywords")
    reserved = {row.keyword for row in words}
    assert [name for name in EVENTS.names if name.upper() in reserved] == ["offset"]


def test_an_empty_log_has_no_rows(spark: SparkSession, start: Start) -> None:
    assert offsets(load(spark, start(Log()), minPartitions=4)) == []


def test_the_end_is_pinned_when_the_tasks_are_planned(spark: SparkSession, start: Start) -> None:
    node = start(log := Log(), 100)
    found = load(spark, node)
    assert found.count() == 100
    log.grow(50)
    assert found.count() == 100
    assert load(spark, node).count() == 150


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": 10, "endingOffsets": 77}, range(10, 77)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"endingOffsets": '{"cluster": "double", "offset": 65}'}, range(65)),
        ({"startingTimestamp": "2026-01-31T12:03:00"}, range(180, 200)),
        ({"startingTimestamp": "2026-01-31T12:02:59.5Z", "endingOffsets": 182}, range(180, 182)),
        ({"startingTimestamp": "2027-01-01T00:00:00"}, range(0)),
        ({"endingTimestamp": "2026-01-31T12:00:07"}, range(7)),
        ({"endingTimestamp": "2027-01-01T00:00:00"}, range(200)),
        (
            {
                "startingTimestamp": "2026-01-31T12:00:07",
                "endingTimestamp": "2026-01-31T12:02:00",
                "endingOffsets": 9,
            },
            range(7, 120),
        ),
    ],
)
def test_ranges(
    spark: SparkSession, start: Start, options: dict[str, object], expected: range
) -> None:
    behind = start(log := Log(), 200)
    behind.behind = 190
    found = load(spark, behind, start(log), minPartitions=2, **options)
    assert offsets(found) == list(expected)


def test_columns_are_chosen_by_an_option_or_a_schema(spark: SparkSession, start: Start) -> None:
    node = start(Log(), 10)
    found = load(spark, node, columns="tube, offset")
    assert found.columns == ["tube", "offset"]
    assert found.where("tube = 'default'").count() == 10
    reader = spark.read.format("beanpole").option("addresses", node.address)
    assert reader.schema("job_id long").load().agg({"job_id": "max"}).collect()[0][0] == 10
    with pytest.raises(PySparkException, match="column 'job_id' is bigint, not string"):
        reader.schema("job_id string").load().collect()
    with pytest.raises(PySparkException, match="no column 'colour'; there are offset, log_index"):
        load(spark, node, columns="colour")


def test_it_is_found_in_sql(spark: SparkSession, start: Start) -> None:
    node = start(Log(), 10)
    options = f"addresses '{node.address}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW seen USING beanpole OPTIONS ({options})")
    assert spark.sql("SELECT max(offset) AS last FROM seen").collect()[0].last == 9
    columns = "body STRING, tube STRING"
    spark.sql(f"CREATE TEMPORARY VIEW put ({columns}) USING beanpole OPTIONS ({options})")
    spark.sql("INSERT INTO put SELECT event, tube FROM seen WHERE offset < 3")
    assert [job.body for job in node.jobs.values()] == [b"put"] * 3


def test_tables_of_the_catalog_want_their_options_in_each_statement(
    spark: SparkSession, start: Start
) -> None:
    node = start(Log(), 10)
    options = f"(addresses = '{node.address}')"
    spark.sql("CREATE TABLE events USING beanpole")
    spark.sql("CREATE TABLE jobs (body STRING) USING beanpole")
    assert spark.sql(f"SELECT max(offset) AS last FROM events WITH {options}").head() == (9,)
    spark.sql(f"INSERT INTO jobs WITH {options} VALUES ('a'), ('a')")
    assert [job.body for job in node.jobs.values()] == [b"a", b"a"]
    # A view in the catalog keeps the options.
    spark.sql(f"CREATE VIEW kept AS SELECT offset, event FROM events WITH {options}")
    assert spark.table("kept").count() == 10
    for statement in (
        f"CREATE TABLE more USING beanpole OPTIONS {options}",
        "SELECT * FROM events",
        "INSERT INTO jobs VALUES ('a')",
    ):
        with pytest.raises(PySparkException, match=r"Spark 4\.3 keeps no options for a table"):
            spark.sql(statement).collect()


def test_a_stream_waits_for_rows_but_not_for_ever(start: Start) -> None:
    node = start(log := Log(), 3)
    given = {"addresses": node.address, "minOffsetsPerTrigger": "100", "maxTriggerDelay": "1h"}
    reader = readers.EventStream(for_stream(given), EVENTS)
    least = reader.getDefaultReadLimit()
    assert least == ReadMinRows(100)
    begun = {"cluster": "double", "offset": 0}
    # The first batch does not wait for more rows.
    assert reader.latestOffset(begun, least)["offset"] == 3
    log.grow(99)
    assert reader.latestOffset({**begun, "offset": 3}, least)["offset"] == 3
    assert reader.latestOffset({**begun, "offset": 3}, ReadAllAvailable())["offset"] == 102
    log.grow(1)
    assert reader.latestOffset({**begun, "offset": 3}, least)["offset"] == 103
    hurried = readers.EventStream(for_stream({**given, "maxTriggerDelay": "0s"}), EVENTS)
    hurried.latestOffset(begun, least)
    assert hurried.latestOffset({**begun, "offset": 100}, least)["offset"] == 103
    # Neither does a stream of only the available events.
    until = readers.EventStream(for_stream(given), EVENTS)
    until.prepareForTriggerAvailableNow()
    until.latestOffset(begun, least)
    assert until.latestOffset({**begun, "offset": 100}, least)["offset"] == 103


def test_offsets_know_the_cluster_by_more_than_its_name(start: Start) -> None:
    """A restored cluster has the same name, and soon the same offsets."""
    node = start(log := Log(), 3)
    given = {"addresses": node.address, "startingOffsets": "earliest"}
    reader = readers.EventStream(for_stream(given), EVENTS)
    # A checkpoint of release 0.3.0 has no birth id, nor do its nodes tell one.
    assert reader.initialOffset() == (begun := {"cluster": "double", "offset": 0})
    log.birth = "0a"
    done = {"cluster": "double", "offset": 3}
    assert reader.latestOffset(done, ReadAllAvailable()) == done, "no news: no batch"
    known = {**done, "birth": "0a"}
    assert reader.latestOffset(begun, ReadAllAvailable()) == known
    assert reader.partitions(begun, known)
    assert reader.initialOffset() == {**begun, "birth": "0a"}
    log.birth = ""
    log.grow(1)
    assert reader.latestOffset(known, ReadAllAvailable()) == {**known, "offset": 4}
    log.birth = "0b"
    for call in (
        lambda: reader.latestOffset(known, ReadAllAvailable()),
        lambda: reader.partitions(known, {**known, "offset": 4}),
        lambda: reader.partitions(done, {**known, "offset": 4}),
        readers.EventStream(
            for_stream({**given, "startingOffsets": json.dumps(known)}), EVENTS
        ).initialOffset,
    ):
        with pytest.raises(ConfigurationError, match=r"birth id 0a, .* of the one with 0b"):
            call()


def test_a_dead_node_is_not_waited_for(spark: SparkSession, start: Start) -> None:
    """The patience of an hour would exceed the test's time limit if the read waited."""
    alive, dead = start(Log(), 200), start(Log())
    dead.stop()
    hour = {"patienceSeconds": 3600, "silentPatienceSeconds": 0, "minPartitions": 2}
    assert offsets(load(spark, dead, alive, **hour)) == list(range(200))
    by_time = load(spark, dead, alive, startingTimestamp="2026-01-31T12:03:00", **hour)
    assert offsets(by_time) == list(range(180, 200))
    assert offsets(load(spark, dead, alive, startingOffsets=7, **hour)) == list(range(7, 200))


def test_a_node_that_dies_in_the_middle_is_left_for_another(
    spark: SparkSession, start: Start
) -> None:
    dying, other = start(log := Log(), 1000), start(log)
    dying.breaks_after = 2
    assert offsets(load(spark, dying, other)) == list(range(1000))
    assert dying.reads[0] == (0, 1000)


def test_a_gap_is_filled_from_another_node(spark: SparkSession, start: Start) -> None:
    gapped, full = start(log := Log(), 1000), start(log)
    gapped.missing = range(100, 900)
    assert offsets(load(spark, gapped, full)) == list(range(1000))


def test_two_nodes_with_different_halves_give_the_whole(spark: SparkSession, start: Start) -> None:
    late, gapped = start(log := Log(), 1000), start(log)
    late.first = 500
    gapped.missing = range(400, 1000)
    with pytest.raises(PySparkException, match=r"(?s)from offset 400 on are gone.* kept is 500"):
        offsets(load(spark, late, gapped))
    lossy = load(spark, late, gapped, failOnDataLoss=False)
    assert offsets(lossy) == [*range(400), *range(500, 1000)]


def test_a_node_that_is_behind_is_left_for_another(spark: SparkSession, start: Start) -> None:
    behind, other = start(log := Log(), 1000), start(log)
    behind.behind = 600
    assert offsets(load(spark, behind, other)) == list(range(1000))


def test_events_that_are_gone_are_an_error_that_names_the_earliest(
    spark: SparkSession, start: Start
) -> None:
    node = start(Log(), 1000)
    node.first = 300
    assert offsets(load(spark, node)) == list(range(300, 1000))
    with pytest.raises(PySparkException, match=r"from offset 7 on are gone.* kept is 300"):
        offsets(load(spark, node, startingOffsets=7))
    lossy = load(spark, node, startingOffsets=7, failOnDataLoss=False)
    assert offsets(lossy) == list(range(300, 1000))
    assert offsets(load(spark, node, startingOffsets=300)) == list(range(300, 1000))


def test_events_that_go_while_they_are_read(spark: SparkSession, start: Start) -> None:
    node = start(log := Log(), 1000)

    def send(first: int, end: int) -> bytes:
        # Retention removes events during the read, and the connection breaks.
        node.first, node.breaks_after = 600, 1 if node.first == 0 else None
        return log.batch(first, end)

    node.send = send
    lossy = load(spark, node, failOnDataLoss=False)
    assert offsets(lossy) == [*range(64), *range(600, 1000)]


def test_what_no_node_answers(spark: SparkSession, start: Start) -> None:
    node = start(Log(), 10)
    node.stop()
    with pytest.raises(PySparkException, match=f"no node answers: {node.address}: UNAVAILABLE"):
        load(spark, node).collect()


def test_offsets_that_do_not_fit_are_refused(spark: SparkSession, start: Start) -> None:
    node = start(Log(), 10)
    with pytest.raises(PySparkException, match=r"lies beyond the events .* which end at 10"):
        load(spark, node, startingOffsets=11).collect()
    for ending in ({"endingOffsets": 3}, {"endingTimestamp": "2026-01-31T12:00:03"}):
        words = rf"startingOffsets \(offset 9\) lies behind {next(iter(ending))} \(offset 3\)"
        with pytest.raises(PySparkException, match=words):
            load(spark, node, startingOffsets=9, **ending).collect()
    elsewhere = '{"cluster": "prod", "offset": 1}'
    with pytest.raises(PySparkException, match=r"of cluster 'prod', .* of cluster 'double'"):
        load(spark, node, startingOffsets=elsewhere).collect()
    with pytest.raises(PySparkException, match=r"of cluster 'other', others are of 'double'"):
        load(spark, node, start(Log("other"))).collect()
    with pytest.raises(PySparkException, match=r"unknown option .*; allowed are addresses, col"):
        load(spark, node, colour="red")


def test_columns_of_another_version(spark: SparkSession, start: Start) -> None:
    node = start(log := Log(), 10)

    def changed(first: int, end: int) -> bytes:
        batch = pa.RecordBatch.from_pylist(log.events[first:end], arrow_schema(EVENTS))
        return stream(batch.drop_columns(["kicks"]).append_column("more", batch["offset"]))

    node.send = changed
    found = load(spark, node)
    assert found.schema == EVENTS
    assert found.where("kicks is null and offset < 10").count() == 10

    def retyped(first: int, end: int) -> bytes:
        batch = pa.RecordBatch.from_pylist(log.events[first:end], arrow_schema(EVENTS))
        return stream(batch.set_column(0, "offset", batch["offset"].cast(pa.int32())))

    node.send = retyped
    with pytest.raises(PySparkException, match=re.escape("sends column 'offset' as int32")):
        load(spark, node).collect()
