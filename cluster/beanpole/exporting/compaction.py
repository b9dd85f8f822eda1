"""Compaction: merge small files of one date into large ones without changing the counted events.

The manifest first announces the large file as one that does not count. Then the file is written,
and the manifest lists it in place of the small files, which it marks as not counting. Then the
small files are removed. So at any moment the manifest determines whether an existing file counts.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from beanpole.exporting.directory import Directory
from beanpole.exporting.files import read_file, unreadable, write_range
from beanpole.exports import FILE_ROWS_MAX, BadExport, File, file_name

if TYPE_CHECKING:
    import pyarrow as pa

# The number of small files at the end of a date that makes a merge worthwhile during an export.
FILES_MIN: Final = 16
# For the date before, this multiple of that number is examined.
_FILES_SEEN: Final = 8
# Replaced files are kept for this time, so that readers that began before still find them.
GRACE_S: Final = 600


def groups(
    files: Iterable[File], before_date: str = "", rows_max: int = FILE_ROWS_MAX
) -> list[tuple[File, ...]]:
    """Return all worthwhile groups of files, each to be merged into one file.

    Args:
        files: the files of a manifest, in order.
        before_date: only files of earlier dates, YYYY-MM-DD; empty for all dates.
        rows_max: the most events in one file.
    """
    found: list[list[File]] = []
    for file in files:
        if before_date and file.date >= before_date:
            continue
        last = found[-1] if found else []
        rows = sum(one.rows for one in last) + file.rows
        if last and _follows(last[-1], file) and rows <= rows_max:
            last.append(file)
        else:
            found.append([file])
    return [tuple(group) for group in found if len(group) > 1]


def due(
    files: Sequence[File], files_min: int = FILES_MIN, rows_max: int = FILE_ROWS_MAX
) -> tuple[File, ...]:
    """Return the files that a running export should merge now; empty if it is not yet worthwhile.

    These are the longest run of at least `files_min` files at the end of the newest date in which
    no file has more than half of the events. So a date has few files, and the number of times that
    an event is rewritten is logarithmic in the number of files. The remaining files of a date are
    merged when the next date has begun.
    """
    if not files:
        return ()
    before = [file for file in files if file.date < files[-1].date]
    rest = groups(before[-_FILES_SEEN * files_min :], rows_max=rows_max)
    if rest and rest[-1][-1] == before[-1]:
        return rest[-1]
    rows = largest = length = 0
    for number, file in enumerate(reversed(files), 1):
        rows += file.rows
        largest = max(largest, file.rows)
        if rows > rows_max or (number > 1 and not _follows(file, files[-number + 1])):
            break
        if number >= files_min and 2 * largest <= rows:
            length = number
    return tuple(files[len(files) - length :])


def _follows(low: File, high: File) -> bool:
    return low.end == high.first and low.date == high.date


def merge(directory: Directory, group: Sequence[File], grace_s: int = 0) -> File:
    """Merge consecutive files of one date into one file.

    Args:
        directory: the directory, held by this process.
        group: some of its files.
        grace_s: the time for which the small files are kept for readers that have listed them.

    Raises:
        BadExport: one of the files is corrupt, or another process has taken the directory; nothing
            has changed then.
        OSError: the disk is full, or fails; the same events count as before.
    """
    place, manifest = directory.place, directory.manifest
    name = file_name(group[0].date, group[0].first, group[-1].end)
    rows = group[-1].end - group[0].first
    directory.change(manifest._replace(uncounted={**manifest.uncounted, name: 0}))
    try:
        events = _read(directory, group)
        [file] = write_range(place, manifest.cluster, events, rows, directory.check_owner)
    except (BadExport, OSError):
        # The disk may be full: then the name stays announced, and the next `clean` removes it.
        with contextlib.suppress(OSError):
            directory.clean()
        raise
    assert file.name == name, f"{file.name} was to be {name}"
    replaced = {one.name for one in group}
    kept = [one for one in manifest.files if one.name not in replaced]
    at_s = int(time.time()) + grace_s if grace_s else 0
    uncounted = {**manifest.uncounted, **dict.fromkeys(replaced, at_s)}
    merged = manifest.with_files([*kept, file])._replace(uncounted=uncounted)
    directory.change_with(merged, (name,))
    directory.clean()
    return file


def _read(directory: Directory, group: Sequence[File]) -> Iterator["pa.RecordBatch"]:
    """Yield the events of files in order, with the union of their columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, cluster = directory.place, directory.manifest.cluster
    found = []
    for file in group:
        try:
            found.append(pq.read_schema(place.at(file.name), filesystem=place.files))
        except (pa.ArrowException, OSError) as error:
            raise unreadable(place, file, error) from None
    schema = pa.unify_schemas([one.remove_metadata() for one in found])
    for file in group:
        try:
            for batch in read_file(place, file, cluster):
                yield _with_columns(batch, schema)
        except FileNotFoundError:
            raise BadExport(f"{place.name}/{file.name} is not there") from None


def _with_columns(batch: "pa.RecordBatch", schema: "pa.Schema") -> "pa.RecordBatch":
    """Return a batch with the columns of a schema; columns that it lacks are null."""
    import pyarrow as pa

    columns = [
        batch.column(number)
        if (number := batch.schema.get_field_index(field.name)) >= 0
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
