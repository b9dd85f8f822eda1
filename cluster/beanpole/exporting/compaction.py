"""Compaction: small files of one date become large ones, and the same events count throughout.

The manifest first says that the large file will come and does not count. Then the file is written,
and the manifest lists it in place of the small ones, which it says do not count any more. Then
those are removed. So at any moment the manifest tells whether a file that is there counts.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from beanpole.exporting import files as steps
from beanpole.exporting.directory import Directory
from beanpole.exports import FILE_ROWS_MAX, BadExport, File, file_name

if TYPE_CHECKING:
    import pyarrow as pa

# As many small files at the end of a date are worth merging while an export runs.
FILES_MIN: Final = 16
# Of the date before, so many times as many are looked at.
_FILES_SEEN: Final = 8
# Readers that began before a running export compacted still find what they listed.
GRACE_S: Final = 600


def groups(
    files: Iterable[File], before_date: str = "", rows_max: int = FILE_ROWS_MAX
) -> list[tuple[File, ...]]:
    """Return which files to merge, each group into one file: all that is worth it.

    Args:
        files: those of a manifest, in order.
        before_date: only those of earlier dates, YYYY-MM-DD; empty: of all.
        rows_max: the most events of a file.
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
    """Return which files a running export should merge now; none if it is not worth it yet.

    The longest run of `files_min` files or more at the end of the newest date of which no file has
    more than half of the events. So a date has few files, and an event is written again as often
    as the logarithm of the number of files. What is left of the date before is merged when a new
    one has begun.
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
    """Merge files of one date that follow each other into one.

    Args:
        directory: held by this process.
        group: some of its files.
        grace_s: how long the small ones are kept for readers that have listed them.

    Raises:
        BadExport: one of them is not as it was written; then nothing has changed.
        OSError: the disk is full, or fails; the same events count as before.
    """
    place, manifest = directory.place, directory.manifest
    name = file_name(group[0].date, group[0].first, group[-1].end)
    rows = group[-1].end - group[0].first
    directory.change(manifest._replace(uncounted={**manifest.uncounted, name: 0}))
    try:
        [file] = steps.write_range(place, manifest.cluster, _read(directory, group), rows_max=rows)
    except (BadExport, OSError):
        # The disk may be full; then the name stays announced, and is removed by the next one.
        with contextlib.suppress(OSError):
            directory.clean()
        raise
    assert file.name == name, f"{file.name} was to be {name}"
    replaced = {one.name for one in group}
    kept = [one for one in manifest.files if one.name not in replaced]
    at_s = int(time.time()) + grace_s if grace_s else 0
    uncounted = {**manifest.uncounted, **dict.fromkeys(replaced, at_s)}
    directory.change(manifest.with_files([*kept, file])._replace(uncounted=uncounted))
    directory.clean()
    return file


def _read(directory: Directory, group: Sequence[File]) -> Iterator["pa.RecordBatch"]:
    """Give the events of files in order, with the columns that any of them has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    place, cluster = directory.place, directory.manifest.cluster
    found = []
    for file in group:
        try:
            found.append(pq.read_schema(place.at(file.name), filesystem=place.files))
        except (pa.ArrowException, OSError) as error:
            words = str(error).partition("\n")[0]
            raise BadExport(f"{place.name}/{file.name} cannot be read: {words}") from None
    schema = pa.unify_schemas([one.remove_metadata() for one in found])
    for file in group:
        try:
            for batch in steps.read_file(place, file, cluster):
                yield steps.with_columns(batch, schema)
        except FileNotFoundError:
            raise BadExport(f"{place.name}/{file.name} is not there") from None
