"""The statistics equal a naive recomputation, on random histories."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark_beanpole.schema import EVENTS

from tests.pipeline.histories import Event, rows

few = settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
seeds = st.integers(0, 2**32)


def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(rows(events), EVENTS)
