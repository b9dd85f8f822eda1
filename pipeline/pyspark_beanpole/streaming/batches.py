"""One batch: one Spark job, whose tasks each read a range of offsets, write it, and reduce it.

A task reads from the nodes and writes files of an export below a folder that belongs to this
attempt at the batch alone, so that a late task of an earlier attempt does no harm. Nothing is
committed before the driver commits it (see `stream`).
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from beanpole.exporting.files import Writer
from beanpole.exports import File
from beanpole.places import resolved
from pyspark_beanpole.options import of_nodes
from pyspark_beanpole.planning import Range, spread
from pyspark_beanpole.readers import batches as read
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics.keys import Parts
from pyspark_beanpole.statistics.parts import merged, reduced
from pyspark_beanpole.streaming.pieces import packed_parts, unpacked_parts

# A smaller task costs more than its work.
TASK_ROWS_MIN: Final = 65_536
TASK_ROWS_MAX: Final = 500_000

_ROW: Final = "files string, parts binary"
_NAMES: Final = ("files", "parts")


class Written(NamedTuple):
    """The result of a batch: files below its folder, and the partial statistics of their events."""

    files: Sequence[File]
    parts: "Parts | None"


@dataclass(frozen=True)
class Batch:
    """The parameters of a batch's tasks: plain values."""

    # The folder of its files: a path or URI.
    folder: str
    cluster: str
    addresses: tuple[str, ...]
    patience_s: int
    fail_on_data_loss: bool
    # Whether its events are also reduced, and the first id that was put in the whole log.
    statistics: bool
    put_from: int | None
    ranges: tuple[Range, ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write and reduce the ranges whose numbers Spark passes."""
        for batch in numbers:
            for number in batch.column("id").to_pylist():
                files, parts = self._write(self.ranges[number])
                content = None if parts is None else packed_parts(parts)
                row = [[json.dumps(files)], pa.array([content], pa.binary())]
                yield pa.RecordBatch.from_arrays([pa.array(row[0]), row[1]], _NAMES)

    def _write(self, part: Range) -> "tuple[list[File], Parts | None]":
        options = of_nodes(self.addresses, self.patience_s, self.fail_on_data_loss)
        writer = Writer(resolved(self.folder), self.cluster)
        files: list[File] = []

        def events() -> Iterator[pa.RecordBatch]:
            for rows in read(part, options, EVENTS):
                files.extend(writer.write(rows))
                yield rows

        try:
            if self.statistics:
                parts = reduced(events(), put_from=self.put_from)
            else:
                parts = None
                for _ in events():
                    pass
            files.extend(writer.finish())
        except BaseException:
            writer.drop()
            raise
        return files, parts


def ranges(first: int, end: int, addresses: tuple[str, ...], cores: int) -> tuple[Range, ...]:
    """Split a batch into tasks whose reads begin at different nodes; none is empty."""
    rows = end - first
    count = max(-(-rows // TASK_ROWS_MAX), min(cores, rows // TASK_ROWS_MIN), 1)
    return tuple(spread(first, end, count, addresses))


def run(spark: SparkSession, batch: Batch) -> Written:
    """Run a batch as one Spark job."""
    count = len(batch.ranges)
    return gathered(spark.range(0, count, 1, count).mapInArrow(batch, _ROW).toArrow(), batch)


def gathered(rows: pa.Table, batch: Batch) -> Written:
    """Combine the results of a batch's tasks, in the order of offsets."""
    files = [File(*one) for text in rows["files"].to_pylist() for one in json.loads(text)]
    parts = [
        unpacked_parts(content) for content in rows["parts"].to_pylist() if content is not None
    ]
    in_order = sorted(files, key=lambda file: file.first)
    return Written(in_order, merged(parts) if batch.statistics else None)
