"""Three real nodes and a real Spark under kills: each event once, and one job for each row."""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from beanpole.commands import MACHINE_VERSION
from beanpoled.cli import main
from chaos.members import all_events
from pyspark_beanpole import inputs
from pyspark_beanpole.exports import opened
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.answers import finished
from pyspark_beanpole.statistics.parts import reduced
from tests.integration.support.load import Load
from tests.integration.support.nodes import BEANPOLE, Cluster, status
from tests.integration.support.processes import Process
from tests.integration.support.raw import Raw
from tests.integration.support.releases import FIRST, install, release, this_program
from tests.integration.support.waiting import wait_until
from tests.pipeline.conftest import SMALL_JVM
from tests.pipeline.failing import FailingSource
from tests.pipeline.test_streaming import numbers, same

CLIENTS = 8
JOBS_BETWEEN_FAULTS = 300
# Clients pause, because Spark needs the cores.
PAUSE_S = 0.05
ROWS = 100_000
# Enough for two JVMs and three nodes on two cores.
TIMEOUT_S = 180.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster").running() as found:
        yield found


def addresses(cluster: Cluster) -> str:
    return ",".join(node.grpc for node in cluster.nodes)


class Streamed:
    """A process that runs `beanpole pipeline stream`, and the table that it writes."""

    def __init__(self, spark: SparkSession, directory: Path, addresses: str) -> None:
        self._spark = spark
        self._directory = directory
        self._addresses = addresses
        self._runs = 0

    def start(self, *more: str) -> Process:
        self._runs += 1
        where = ["--addresses", self._addresses, "--to", str(self._directory / "tables")]
        often = ["--every", "1"]
        small = ["--conf", f"spark.driver.extraJavaOptions={SMALL_JVM}", "--master", "local[2]"]
        return Process(
            [*BEANPOLE, "pipeline", "stream", *where, *often, *small, *more],
            self._directory / f"stream{self._runs}.log",
        )

    def finish(self) -> None:
        """Write the remaining events, in this process."""
        where = ["--addresses", self._addresses, "--to", str(self._directory / "tables")]
        assert main(["pipeline", "stream", *where, "--once"]) == 0

    def statistics(self) -> dict[str, pa.Table]:
        """Return the tables from the files."""
        return numbers(self._directory / "tables")

    def files(self) -> list[Path]:
        return list((self._directory / "tables" / "events").glob("date=*/*.parquet"))

    def wait_for_batch(self, process: Process) -> None:
        """Wait until another batch is written."""
        before = len(self.files())

        def is_written() -> bool:
            assert process.status() is None, process.story()
            return len(self.files()) > before

        wait_until(is_written, TIMEOUT_S, "a batch in the table")

    def wait_for_rows(self, rows: int, process: Process) -> None:
        """Wait until at least this number of rows is written."""

        def are_written() -> bool:
            assert process.status() is None, process.story()
            written: int = sum(parquet.read_metadata(path).num_rows for path in self.files())
            return written >= rows

        wait_until(are_written, TIMEOUT_S, f"{rows} rows in the table")

    def table(self) -> DataFrame:
        path = str(self._directory / "tables" / "events")
        return self._spark.read.schema(EVENTS).parquet(path).select(EVENTS.names)


def exported(spark: SparkSession, address: str, directory: Path) -> inputs.Input:
    """Return the events that one node exports."""
    command = [*BEANPOLE, "events", "export", "--addresses", address, "--to", str(directory)]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)
    return inputs.from_directory(spark, str(directory))


@pytest.mark.long
@pytest.mark.usefixtures("interpreted")
def test_every_event_once_whatever_dies(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    streamed = Streamed(spark, tmp_path, addresses(cluster))
    leader = cluster.leader()
    others = [node.beanstalk for number, node in enumerate(cluster.nodes) if number != leader]
    load = Load(others, CLIENTS, PAUSE_S)
    load.start()
    first = streamed.start()
    try:
        streamed.wait_for_batch(first)
        cluster.kill(leader)
        load.wait_for_progress(JOBS_BETWEEN_FAULTS)
        streamed.wait_for_batch(first)
    finally:
        # Spark is killed without warning, at any point of its batch.
        first.kill()
    cluster.start(leader)
    cluster.wait_until_serving(leader)
    load.wait_for_progress(JOBS_BETWEEN_FAULTS)
    second = streamed.start("--rows", "2000")
    try:
        streamed.wait_for_batch(second)
        load.finish()
        cluster.kill(leader)  # this time without a restart
        stayed = cluster.nodes[(leader + 1) % 3]
        wanted = exported(spark, stayed.grpc, tmp_path / "export")
        streamed.wait_for_rows(wanted.end, second)
    finally:
        second.kill()
    streamed.finish()
    found = streamed.table().cache()
    assert found.count() == wanted.end - wanted.first == wanted.end > 3 * JOBS_BETWEEN_FAULTS
    assert found.exceptAll(wanted.events).isEmpty()
    assert wanted.events.exceptAll(found).isEmpty()
    whole = opened(str(tmp_path / "export")).read()
    assert same(streamed.statistics(), finished(reduced(whole, put_from=0)))
    sys.stdout.write(f"{wanted.end} events, each once\n")
    # No job was lost either: the audit compares the events with the cluster's jobs.
    assert main(["pipeline", "audit", "--addresses", addresses(cluster)]) == 0


@pytest.mark.long
def test_events_of_two_releases_are_one_table(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads events that release 0.2.0 wrote, and those after the upgrade."""
    cluster = Cluster(tmp_path / "cluster", settings={"event_segment_age_s": 1})
    old = release(FIRST, tmp_path)
    for number in range(len(cluster.nodes)):
        install(cluster, number, old)
    with cluster.running():
        load = Load([node.beanstalk for node in cluster.nodes], CLIENTS, PAUSE_S)
        load.start()
        load.wait_for_progress(JOBS_BETWEEN_FAULTS)
        for number in range(len(cluster.nodes)):
            cluster.terminate(number)
            install(cluster, number, this_program({}))
            cluster.start(number)
            cluster.wait_until_serving(number)

        def versions() -> set[int]:
            return {node.get("machine_version", 0) for node in status(cluster.nodes[0])["nodes"]}

        wait_until(lambda: versions() == {MACHINE_VERSION}, TIMEOUT_S, "the version is raised")
        load.wait_for_progress(JOBS_BETWEEN_FAULTS)
        load.finish()
        wanted = all_events(cluster.nodes).to_pylist()
        names = ("offset", "log_index", "event", "job_id", "tube")
        rows = (
            inputs.from_cluster(spark, [node.grpc for node in cluster.nodes])
            .events.select(*names)
            .collect()
        )
        assert sorted(rows) == [tuple(row[name] for name in names) for row in wanted]
        assert main(["pipeline", "audit", "--addresses", addresses(cluster)]) == 0


@pytest.mark.long
def test_tasks_that_fail_after_their_puts_make_one_job_of_each_row(
    spark: SparkSession, cluster: Cluster
) -> None:
    spark.dataSource.register(FailingSource)
    rows = spark.range(0, ROWS, numPartitions=4).selectExpr("concat('row ', id) AS body")
    writer = rows.write.format("beanpole_failing").mode("append").option("tube", "rows")
    writer.option("addresses", addresses(cluster)).save()
    with Raw(cluster.nodes[0].beanstalk) as connection:
        stats = connection.dictionary(b"stats-tube rows")
    assert stats["total-jobs"] == stats["current-jobs-ready"] == str(ROWS)


def test_a_write_and_a_read_while_a_node_dies_are_exact(
    spark: SparkSession, cluster: Cluster
) -> None:
    """Only keys distinguish the rows, which are equal; the killed node is not restarted."""
    leader = cluster.leader()
    stayed = cluster.nodes[(leader + 1) % 3]
    rows = spark.range(0, ROWS, numPartitions=8).selectExpr("concat('row ', id % 100) AS body")
    writer = rows.write.format("beanpole").mode("append").option("tube", "rows")
    with ThreadPoolExecutor(1) as threads, Raw(stayed.beanstalk) as connection:

        def ready() -> int:
            line, _ = connection.command(b"stats-tube rows")
            if line.startswith(b"NOT_FOUND"):
                return 0
            return int(connection.dictionary(b"stats-tube rows")["current-jobs-ready"])

        def kill_in_the_middle() -> int:
            wait_until(ready, TIMEOUT_S, "some rows are jobs")
            cluster.kill(leader)
            return ready()

        killed = threads.submit(kill_in_the_middle)
        # In the main thread: in others Spark does not find data sources in Python.
        writer.option("addresses", addresses(cluster)).save()
        assert 0 < killed.result(TIMEOUT_S) < ROWS
        assert ready() == ROWS
    events = spark.read.format("beanpole").option("addresses", addresses(cluster)).load()
    puts = events.where("tube = 'rows' AND event = 'put'").select("job_id")
    assert puts.count() == puts.distinct().count() == ROWS


def test_buried_jobs_are_put_back_to_work(spark: SparkSession, cluster: Cluster) -> None:
    with Raw(cluster.nodes[0].beanstalk) as connection:
        for job in (1, 2, 3):
            connection.command(b"put 0 0 60 1\r\nx")
            connection.command(b"reserve-job %d" % job)
            connection.command(b"bury %d 0" % job)
        where = ["--addresses", addresses(cluster), "--where", "job_id <> 2"]
        assert main(["pipeline", "redrive", *where]) == 0
        stats = connection.dictionary(b"stats-tube default")
    assert (stats["current-jobs-ready"], stats["current-jobs-buried"]) == ("2", "1")
