"""A sink with a straggler, and with tasks that fail after their puts.

In a module of its own, because tasks import it.
"""

from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from pyspark_beanpole import options
from pyspark_beanpole.options import WriteOptions
from pyspark_beanpole.sink import JobWriter, Written
from pyspark_beanpole.source import BeanpoleSource

# Longer than any attempt beside it needs: the first one is killed when the second has ended.
STRAGGLES_S = 600


class SlowWriter(JobWriter):
    """First attempts: that at partition 0 hangs when half its jobs are put, odd ones fail."""

    def __init__(self, given: WriteOptions, notes: str) -> None:
        super().__init__(given)
        self._notes = notes

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.attemptNumber()
        Path(self._notes, f"{partition}-{attempt}").touch()
        if partition == 0 and attempt == 0:
            half = next(iterator)
            super().write(iter([half.slice(0, half.num_rows // 2)]))
            # Until Spark kills it.
            Event().wait(STRAGGLES_S)
        written = super().write(iterator)
        assert partition % 2 == 0 or attempt > 0, "on purpose"
        return written


class SlowSource(BeanpoleSource):
    """The sink with such tasks; the option notes says where notes of attempts are left."""

    @classmethod
    def name(cls) -> str:
        return "beanpole_slow"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        given = {name: value for name, value in self.options.items() if name != "notes"}
        return SlowWriter(options.for_writing(given, stream=False), self.options["notes"])
