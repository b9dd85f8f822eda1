"""The data source over real gRPC and real Spark, against doubles of nodes that can be broken."""

from pyspark.sql import DataFrame, SparkSession

from tests.pipeline.conftest import Start
from tests.pipeline.double import Double, Log


def load(spark: SparkSession, *nodes: Double, **options: object) -> DataFrame:
    reader = spark.read.format("beanpole")
    reader = reader.option("addresses", ",".join(node.address for node in nodes))
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_all_events_are_read(spark: SparkSession, start: Start) -> None:
    node = start(Log(), 1000)
    assert offsets(load(spark, node, minPartitions=3)) == list(range(1000))
    assert len(node.reads) == 3
