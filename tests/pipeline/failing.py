"""A sink whose tasks fail once, after their puts; a separate module, because tasks import it."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from pyspark_beanpole import options
from pyspark_beanpole.sink import JobWriter, Written
from pyspark_beanpole.source import BeanpoleSource


class FailingWriter(JobWriter):
    """A writer that fails the first attempt of every task after all its jobs are put."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        written = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        assert context.attemptNumber() > 0, "on purpose"
        return written


class FailingSource(BeanpoleSource):
    """The sink with failing writers."""

    @classmethod
    def name(cls) -> str:
        return "beanpole_failing"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return FailingWriter(options.for_writing(self.options, stream=False))
