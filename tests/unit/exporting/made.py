"""Export directories to try things with: events by chance, and what a reader finds of them."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from beanpole.exporting.directory import begun
from beanpole.exporting.files import DAY_US, write_range
from beanpole.exports import File
from beanpole.places import resolved
from beanpoled.eventlog import columns
from pyspark_beanpole.exports import Opened
from tests.unit.eventlog.made import chance


def batch(first: int, rows: int, day: int = 0) -> pa.RecordBatch:
    """Rows whose wall times lie on one day."""
    found = columns.to_arrow(chance(first, rows, first))
    stamps = pa.array([day * DAY_US + 5] * rows, pa.int64())
    place = found.schema.get_field_index("wall_time")
    return found.set_column(place, "wall_time", stamps.view(columns.schema().field(place).type))


def exported(
    directory: Path, parts: Iterable[tuple[int, int, int]], cluster: str = "c"
) -> list[File]:
    """Make an export with a file for each (first, rows, day)."""
    with begun(resolved(str(directory)), cluster, {"ready": 3}) as out:
        for first, rows, day in parts:
            out.add(write_range(out.place, cluster, [batch(first, rows, day)]))
        return list(out.manifest.files)


def offsets(export: Opened, first: int | None = None, end: int | None = None) -> list[int]:
    """Return all offsets that a reader gets."""
    return [
        offset for rows in export.read(first, end) for offset in rows.column("offset").to_pylist()
    ]
