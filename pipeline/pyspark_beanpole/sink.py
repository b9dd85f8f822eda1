"""The sink "beanpole": every row becomes a job, once, however often Spark repeats a task.

Spark may run a task again after its puts. So every job carries a deduplication key that follows
from its row alone, and the cluster makes one job for one key as long as it remembers it.
"""

import hashlib
from collections.abc import Callable, Iterator
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

from beanpole.client.queue import Putter
from beanpole.constants import DEDUP_KEY_MAX_BYTES, TUBE_NAME_MAX_BYTES, U32_MAX
from beanpole.errors import ConfigurationError
from beanpole.pb.queue_pb2 import PutJob
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import WriteOptions

# What beanstalk clients give when nothing is said.
PRIORITY_DEFAULT: Final = 65536

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
    """Refuse what cannot become jobs before any task runs.

    Raises:
        ConfigurationError: the message says what is allowed.
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
    """What one task put."""

    inserted: int
    duplicates: int


class JobWriter(DataSourceArrowWriter):
    """Puts the rows of a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _put(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _report("", messages)


class JobStream(DataSourceStreamArrowWriter):
    """Puts the rows of each batch of a stream."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return _put(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _report(f"batch {batchId}: ", messages)


def _put(iterator: Iterator[pa.RecordBatch], options: WriteOptions) -> Written:
    context = TaskContext.get()
    # Tasks begin at different nodes.
    turn = (context.partitionId() if context else 0) % len(options.addresses)
    addresses = options.addresses[turn:] + options.addresses[:turn]
    with Putter(addresses, options.patience_s) as putter:
        for batch in iterator:
            for job in jobs(batch, options):
                putter.put(job)
        outcome = putter.finish()
    return Written(outcome.inserted, outcome.duplicates)


def _report(where: str, messages: list[WriterCommitMessage | None]) -> None:
    done = [message for message in messages if isinstance(message, Written)]
    log.info(
        "%s%d jobs inserted, %d were there already",
        where,
        sum(message.inserted for message in done),
        sum(message.duplicates for message in done),
    )


def jobs(batch: pa.RecordBatch, options: WriteOptions) -> Iterator[PutJob]:
    """Make the jobs of a batch of rows.

    Raises:
        ConfigurationError: a value is not allowed; the message names column and value.
    """
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    absent = [None] * batch.num_rows
    bodies = map(_body, columns["body"])
    tubes = map(_tube(options.tube), columns.get("tube", absent))
    numbers = [
        map(_number(name, default), columns.get(name, absent))
        for name, default in (("priority", PRIORITY_DEFAULT), ("delay_s", 0), ("ttr_s", 0))
    ]
    keys = columns.get("dedup_key", absent)
    for body, tube, priority, delay_s, ttr_s, key in zip(
        bodies, tubes, *numbers, keys, strict=True
    ):
        job = PutJob(tube=tube, body=body, priority=priority, delay_s=delay_s, ttr_s=ttr_s)
        job.key = _own_key(job, options.namespace) if key is None else _given_key(key)
        yield job


def _body(value: str | bytes | None) -> bytes:
    if value is None:
        raise ConfigurationError("a row's body is null; an empty one is written as ''")
    return value.encode() if isinstance(value, str) else value


def _tube(default: str) -> Callable[[str | None], str]:
    def read(value: str | None) -> str:
        if value is None:
            return default
        if not 0 < len(value.encode()) <= TUBE_NAME_MAX_BYTES:
            raise ConfigurationError(
                f"tube = {value!r} is not a tube's name of 1 to {TUBE_NAME_MAX_BYTES} bytes"
            )
        return value

    return read


def _number(name: str, default: int) -> Callable[[int | None], int]:
    def read(value: int | None) -> int:
        if value is None:
            return default
        if not 0 <= value <= U32_MAX:
            raise ConfigurationError(f"{name} = {value} is not a number from 0 to {U32_MAX}")
        return value

    return read


def _given_key(value: str | bytes) -> bytes:
    key = value.encode() if isinstance(value, str) else value
    if not 0 < len(key) <= DEDUP_KEY_MAX_BYTES:
        raise ConfigurationError(
            f"dedup_key = {value!r} is not a key of 1 to {DEDUP_KEY_MAX_BYTES} bytes"
        )
    return key


def _own_key(job: PutJob, namespace: str) -> bytes:
    """Return a key that follows from the row alone: Spark may split and order rows anew."""
    fields = (namespace, job.tube, job.priority, job.delay_s, job.ttr_s)
    # repr keeps the borders between texts: ("a", "bc") is not ("ab", "c").
    return hashlib.sha256(repr(fields).encode() + job.body).digest()
