"""Fixtures of the pipeline tests: one shared Spark session, and doubles of nodes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pyspark_beanpole import session
from tests.pipeline.double import Double, Log
from tests.unit.exporting.made import object_store

ROOT: Final = Path(__file__).resolve().parents[2]
# Spark's Python processes do not have pytest's settings, so they need the import path.
PYTHONPATH: Final = os.pathsep.join(
    str(ROOT / folder) for folder in ("cluster", "node", "pipeline", "")
)
# Without the optimizing compiler and with one thread for garbage collection a JVM starts in a third
# of the time, and starting dominates small queries.
SMALL_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# The first query of a session compiles for a minute while other tests use the cores.
TEST_TIMEOUT_S: Final = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = item.path.is_relative_to(Path(__file__).parent)
        if is_here and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S), append=False)


Start = Callable[..., Double]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with two cores that repeats failed tasks, as a cluster does."""
    os.environ["PYTHONPATH"] = PYTHONPATH
    # Spark's default limit for the start of a Python process is 15 s.
    os.environ["SPARK_AUTH_SOCKET_TIMEOUT"] = str(TEST_TIMEOUT_S)
    found = session.start(
        "tests",
        "local[2,3]",
        settings={
            "spark.driver.extraJavaOptions": SMALL_JVM,
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            # It plans again after each stage, which took a quarter of the time of these tests.
            # Commands use it for large logs; `test_pages` and `test_submit` run with it.
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    # Tests provoke failures, whose logs would fill pages.
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start doubles of nodes, which stop at the end of the test."""
    doubles: list[Double] = []

    def begin(log: Log, count: int = 0) -> Double:
        log.grow(count)
        doubles.append(Double(log))
        return doubles[-1]

    yield begin
    for one in doubles:
        one.stop()


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[None]:
    """Make Spark interpret queries: compiling takes longer than running on a few hundred rows."""
    quick = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    for key, value in quick.items():
        spark.conf.set(key, value)
    yield
    for key in quick:
        spark.conf.unset(key)


@pytest.fixture
def bucket() -> Iterator[str]:
    """The query of the URI of a bucket `events` in an object store on this machine."""
    with object_store() as endpoint:
        yield f"endpoint_override={endpoint}&scheme=http&region=us-east-1"
