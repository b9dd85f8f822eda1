"""A directory of Parquet files of a cluster's events, which Spark and others read.

    DIR/_manifest.json                                     what is here
    DIR/date=YYYY-MM-DD/events-<first>-<end>.parquet       events first <= offset < end

Dates are those of wall time in UTC. A file is written under a hidden name, synced, renamed, and
never changed; the manifest is replaced after each. Files count by their names, so a process that is
killed at any moment leaves neither a part nor a second copy of an event.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from beanpole.errors import ConfigurationError
from beanpoled.eventlog import columns
from beanpoled.view import JobCounts

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST: Final = "_manifest.json"
LOCK: Final = "_lock"
VERSION: Final = 1
# A file of about 50 MB: smaller ones cost Spark a task each, larger ones give it too few tasks.
FILE_ROWS_MAX: Final = 2_000_000
# Rows of a row group: what a reader holds in memory of a file.
GROUP_ROWS: Final = 131_072
DAY_US: Final = 86_400_000_000

_NAME: Final = re.compile(r"events-([0-9]{20})-([0-9]{20})\.parquet")

Span = tuple[int, int]


class Export:
    """An export directory, held by this process until `close`."""

    def __init__(self, directory: Path, lock: TextIO, manifest: dict[str, Any]) -> None:
        """Use `open_export`, which checks that the directory is one."""
        self.directory = directory
        self.spans: list[Span] = manifest["spans"]
        self._lock = lock
        self._manifest = manifest
        self._writer: Any = None
        self._first = self._end = 0  # of the file that is being written
        self._day = 0
        self._adopt()

    def _adopt(self) -> None:
        """Count the files that the manifest does not know yet, and remove unfinished ones."""
        known = list(self.spans)
        for path in sorted(self.directory.glob("date=*/.events-*")):
            path.unlink()
        found = [_NAME.fullmatch(path.name) for path in self.directory.glob("date=*/events-*")]
        for match in filter(None, found):
            first, end = int(match[1]), int(match[2])
            if not any(low <= first and end <= high for low, high in known):
                self._add(first, end)
        if self.spans != known:
            self._write_manifest()

    @property
    def end(self) -> int:
        """The offset behind everything that is here; 0 if there is nothing."""
        return self.spans[-1][1] if self.spans else 0

    def write(self, batch: "pa.RecordBatch") -> None:
        """Add events; they count once `flush` has returned, or when their file is full."""
        for day, rows in _days(batch):
            first = rows.column("offset")[0].as_py()
            if self._writer is not None and (
                day != self._day or first != self._end or self._end - self._first >= FILE_ROWS_MAX
            ):
                self.flush()
            if self._writer is None:
                self._begin(day, first)
            self._writer.write_batch(rows, row_group_size=GROUP_ROWS)
            self._end += rows.num_rows

    def flush(self) -> None:
        """Finish the file that is being written, so that readers see it."""
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        hidden = self._hidden()
        with hidden.open("rb") as file:
            os.fsync(file.fileno())
        hidden.rename(hidden.with_name(f"events-{self._first:020d}-{self._end:020d}.parquet"))
        _sync(hidden.parent)
        self._add(self._first, self._end)
        self._write_manifest()

    def close(self) -> None:
        """Let others have the directory; what was not flushed is forgotten."""
        self._lock.close()

    def _begin(self, day: int, first: int) -> None:
        import pyarrow.parquet as pq

        self._day, self._first, self._end = day, first, first
        folder = self._hidden().parent
        folder.mkdir(exist_ok=True)
        _sync(self.directory)
        self._writer = pq.ParquetWriter(self._hidden(), columns.schema(), compression="zstd")

    def _hidden(self) -> Path:
        date = datetime.fromtimestamp(self._day * DAY_US // 1_000_000, UTC).date()
        return self.directory / f"date={date}" / f".events-{self._first:020d}"

    def _add(self, first: int, end: int) -> None:
        spans = sorted([*self.spans, (first, end)])
        joined = [spans[0]]
        for low, high in spans[1:]:
            if low < joined[-1][1]:
                raise ConfigurationError(
                    f"{self.directory} holds the events {low} to {joined[-1][1]} twice: it was not "
                    "written by one export"
                )
            if low == joined[-1][1]:
                joined[-1] = (joined[-1][0], high)
            else:
                joined.append((low, high))
        self.spans = joined

    def _write_manifest(self) -> None:
        self._manifest["spans"] = self.spans
        write_manifest(self.directory, self._manifest)


def open_export(directory: Path, cluster: str) -> Export | None:
    """Take an export directory; None if there is none yet (see `begin_export`).

    Raises:
        ConfigurationError: it is another cluster's, another process has it, or it is no export.
    """
    path = directory / MANIFEST
    if not path.exists():
        if directory.exists() and any(not _hides(entry) for entry in directory.iterdir()):
            raise ConfigurationError(
                f"{directory} is not empty and has no {MANIFEST}: give a new directory"
            )
        return None
    lock = _locked(directory)
    try:
        return Export(directory, lock, _read_manifest(path, cluster))
    except BaseException:
        lock.close()
        raise


def _read_manifest(path: Path, cluster: str) -> dict[str, Any]:
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
        version, owner, _ = manifest["version"], manifest["cluster"], manifest["jobs_before"]
        manifest["spans"] = [(int(first), int(end)) for first, end in manifest["spans"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigurationError(f"{path} cannot be read: {error!r}") from error
    if version != VERSION:
        raise ConfigurationError(f"{path} is of version {version}; this program knows {VERSION}")
    if owner != cluster:
        raise ConfigurationError(
            f"{path.parent} holds events of cluster {owner}, not of {cluster}: give another "
            "directory"
        )
    return manifest


def begin_export(directory: Path, cluster: str, jobs_before: JobCounts) -> Export:
    """Make an export directory. `jobs_before`: the counts before the first event to come."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = _locked(directory)
    manifest = {
        "version": VERSION,
        "cluster": cluster,
        "spans": [],
        "jobs_before": jobs_before._asdict(),
    }
    write_manifest(directory, manifest)
    return Export(directory, lock, manifest)


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    """Replace the manifest; a reader sees the old or the new one."""
    temporary = directory / f".{MANIFEST}"
    with temporary.open("w") as file:
        file.write(json.dumps(manifest) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(directory / MANIFEST)
    _sync(directory)


def _locked(directory: Path) -> TextIO:
    lock = (directory / LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigurationError(f"another export runs in {directory}") from None
    return lock


def _hides(entry: Path) -> bool:
    return entry.name.startswith(("_", "."))


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _days(batch: "pa.RecordBatch") -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """Split a batch where the date changes: days since 1970 in UTC, and the rows."""
    import numpy as np
    import pyarrow as pa

    days = batch.column("wall_time").cast(pa.int64()).to_numpy() // DAY_US
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), batch.num_rows]
    for start, stop in pairwise(starts):
        if start < stop:
            yield int(days[start]), batch.slice(start, stop - start)
