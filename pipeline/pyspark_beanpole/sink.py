"""The sink "beanpole": every row becomes one job, however often Spark repeats a task.

This module has the columns, the check of each row, and the writers that Spark drives. `keys`
derives the key of a job, `window` limits a task to the number of keys that the cluster remembers.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from beanpole.client.queue import JobRefused, Putter
from beanpole.constants import DEDUP_KEY_MAX_BYTES, PRIORITY_DEFAULT, U32_MAX
from beanpole.errors import ConfigurationError
from beanpole.pb.queue_pb2 import PutJob
from beanpole.protocol.beanstalk.requests import TUBE_NAME_WORDS, is_tube_name
from pyspark_beanpole import keys, window
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import WriteOptions

_TEXT: Final = (StringType, BinaryType)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": _TEXT,
    "tube": (StringType,),
    "priority": _WHOLE,
    "delay_s": _WHOLE,
    "ttr_s": _WHOLE,
    "dedup_key": _TEXT,
}


def check(schema: StructType, overwrite: bool) -> None:
    """Reject rows that cannot become jobs before any task runs.

    Raises:
        ConfigurationError: the message names what is allowed.
    """
    if overwrite:
        raise ConfigurationError("jobs can only be added: write with .mode('append')")
    if unknown := [name for name in schema.names if name not in COLUMNS]:
        raise ConfigurationError(
            f"a job has no column {', '.join(map(repr, unknown))}; it has {', '.join(COLUMNS)}"
        )
    if "body" not in schema.names:
        raise ConfigurationError("the column body is missing: the job's body, string or binary")
    for field in schema:
        if not isinstance(field.dataType, COLUMNS[field.name]):
            allowed = " or ".join(kind().simpleString() for kind in COLUMNS[field.name])
            raise ConfigurationError(
                f"column {field.name!r} is {field.dataType.simpleString()}, not {allowed}"
            )


@dataclass
class Written(WriterCommitMessage):
    """The number of jobs that one task put."""

    inserted: int
    duplicates: int


class JobWriter(DataSourceArrowWriter):
    """Puts the rows of a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Chosen where the write is planned, once for all its tasks.
        self._write = keys.of_write()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _put(iterator, self._options, self._write)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _report("", messages)


class JobStream(DataSourceStreamArrowWriter):
    """Puts the rows of each batch of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        write = "" if self._options.namespace else keys.of_batch(TaskContext.get())
        return _put(iterator, self._options, write)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report(f"batch {batchId}: ", messages)


def _put(iterator: Iterator[pa.RecordBatch], options: WriteOptions, write: str) -> Written:
    context = TaskContext.get()
    partition = context.partitionId() if context else 0
    made = keys.Keys(options.namespace, write, partition)
    # Tasks begin at different nodes.
    turn = partition % len(options.addresses)
    addresses = options.addresses[turn:] + options.addresses[:turn]
    first = 0
    with Putter(addresses, options.patience_s) as putter:
        try:
            for batch in window.checked(iterator, partition):
                for job in jobs(batch, options.tube, made, first):
                    putter.put(job)
                first += batch.num_rows
            outcome = putter.finish()
        except (RowRefused, JobRefused) as error:
            raise ConfigurationError(
                f"row {error.number} of partition {partition} (both from 0): {error}"
            ) from None
    return Written(outcome.inserted, outcome.duplicates)


def _report(where: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    log.info(
        "%s%d jobs inserted, %d were there already",
        where,
        sum(message.inserted for message in done),
        sum(message.duplicates for message in done),
    )


class RowRefused(ValueError):
    """A row that cannot become a job."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(words)
        # The row's number in its task, from 0.
        self.number = number


def jobs(batch: pa.RecordBatch, tube: str, made: keys.Keys, first: int = 0) -> Iterator[PutJob]:
    """Make the jobs of a batch of rows.

    Args:
        batch: the rows.
        tube: the tube of rows without one.
        made: makes the keys of rows without one.
        first: the number of the first row in its task.

    Raises:
        RowRefused: a value is not allowed; the message names the value.
    """
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    absent = [None] * batch.num_rows
    bodies = columns["body"]
    tubes = columns.get("tube", absent)
    priorities = columns.get("priority", absent)
    delays = columns.get("delay_s", absent)
    ttrs = columns.get("ttr_s", absent)
    given = columns.get("dedup_key", absent)
    rows = zip(bodies, tubes, priorities, delays, ttrs, given, strict=True)
    for number, (body, name, priority, delay_s, ttr_s, key) in enumerate(rows, first):
        try:
            job = PutJob(
                tube=_tube(name, tube),
                body=_body(body),
                priority=_number("priority", priority, PRIORITY_DEFAULT),
                delay_s=_number("delay_s", delay_s, 0),
                ttr_s=_number("ttr_s", ttr_s, 0),
            )
            job.key = made.of(job) if key is None else _given_key(key)
        except ValueError as error:
            raise RowRefused(number, str(error)) from None
        yield job


def _body(value: str | bytes | None) -> bytes:
    if value is None:
        raise ValueError("its body is null; an empty one is written as ''")
    return value.encode() if isinstance(value, str) else value


def _tube(value: str | None, default: str) -> str:
    if value is None:
        return default
    if not is_tube_name(value.encode()):
        raise ValueError(f"tube = {value!r} is not a tube's name: {TUBE_NAME_WORDS}")
    return value


def _number(name: str, value: int | None, default: int) -> int:
    if value is None:
        return default
    if not 0 <= value <= U32_MAX:
        raise ValueError(f"{name} = {value} is not a number from 0 to {U32_MAX}")
    return value


def _given_key(value: str | bytes) -> bytes:
    key = value.encode() if isinstance(value, str) else value
    if not 0 < len(key) <= DEDUP_KEY_MAX_BYTES:
        raise ValueError(f"dedup_key = {value!r} is not a key of 1 to {DEDUP_KEY_MAX_BYTES} bytes")
    return key
