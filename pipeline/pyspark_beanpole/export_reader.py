"""The data source's reader of an export, the counterpart of `readers` for nodes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_beanpole.exports import Opened, opened
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import ExportOptions
from pyspark_beanpole.planning import TASK_ROWS_MAX
from pyspark_beanpole.schema import arrow_schema, checked, conformed


@dataclass
class Part(InputPartition):
    """The files of one task."""

    export: Opened


class ExportReader(DataSourceReader):
    """Reads the events that an export has when the tasks are planned, and checks each file."""

    def __init__(self, options: ExportOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked(schema)

    def partitions(self) -> Sequence[InputPartition]:
        export = opened(self._options.directory, not self._options.fail_on_data_loss)
        for words in export.notes:
            log.warning("passed over: %s", words)
        return split(export)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        wanted = arrow_schema(self._schema)
        for batch in partition.export.read():
            yield conformed(batch, wanted)


def split(export: Opened) -> list[Part]:
    """Split an export into tasks: one large file each, or consecutive small ones."""
    parts: list[Part] = []
    rows = 0
    for file in export.files:
        rows += file.rows
        if parts and rows <= TASK_ROWS_MAX:
            last = parts[-1].export
            parts[-1] = Part(replace(last, files=(*last.files, file)))
        else:
            rows = file.rows
            parts.append(Part(replace(export, files=(file,), missing=(), notes=())))
    # Spark treats an empty list of tasks differently.
    return parts or [Part(export)]
