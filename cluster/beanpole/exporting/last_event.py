"""The last event of an export directory, as the proof of which cluster its events are.

Clusters of the same name have the same offsets. Without the birth ids of both sides only an event
tells them apart: the wall time and the entry of the log of an event are the same on every node of
its cluster, and others in every other cluster. One equal event proves all events before it.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from beanpole.errors import ConfigurationError
from beanpole.exporting.files import read_file
from beanpole.exports import BadExport, Manifest
from beanpole.places import Place

if TYPE_CHECKING:
    import pyarrow as pa

# Columns of every release whose values no release derives in another way.
COLUMNS: Final = ("offset", "log_index", "position", "time_us", "wall_time", "event", "job_id")

# Returns the event of a cluster at an offset, as one row; None if no node has it any more.
EventAt = Callable[[int], "pa.RecordBatch | None"]


def check_last_event(place: Place, manifest: Manifest, event_at: EventAt, birth: str) -> None:
    """Check that a cluster has the last event of a directory.

    Args:
        place: the directory.
        manifest: its manifest.
        event_at: how to get an event of the cluster.
        birth: the birth id that the directory is about to get; empty if the nodes tell none. Then
            the directory may go on without a proof, as before there were birth ids.

    Raises:
        ConfigurationError: the cluster has another event there; or, with a birth id, the event
            is not there on one of the sides.
    """
    if not manifest.files:
        return
    mine = _last_event(place, manifest)
    theirs = event_at(mine["offset"]) if mine is not None else None
    if mine is not None and theirs is not None:
        _check_same(place, manifest, mine, _values(theirs))
    elif birth:
        lacking = (
            f"no node keeps its last event {mine['offset']}"
            if mine is not None
            else "none of its files can be read"
        )
        raise ConfigurationError(
            f"{place.name} has no birth id, and {lacking}, so that nothing tells whether its "
            f"events are those of the cluster {manifest.cluster} with the birth id {birth}: give "
            "a new directory"
        )


def _last_event(place: Place, manifest: Manifest) -> Mapping[str, Any] | None:
    """Return the last event whose file can be read; files may be lost or damaged."""
    for file in reversed(manifest.files):
        try:
            for rows in read_file(place, file, manifest.cluster, file.end - 1):
                return _values(rows)
        except (FileNotFoundError, BadExport):
            continue
    return None


def _check_same(
    place: Place, manifest: Manifest, mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> None:
    for name in COLUMNS:
        if mine[name] != theirs[name]:
            raise ConfigurationError(
                f"{place.name} holds events of another cluster of the name {manifest.cluster}: "
                f"its event {mine['offset']} has {name} = {mine[name]}, that of the nodes has "
                f"{theirs[name]}: give a new directory"
            )


def _values(rows: "pa.RecordBatch") -> Mapping[str, Any]:
    """Return the columns of the first row, the time as the microseconds that readers agree on.

    Raises:
        BadExport: a column is missing, which no release leaves out.
    """
    import pyarrow as pa

    found = {}
    for name in COLUMNS:
        place = rows.schema.get_field_index(name)
        if place < 0:
            raise BadExport(f"an event has no column {name}")
        column = rows.column(place)
        is_time = pa.types.is_timestamp(column.type)
        found[name] = (column.cast(pa.int64()) if is_time else column)[0].as_py()
    return found
