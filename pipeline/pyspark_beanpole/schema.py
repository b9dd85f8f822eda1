"""The columns of events on the Spark side, and the conversion of batches from any node.

Their meaning is in docs/pipeline.md; the nodes' side is `beanpoled.eventlog.columns`.
"""

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from beanpole.errors import ConfigurationError, UnknownVersion

_LONG: Final = LongType()
_INT: Final = IntegerType()
_TEXT: Final = StringType()

_COLUMNS: Final[dict[str, DataType]] = {
    "offset": _LONG,
    "log_index": _LONG,
    "position": _INT,
    "time_us": _LONG,
    "wall_time": TimestampType(),
    "protocol": _TEXT,
    "event": _TEXT,
    "tube": _TEXT,
    "job_id": _LONG,
    "external_id": _TEXT,
    "state_before": _TEXT,
    "state": _TEXT,
    "reason": _TEXT,
    "priority": _LONG,
    "delay_s": _LONG,
    "ttr_s": _LONG,
    "body_bytes": _LONG,
    "node": _TEXT,
    "incarnation": _LONG,
    "session": _LONG,
    "worker": _TEXT,
    "host": _TEXT,
    "attempt": _INT,
    "timeouts": _INT,
    "releases": _INT,
    "buries": _INT,
    "kicks": _INT,
    "wait_us": _LONG,
    "run_us": _LONG,
    "ready_at_us": _LONG,
    "client_time_us": _LONG,
}
EVENTS: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])

# Spark accepts exactly these and no variants (no dictionaries, no other time unit).
_ARROW: Final[dict[type[DataType], pa.DataType]] = {
    LongType: pa.int64(),
    IntegerType: pa.int32(),
    StringType: pa.string(),
    TimestampType: pa.timestamp("us", "UTC"),
}


def chosen(names: Iterable[str]) -> StructType:
    """Return the schema with these columns in this order; without names, all of them.

    Raises:
        ConfigurationError: there is no column of that name.
    """
    names = list(names) or list(_COLUMNS)
    if unknown := [name for name in names if name not in _COLUMNS]:
        raise ConfigurationError(
            f"there is no column {', '.join(map(repr, unknown))}; there are {', '.join(_COLUMNS)}"
        )
    return StructType([EVENTS[name] for name in names])


def checked(schema: StructType) -> StructType:
    """Return a schema that a user gave, if its columns are known.

    Raises:
        ConfigurationError: a column is unknown or is of another type.
    """
    for field, own in zip(schema, chosen(schema.names), strict=True):
        if field.dataType != own.dataType:
            raise ConfigurationError(
                f"column {field.name!r} is {own.dataType.simpleString()}, "
                f"not {field.dataType.simpleString()}"
            )
    return schema


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects for one of our schemas."""
    return pa.schema([pa.field(field.name, _ARROW[type(field.dataType)]) for field in schema])


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly these columns.

    A column that a node of an older version lacks is null. Additional columns of a newer node are
    left out.

    Raises:
        UnknownVersion: a column has another type than here.
    """
    columns = []
    for field in schema:
        number = batch.schema.get_field_index(field.name)
        if number < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(number)
        if column.type != field.type:
            raise UnknownVersion(
                f"the node sends column {field.name!r} as {column.type}, this program knows it "
                f"as {field.type}: use one of the node's version"
            )
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
