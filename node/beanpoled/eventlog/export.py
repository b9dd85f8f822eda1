"""The export of a cluster's events to a directory of Parquet files, for Spark and other tools.

`beanpole.exporting` defines the contents of such a directory, and changes it so that a process
killed at any moment leaves neither a partial file nor a second copy of an event.
"""

from typing import TYPE_CHECKING

from beanpole.errors import ConfigurationError
from beanpole.exporting import compaction
from beanpole.exporting.directory import Directory, begun, held
from beanpole.exporting.files import Writer
from beanpole.exporting.last_event import EventAt
from beanpole.exports import BadExport, Span
from beanpole.places import resolved
from beanpoled.view import JobCounts

if TYPE_CHECKING:
    import pyarrow as pa


class Export:
    """An export directory, held by this process until `close`."""

    def __init__(self, directory: Directory) -> None:
        """Internal: use `open_export` or `begin_export`."""
        self._directory = directory
        self._writer = self._new_writer()

    def _new_writer(self) -> Writer:
        directory = self._directory
        return Writer(directory.place, directory.manifest.cluster, check=directory.check_owner)

    @property
    def name(self) -> str:
        """The name of the directory, for messages."""
        return self._directory.place.name

    @property
    def spans(self) -> tuple[Span, ...]:
        """The ranges of offsets that are exported."""
        return self._directory.manifest.spans

    @property
    def end(self) -> int:
        """The offset after the last exported event; 0 if there is none."""
        return self._directory.manifest.end

    @property
    def lost(self) -> tuple[str, ...]:
        """Reports of exported events that were lost, one line each."""
        return self._directory.lost

    @property
    def lost_rows(self) -> int:
        """The number of events in `spans` that were lost."""
        return self._directory.lost_rows

    def write(self, batch: "pa.RecordBatch") -> None:
        """Add events; they count once `flush` has returned, or when their file is full."""
        try:
            full = self._writer.write(batch)
        except BadExport:
            # The directory was taken after one of several files had got its name.
            self._directory.disown(file.name for file in self._writer.named)
            raise
        try:
            self._directory.add(full)
        except BaseException:
            # A later file must not count before these: no export would ever ask for their events
            # again. The next process finds them, and takes them over.
            self._writer.drop()
            raise

    def flush(self) -> None:
        """Finish the open file, so that readers see it."""
        self._directory.add(self._writer.finish())

    def tidy(self) -> None:
        """Merge at most one group of small files, if that pays off.

        Raises:
            BadExport: a file is corrupt. The export can go on.
            OSError: for example, there is no room for the merged file. The export can go on.
        """
        self._directory.clean()
        if group := compaction.due(self._directory.manifest.files):
            compaction.merge(self._directory, group, compaction.GRACE_S)

    def claim(self, birth: str, event_at: EventAt) -> None:
        """Write down the birth id of the cluster, if the nodes tell it and it is not known yet.

        Args:
            birth: the birth id; empty if the nodes have not told it.
            event_at: how to get an event of the cluster, to compare it with the last one here.

        Raises:
            ConfigurationError: the events are of another cluster, or nothing tells.
        """
        if self._directory.is_new(birth):
            # Only the events of finished files are compared.
            self.flush()
        self._directory.claim(birth, event_at)

    def touch(self) -> None:
        """Renew this process's claim to a directory without locks; call it regularly."""
        self._directory.touch()

    def take_up(self) -> None:
        """Go on after an error of the place: the events from `end` on are to be written again.

        Raises:
            BadExport: another process has taken the directory, or it has a file that cannot be
                added.
            OSError: the place still fails; so does `StorageError`.
        """
        self._writer.drop()
        # Another one: what this one has named is found by the listing, or has been removed.
        self._writer = self._new_writer()
        self._directory.take_up()

    def close(self) -> None:
        """Release the directory; unflushed events are dropped."""
        self._writer.drop()
        self._directory.close()


def open_export(directory: str, cluster: str, birth: str = "") -> Export | None:
    """Open an export directory; None if there is none yet (see `begin_export`).

    Args:
        directory: a path or URI.
        cluster: the name of the cluster.
        birth: its birth id; empty if the nodes have not told it.

    Raises:
        ConfigurationError: it belongs to another cluster, also one of the same name; another
            process holds it; or it is no export.
        BadExport: it has the same events twice, or a new file that is incomplete.
    """
    found = held(resolved(directory), cluster, birth)
    return None if found is None else Export(found)


def begin_export(directory: str, cluster: str, jobs_before: JobCounts, birth: str = "") -> Export:
    """Make an export directory.

    Args:
        directory: a path or URI.
        cluster: the name of the cluster.
        jobs_before: the counts before its first event.
        birth: the birth id of the cluster; empty if the nodes have not told it.
    """
    return Export(begun(resolved(directory), cluster, jobs_before._asdict(), birth=birth))


def compact(directory: str, before_date: str) -> tuple[int, int]:
    """Merge the small files of a directory.

    Args:
        directory: a path or URI.
        before_date: merge only files of earlier dates, YYYY-MM-DD; empty: all files.

    Returns:
        The number of files before and after.

    Raises:
        ConfigurationError: like `open_export`; or there is no export.
        BadExport: a file is lost, or a file to be merged is corrupt.
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
        # Removes at once also the files that an export that ran here has kept for its readers.
        found.clean(everything=True)
        return before, len(found.manifest.files)
