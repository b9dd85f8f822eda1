"""Open and read an export; every reader of the pipeline goes through `opened`, which checks it.

This module holds the operations on an export that commands and tasks need, without Spark. The
formats of the manifest and of the files are in `beanpole.exports` and `beanpole.exporting`.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from beanpole.errors import ConfigurationError
from beanpole.exporting.directory import listed, read_manifest
from beanpole.exporting.files import BATCH_ROWS, How, changes_of, checked, read_file
from beanpole.exports import (
    MANIFEST,
    STATES,
    BadExport,
    Compared,
    File,
    Manifest,
    Problem,
    Span,
    compared,
    holes,
    joined,
)
from beanpole.places import Place, resolved

# A directory that changes during a listing is listed again, at most this many times in all; no
# exporter changes it between every two of them.
LOOKS_MAX: Final = 10
# Threads that read and check files, which releases the interpreter's lock.
THREADS: Final = 8
# Up to this size, a local export is checked in a second or two, before Spark has started.
AHEAD_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True)
class Opened:
    """An export at the time it was opened: plain values, which can be sent to Spark's tasks."""

    # As given: a path or a URI.
    directory: str
    cluster: str
    # The valid files, in the order of offsets; each is whole on its own.
    files: tuple[File, ...]
    # The number of jobs by state before the first event of the manifest.
    jobs_before: Mapping[str, int]
    # Missing ranges of offsets, each first <= offset < end, in order: holes in the spans of the
    # manifest, and files that were passed over.
    missing: tuple[Span, ...] = ()
    # The problems that were passed over, a line for each.
    notes: tuple[str, ...] = ()
    # Whether every valid file was checked already, not only listed.
    verified: bool = False
    # The birth id of the cluster; empty if the manifest does not tell it.
    birth: str = ""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The ranges of offsets that the files hold, each first <= offset < end, in order."""
        return joined((file.first, file.end) for file in self.files)

    @property
    def first(self) -> int:
        """The first offset; 0 without events."""
        return self.files[0].first if self.files else 0

    @property
    def end(self) -> int:
        """The offset after the last event; 0 without events."""
        return self.files[-1].end if self.files else 0

    @property
    def rows(self) -> int:
        """The number of events."""
        return sum(file.rows for file in self.files)

    def read(
        self,
        first: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] | None = None,
        texts: Sequence[str] = (),
        batch_rows: int = BATCH_ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the events [first, end) in order, each once, each from a file that was checked.

        A file is checked as a whole when any part of it is read: its size, checksum, number of
        events and cluster, and that its offsets are dense. If a compaction has replaced files
        since, their events are read from the new files. Ranges that are `missing` are skipped.
        Batches have the columns of their file.

        Args:
            first: the first offset; None for that of the export.
            end: the offset after the last event; None for all.
            columns: the columns to read, of which a file of an older version may lack some; None
                for all.
            texts: columns to return as dictionaries.
            batch_rows: the most rows of a batch.

        Raises:
            BadExport: a file is gone, or not as it was written.
            ConfigurationError: the directory can no longer be reached.
        """
        place = resolved(self.directory)
        low = self.first if first is None else first
        high = self.end if end is None else end
        how = How(columns, texts, batch_rows)
        for file in self.files:
            if file.first < high and low < file.end:
                yield from self._read(place, file, max(low, file.first), min(high, file.end), how)

    def _read(
        self, place: Place, file: File, first: int, end: int, how: How
    ) -> Iterator[pa.RecordBatch]:
        """Read a part of one file, or of the files that replaced it."""
        position = first
        files: Sequence[File] = (file,)
        for _ in range(LOOKS_MAX):
            try:
                for one in files:
                    for batch in read_file(place, one, self.cluster, position, end, how):
                        position += batch.num_rows
                        yield batch
                if position < end:
                    break
                return
            except FileNotFoundError:
                files = holding(place, position, end)
        raise BadExport(f"{place.name}/{file.name} is not there any more")

    def verify(self, file: File) -> None:
        """Check one file as `read` does, except for its individual offsets.

        Raises:
            BadExport: the file is gone, or not as it was written.
        """
        place = resolved(self.directory)
        try:
            checked(place, file, self.cluster)
        except FileNotFoundError:
            for one in holding(place, file.first, file.end):
                checked(place, one, self.cluster)

    def verify_all(self) -> None:
        """Check all files, several at a time; meant for an export of some gigabytes.

        Raises:
            BadExport: as `verify`, for the first bad file in the order of offsets.
        """
        with ThreadPoolExecutor(THREADS) as threads:
            for _ in threads.map(self.verify, self.files):
                pass

    def verified_ahead(self) -> "Opened":
        """Check all files now if that takes only a moment; return the export, verified or as it is.

        Raises:
            BadExport: as `verify`.
        """
        size = sum(file.bytes or 0 for file in self.files)
        if self.verified or size > AHEAD_BYTES_MAX or not resolved(self.directory).is_local:
            return self
        self.verify_all()
        return replace(self, verified=True)

    def changes(self, before: int) -> dict[str, dict[str, int]] | None:
        """Return the change of each tube's count of jobs by state, from the beginning to an offset.

        Only the metadata of the files is read.

        Args:
            before: the first offset of a file, or the end.

        Returns:
            Changes by tube and state; None if a file lacks this metadata, as files of release
            0.3.0.
        """
        place = resolved(self.directory)
        files = self.files
        for _ in range(LOOKS_MAX):
            wanted = [file for file in files if file.end <= before]
            try:
                with ThreadPoolExecutor(THREADS) as threads:
                    found = list(threads.map(lambda file: changes_of(place, file), wanted))
                break
            except FileNotFoundError:
                # A compaction has replaced some files: the sums over its large files are the same.
                files = _looked_at(place)[1].files
        else:
            return None
        total: dict[str, dict[str, int]] = {}
        for changes in found:
            if changes is None:
                return None
            for tube, by_state in changes.items():
                so_far = total.setdefault(tube, dict.fromkeys(STATES, 0))
                for state, change in by_state.items():
                    so_far[state] += change
        # A large file may extend across the offset.
        is_whole = sum(file.rows for file in wanted) == sum(
            file.rows for file in self.files if file.end <= before
        )
        return total if is_whole else None


def opened(directory: str, allow_missing: bool = False, *, allow_holes: bool = False) -> Opened:
    """Open an export: select its valid files, and check that they exist with their sizes.

    Args:
        directory: a path or URI, as stock Spark takes it.
        allow_missing: pass over lost and damaged files, for which all files are read and checked
            now; otherwise checksums are compared when a file is read.
        allow_holes: pass over ranges that the manifest does not have, and over no damage.

    Raises:
        ConfigurationError: it is not an export, or of another version.
        BadExport: a file is lost, truncated, duplicated or of another origin, and `allow_missing`
            is not set; or events between files are missing, and neither option is set.
    """
    place = resolved(directory)
    manifest, found = _looked_at(place)
    gaps = [] if allow_holes and not allow_missing else _hole_problems(manifest, place)
    problems = [*found.problems, *gaps]
    if problems and not allow_missing:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise BadExport(
            f"{problems[0].words}{more}; --allow-missing (failOnDataLoss = false) passes over it"
        )
    export = Opened(
        directory,
        manifest.cluster,
        found.files,
        manifest.jobs_before,
        missing=holes(manifest.spans),
        birth=manifest.birth,
    )
    return _without_damaged(export, problems) if allow_missing else export


def _looked_at(place: Place) -> tuple[Manifest, Compared]:
    """Return a manifest and a listing that match, although an exporter may change both."""
    manifest = _manifest(place)
    for _ in range(LOOKS_MAX):
        found = compared(manifest, listed(place), place.name)
        again = _manifest(place) if found.problems else manifest
        if again == manifest:
            break
        manifest = again
    return manifest, found


def _manifest(place: Place) -> Manifest:
    found = read_manifest(place)
    if found is None:
        raise ConfigurationError(
            f"{place.name} is not a directory that `beanpole events export` wrote: it has no "
            f"{MANIFEST}"
        )
    return found


def _hole_problems(manifest: Manifest, place: Place) -> list[Problem]:
    return [
        Problem(
            f"{place.name} has no events {first} to {end - 1}: they were gone when it was written",
            (first, end),
        )
        for first, end in holes(manifest.spans)
    ]


def _without_damaged(export: Opened, problems: Sequence[Problem]) -> Opened:
    """Check all files, and leave out those that are not as they were written."""

    def problem(file: File) -> Problem | None:
        try:
            export.verify(file)
        except BadExport as error:
            return Problem(str(error), (file.first, file.end))
        return None

    with ThreadPoolExecutor(THREADS) as threads:
        judged = list(zip(export.files, threads.map(problem, export.files), strict=True))
    every = [*problems, *(one for _, one in judged if one is not None)]
    return replace(
        export,
        files=tuple(file for file, one in judged if one is None),
        missing=joined(one.lost for one in every if one.lost is not None),
        notes=tuple(one.words for one in every),
        verified=True,
    )


def holding(place: Place, first: int, end: int) -> list[File]:
    """Return the files that hold a range now, according to the manifest.

    Raises:
        BadExport: no existing file holds the range's beginning.
    """
    _, found = _looked_at(place)
    there = [file for file in found.files if file.first < end and first < file.end]
    if not there or joined((file.first, file.end) for file in there)[0][0] > first:
        lost = [one.words for one in found.problems if one.lost]
        raise BadExport(lost[0] if lost else f"{place.name} has lost the events from {first} on")
    return there
