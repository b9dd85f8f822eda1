"""The export of a cluster's events to a directory of Parquet files, which Spark and others read.

What is in such a directory, and how it is changed so that a process that is killed at any moment
leaves neither a part nor a second copy of an event, is in `beanpole.exporting`.
"""

from typing import TYPE_CHECKING

from beanpole.errors import ConfigurationError
from beanpole.exporting import compaction
from beanpole.exporting.directory import Directory, begun, held
from beanpole.exporting.files import Writer
from beanpole.exports import BadExport, Span
from beanpole.places import resolved
from beanpoled.view import JobCounts

if TYPE_CHECKING:
    import pyarrow as pa


class Export:
    """An export directory, held by this process until `close`."""

    def __init__(self, directory: Directory) -> None:
        """Use `open_export` or `begin_export`."""
        self._directory = directory
        self._writer = Writer(directory.place, directory.manifest.cluster)

    @property
    def name(self) -> str:
        """The directory, for people."""
        return self._directory.place.name

    @property
    def spans(self) -> tuple[Span, ...]:
        """The ranges of offsets that are here."""
        return self._directory.manifest.spans

    @property
    def end(self) -> int:
        """The offset behind everything that is here; 0 if there is nothing."""
        return self._directory.manifest.end

    @property
    def lost(self) -> tuple[str, ...]:
        """What was lost of the events that were exported before, in a line each."""
        return self._directory.lost

    def write(self, batch: "pa.RecordBatch") -> None:
        """Add events; they count once `flush` has returned, or when their file is full."""
        self._directory.add(self._writer.write(batch))

    def flush(self) -> None:
        """Finish the file that is being written, so that readers see it."""
        self._directory.add(self._writer.finish())

    def tidy(self) -> None:
        """Merge small files if it is worth it, at most one group of them.

        Raises:
            BadExport: one of them is not as it was written. The export can go on.
            OSError: there is no room for the large file, say. The export can go on.
        """
        self._directory.clean()
        if group := compaction.due(self._directory.manifest.files):
            compaction.merge(self._directory, group, compaction.GRACE_S)

    def touch(self) -> None:
        """Say now and then that this process has the directory, where there are no locks."""
        self._directory.touch()

    def close(self) -> None:
        """Let others have the directory; what was not flushed is forgotten."""
        self._writer.drop()
        self._directory.close()


def open_export(directory: str, cluster: str) -> Export | None:
    """Take an export directory; None if there is none yet (see `begin_export`).

    Raises:
        ConfigurationError: it is another cluster's, another process has it, or it is no export.
        BadExport: it has the same events twice, or a new file that is not whole.
    """
    found = held(resolved(directory), cluster)
    return None if found is None else Export(found)


def begin_export(directory: str, cluster: str, jobs_before: JobCounts) -> Export:
    """Make an export directory. `jobs_before`: the counts before the first event to come."""
    return Export(begun(resolved(directory), cluster, jobs_before._asdict()))


def compact(directory: str, before_date: str) -> tuple[int, int]:
    """Merge the small files of a directory.

    Args:
        directory: a path or URI.
        before_date: only files of earlier dates, YYYY-MM-DD; empty: of all.

    Returns:
        How many files there were, and how many there are.

    Raises:
        ConfigurationError: as `open_export`; or there is no export.
        BadExport: a file is lost, or one to be merged is not as it was written.
    """
    place = resolved(directory)
    found = held(place)
    if found is None:
        raise ConfigurationError(
            f"{place.name} has no events: `beanpole events export` writes them"
        )
    with found:
        if found.lost:
            raise BadExport(found.lost[0])
        before = len(found.manifest.files)
        for group in compaction.groups(found.manifest.files, before_date):
            compaction.merge(found, group)
        # At once, also what an export that ran here has kept for its readers.
        found.clean(everything=True)
        return before, len(found.manifest.files)
