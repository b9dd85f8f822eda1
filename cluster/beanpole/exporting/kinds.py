"""Check main columns of a file of events by its metadata: their types, and that they have values.

A checksum tells that a file is what was written, not that events were. Readers compare and add
these columns, and would end with an error of Python. Columns of other versions are let through:
one may be absent, and numbers may have another width. Values are counted where the file has
statistics.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from beanpole.exports import BadExport, File
from beanpole.places import Place

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_NUMBER: Final = "a whole number"
_TEXT: Final = "a text"
_TIME: Final = "a time in microseconds"
_KINDS: Final = {
    "offset": _NUMBER, "time_us": _NUMBER, "wall_time": _TIME, "event": _TEXT, "tube": _TEXT,
    "job_id": _NUMBER, "state_before": _TEXT, "state": _TEXT,
}  # fmt: skip
# Every event has these.
_NEVER_NULL: Final = ("offset", "time_us", "wall_time", "event", "job_id")


def check_columns(place: Place, file: File, metadata: "pq.FileMetaData") -> None:
    """Check the columns of a file that readers count on.

    Raises:
        BadExport: one has another type, or no value in some event.
    """
    schema = metadata.schema.to_arrow_schema()
    allowed = _allowed()
    for name, kind in _KINDS.items():
        number = schema.get_field_index(name)
        if number >= 0 and not allowed[kind](schema.field(number).type):
            raise BadExport(
                f"{place.name}/{file.name} has {schema.field(number).type} in its column "
                f"{name!r}, which must be {kind}"
            )
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            found = column.statistics
            is_checked = column.path_in_schema in _NEVER_NULL and found is not None
            if is_checked and found.has_null_count and found.null_count:
                raise BadExport(
                    f"{place.name}/{file.name} has events without a value in its column "
                    f"{column.path_in_schema!r}"
                )


def _allowed() -> dict[str, Callable[[Any], bool]]:
    import pyarrow as pa

    def is_text(kind: Any) -> bool:
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    def is_time(kind: Any) -> bool:
        return bool(pa.types.is_timestamp(kind) and kind.unit == "us")

    return {_NUMBER: pa.types.is_integer, _TIME: is_time, _TEXT: is_text}
