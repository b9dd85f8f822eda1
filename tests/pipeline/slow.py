"""A sink with a straggler, and with tasks that fail after their puts.

It is a separate module, because tasks import it.
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

# Longer than any other attempt takes: Spark kills the first attempt when the second has ended.
STRAGGLES_S = 600


class SlowWriter(JobWriter):
    """A writer whose first attempts hang (partition 0, after half its jobs) or fail (odd ones)."""

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
            # Hang until Spark kills this attempt.
            Event().wait(STRAGGLES_S)
        written = super().write(iterator)
        assert partition % 2 == 0 or attempt > 0, "on purpose"
        return written


class SlowSource(BeanpoleSource):
    """The sink with slow writers; the option `notes` is the folder for notes of attempts."""

    @classmethod
    def name(cls) -> str:
        return "beanpole_slow"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        given = {name: value for name, value in self.options.items() if name != "notes"}
        return SlowWriter(options.for_writing(given, stream=False), self.options["notes"])
