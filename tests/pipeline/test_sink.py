"""The sink: each row becomes one job, despite repetitions by Spark or on the way to a node."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from beanpole.client.queue import Putter
from beanpole.errors import ClientError
from beanpole.pb.queue_pb2 import (
    PUT_OUTCOME_OUT_OF_MEMORY,
    PUT_OUTCOME_QUEUE_FULL,
    PutJob,
    PutOutcome,
)
from pyspark_beanpole.options import WriteOptions
from pyspark_beanpole.sink import JobWriter, Written
from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log
from tests.pipeline.failing import FailingSource


def write(frame: DataFrame, *nodes: Double, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("beanpole").mode(mode).option("patienceSeconds", 1)
    writer = writer.option("addresses", ",".join(node.address for node in nodes))
    writer.options(**options).save()


def bodies(node: Double) -> list[bytes]:
    return sorted(job.body for job in node.jobs.values())


def test_columns_become_fields(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    spark.sql(
        "SELECT 'a' AS body, 'mail' AS tube, 7 AS priority, 8S AS delay_s, 9L AS ttr_s, 'k' AS"
        " dedup_key UNION ALL SELECT 'b', null, null, null, null, null"
    ).createOrReplaceTempView("rows")
    write(spark.table("rows"), node, tube="other")
    named = node.jobs[b"k"]
    assert named == PutJob(body=b"a", tube="mail", priority=7, delay_s=8, ttr_s=9, key=b"k")
    (plain,) = [job for job in node.jobs.values() if job.body == b"b"]
    assert (plain.tube, plain.priority, plain.delay_s, plain.ttr_s) == ("other", 65536, 0, 0)
    assert len(plain.key) == 32


def test_binary_bodies_stay_as_they_are(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    write(spark.sql("SELECT x'00ff0d0a' AS body"), node)
    assert bodies(node) == [b"\0\xff\r\n"]


def test_every_write_puts_all_its_rows(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    rows = spark.range(600).selectExpr("concat('job ', id % 3) AS body").repartition(3)
    write(rows, node)
    write(rows, node)
    assert bodies(node) == sorted(b"job %d" % (number % 3) for number in range(1200))


def test_writes_of_one_namespace_put_what_is_missing(spark: SparkSession, start: Start) -> None:
    first, second = start(Log()), start(Log())
    second.jobs = first.jobs
    rows = spark.range(5000).selectExpr("concat('job ', id) AS body")
    write(rows.where("id < 3000").repartition(3), first, second, dedupNamespace="monday")
    write(rows.repartition(7), first, second, dedupNamespace="monday")
    assert bodies(first) == sorted(b"job %d" % number for number in range(5000))
    write(rows, first, dedupNamespace="tuesday")
    assert len(first.jobs) == 10000


def test_equal_rows_in_one_task_are_jobs_of_their_own_in_a_namespace(
    spark: SparkSession, start: Start
) -> None:
    node = start(Log())
    rows = spark.range(1000).selectExpr("concat('job ', id % 10) AS body")
    # As the docs advise, equal rows are in the same task, for any number of tasks.
    for tasks in (3, 5):
        write(rows.repartition(tasks, "body"), node, dedupNamespace="monday")
        assert bodies(node) == sorted(b"job %d" % (number % 10) for number in range(1000))


def test_a_task_that_fails_after_its_puts_puts_nothing_twice(
    spark: SparkSession, start: Start
) -> None:
    node = start(Log())
    spark.dataSource.register(FailingSource)
    rows = spark.range(3000).selectExpr("cast(id AS string) AS body").repartition(2)
    writer = rows.write.format("beanpole_failing").mode("append")
    writer.option("addresses", node.address).save()
    assert len(node.jobs) == 3000
    assert node.duplicates == 3000


def test_lost_replies_and_dead_nodes_put_nothing_twice(spark: SparkSession, start: Start) -> None:
    lossy, dead = start(Log()), start(Log())
    lossy.lost_replies = 3
    dead.stop()
    rows = spark.range(4000).selectExpr("cast(id AS string) AS body").repartition(2)
    write(rows, lossy, dead)
    assert len(lossy.jobs) == 4000


@pytest.mark.long
def test_a_full_cluster_is_waited_for_and_then_named(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    node.full = 2
    write(spark.sql("SELECT 'a' AS body"), node)
    assert bodies(node) == [b"a"]
    node.full = 1_000_000
    with pytest.raises(PySparkException, match=r"is full: 1 of 1 jobs got OUT_OF_MEMORY"):
        write(spark.sql("SELECT 'b' AS body"), node)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (PUT_OUTCOME_OUT_OF_MEMORY, "the cluster is full: 3 of 3 jobs got OUT_OF_MEMORY"),
        (
            PUT_OUTCOME_QUEUE_FULL,
            "the queue 'mail' is full, or the user's quota is used up: 1 of 3 jobs got QUEUE_FULL; "
            "the queue 'ref' is full, or the user's quota is used up: 2 of 3 jobs got QUEUE_FULL",
        ),
    ],
)
def test_the_limit_that_has_no_room_is_named(start: Start, outcome: PutOutcome, words: str) -> None:
    node = start(Log())
    node.full, node.full_outcome = 1_000_000, outcome
    with Putter([node.address], 0) as putter:
        for number, tube in enumerate(("ref", "mail", "ref")):
            putter.put(PutJob(body=b"a", tube=tube, key=b"%d" % number))
        with pytest.raises(ClientError) as raised:
            putter.finish()
    assert str(raised.value) == words


@pytest.mark.long
def test_no_node_answers(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    node.stop()
    with pytest.raises(PySparkException, match=f"no node answers: {node.address}: UNAVAILABLE"):
        write(spark.sql("SELECT 'a' AS body"), node)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT 'a' AS body, 1 AS colour", "no column 'colour'; it has body, tube, priority, d"),
        ("SELECT 'a' AS tube", "the column body is missing"),
        ("SELECT 1 AS body", "column 'body' is int, not string or binary"),
        ("SELECT 'a' AS body, 1.5D AS ttr_s", "'ttr_s' is double, not tinyint or smallint or int"),
        (
            "SELECT cast(null AS string) AS body",
            r"row 0 of partition 0 \(both .*: its body is null",
        ),
        (
            "SELECT 'a' AS body, if(id = 2, -1, 1) AS delay_s FROM range(0, 5, 1, 1)",
            r"row 2 of partition 0 \(.*: delay_s = -1 is not a number from 0 to 4294967295",
        ),
        ("SELECT 'a' AS body, repeat('t', 201) AS tube", "is not a tube's name: 1 to 200 letters"),
        ("SELECT 'a' AS body, 'two words' AS tube", "tube = 'two words' is not a tube's name"),
        ("SELECT 'a' AS body, '' AS dedup_key", "dedup_key = '' is not a key of 1 to 64 bytes"),
    ],
)
def test_rows_that_are_no_jobs(spark: SparkSession, start: Start, query: str, words: str) -> None:
    node = start(Log())
    with pytest.raises(PySparkException, match=words):
        write(spark.sql(query), node)
    assert node.jobs == {}


def test_a_row_that_the_cluster_refuses_is_named(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    node.body_bytes_max = 100
    rows = spark.range(0, 2500, 1, 1).selectExpr("repeat('x', if(id = 2345, 101, 1)) AS body")
    with pytest.raises(PySparkException, match=r"row 2345 of partition 0 .*: a body of 101 bytes"):
        write(rows, node)


def test_a_task_that_the_cluster_cannot_remember_is_refused(
    spark: SparkSession, start: Start
) -> None:
    node = start(Log())
    rows = spark.range(0, 500_001, 1, 1).selectExpr("cast(id AS string) AS body")
    with pytest.raises(PySparkException, match=r"partition 0 has more than 500,000 rows, and the"):
        write(rows, node)
    assert node.jobs == {}


def test_jobs_are_only_ever_added(spark: SparkSession, start: Start) -> None:
    node = start(Log())
    with pytest.raises(PySparkException, match=r"write with .mode\('append'\)"):
        write(spark.sql("SELECT 'a' AS body"), node, mode="overwrite")


@pytest.mark.long
def test_a_stream_puts_its_rows(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    """Equal rows are separate jobs, and a batch repeated after a restart puts no row twice."""
    node = start(log := Log(), 500)
    jobs = start(Log())

    def run() -> None:
        events = spark.readStream.format("beanpole").option("addresses", node.address)
        events = events.option("startingOffsets", "earliest").option("maxRowsPerTrigger", 200)
        rows = events.option("minPartitions", 2).load().selectExpr("offset % 7 AS body")
        rows = rows.selectExpr("cast(body AS string) AS body")
        writer = rows.writeStream.format("beanpole").option("addresses", jobs.address)
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(60)

    run()
    log.grow(100)
    run()
    wanted = sorted(b"%d" % (number % 7) for number in range(600))
    assert bodies(jobs) == wanted
    # As if the driver had died before it could record the last batch as done.
    for name in ("3", ".3.crc"):
        (tmp_path / "commits" / name).unlink()
    run()
    assert (bodies(jobs), jobs.duplicates) == (wanted, 100)


def test_a_writer_tells_what_it_put(caplog: pytest.LogCaptureFixture) -> None:
    writer = JobWriter(WriteOptions(("127.0.0.1:1",), "default", None, 1))
    with caplog.at_level("INFO", "pyspark_beanpole"):
        writer.commit([Written(3, 1), None, Written(4, 0)])
    assert caplog.messages == ["7 jobs inserted, 1 were there already"]
