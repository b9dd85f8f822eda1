"""Measure the rows per second that the Spark side moves on two cores: `make bench-pipeline`.

A cluster of three real nodes takes rows as jobs and returns their events over gRPC; a generated log
of a day is read from Parquet and goes through the statistics. Spark, the nodes and Python share the
machine. Each figure is the best of several tries, because the first ones include compilation.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from bench import pipeline_events
from bench.servers import BEANPOLE_3
from pyspark_beanpole import inputs, session
from pyspark_beanpole.statistics.answers import finished

MASTER: Final = "local[2]"
TRIES: Final = 4
JOBS: Final = 300_000
EVENTS: Final = 2_000_000


def main() -> int:
    """Print a table of figures."""
    spark = session.start("bench", MASTER, settings={"spark.driver.memory": "2g"})
    print(f"{os.cpu_count()} cores, {MASTER}, Spark {spark.version}; best of {TRIES} tries")
    with tempfile.TemporaryDirectory(prefix="beanpole-bench-") as folder:
        try:
            _cluster(spark, Path(folder))
            _files(spark, Path(folder))
        finally:
            spark.stop()
    return 0


def _cluster(spark: SparkSession, folder: Path) -> None:
    with BEANPOLE_3.run(folder):
        found = json.loads((folder / "data" / "cluster.json").read_text())["nodes"]
        addresses = [str(node["grpc"]) for node in found]

        def write() -> None:
            rows = spark.range(JOBS, numPartitions=2).selectExpr(
                "concat(lpad(id, 20, '0'), repeat('x', 80)) AS body"
            )
            writer = rows.write.format("beanpole").mode("append")
            writer.option("addresses", ",".join(addresses)).save()

        _measure("write: rows of 100 bytes become jobs of 3 nodes", JOBS, write)
        events = inputs.from_cluster(spark, addresses)
        count = events.end - events.first
        _measure("gRPC source: events of 3 nodes", count, lambda: _drain(events.events))


def _files(spark: SparkSession, folder: Path) -> None:
    directory = folder / "export"
    pipeline_events.write(directory, pipeline_events.slices(EVENTS))
    found = inputs.from_directory(spark, str(directory))
    count = found.end - found.first
    _measure("Parquet: exported events", count, lambda: _drain(found.events))

    def statistics() -> None:
        finished(found.statistics())

    _measure("statistics: all tables, from the export", count, statistics)


def _drain(frame: DataFrame) -> None:
    """Compute all columns of all rows and discard them."""
    frame.write.format("noop").mode("overwrite").save()


def _measure(name: str, rows: int, run: Callable[[], None]) -> None:
    best_s = float("inf")
    for _ in range(TRIES):
        begun_s = time.perf_counter()
        run()
        best_s = min(best_s, time.perf_counter() - begun_s)
    print(f"{name:<50} {rows:>10,} rows {best_s:7.2f} s {rows / best_s:>12,.0f} rows/s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
