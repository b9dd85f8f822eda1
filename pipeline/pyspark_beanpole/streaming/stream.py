"""A stream of events into a directory, committed batch by batch, safe against crashes.

The manifest of DIR/events is the truth: a batch is committed when the manifest lists its files. All
that is written earlier (files in a folder of their own, a new piece of the statistics) is removed
when a stream starts, and is made again. `cli.stream` schedules batches and shows progress.
"""

import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from beanpole.client.events import BegunAnew, Events, EventsLost, Extent
from beanpole.errors import ClientError, ConfigurationError
from beanpole.exporting import compaction, steps
from beanpole.exporting.directory import Directory, begun, held, listed
from beanpole.exporting.last_event import COLUMNS
from beanpole.exports import MANIFEST, STATES, UNCOUNTED, BadExport, Manifest, compared
from beanpole.places import Place, below, resolved, shown
from pyspark_beanpole.exports import opened
from pyspark_beanpole.inputs import from_export
from pyspark_beanpole.options import EARLIEST, LATEST, of_nodes
from pyspark_beanpole.planning import Range, kept, warn_of_silent
from pyspark_beanpole.readers import batches as read
from pyspark_beanpole.schema import chosen
from pyspark_beanpole.statistics.answers import finished
from pyspark_beanpole.statistics.keys import Parts
from pyspark_beanpole.statistics.parts import merged, reduced
from pyspark_beanpole.streaming import batches, tables
from pyspark_beanpole.streaming.pieces import Pieces

EVENTS_FOLDER: Final = "events"
TABLES_FOLDER: Final = "tables"
PARTS_FOLDER: Final = "_parts"
# Below DIR/events: uncommitted files of the tasks of batches.
TRIES_FOLDER: Final = "_tries"
CORES_UNKNOWN: Final = 2
# Folders of release 0.3.0 in such a directory, which the present layout lacks.
OLD: Final = ("partials", "_checkpoint")


class Settings(NamedTuple):
    """The parameters of a stream."""

    directory: str
    addresses: tuple[str, ...]
    patience_s: int
    # The start of a new directory: EARLIEST, LATEST or an offset.
    start: str
    rows_max: int
    skip_lost: bool
    statistics: bool


class Stream:
    """A directory that only this process changes, and the cluster whose events it receives."""

    def __init__(self, settings: Settings, events: Events) -> None:
        """Create a closed stream; call `open` next."""
        self._settings = settings
        self._nodes = events
        self._events = below(settings.directory, EVENTS_FOLDER)
        self._place = resolved(self._events)
        self._tables = resolved(below(settings.directory, TABLES_FOLDER))
        self._pieces = Pieces(resolved(below(settings.directory, PARTS_FOLDER)))
        self._directory: Directory | None = None
        # The start of the next batch, and the end of the events in the written tables.
        self.position = 0
        self._written: int | None = None
        # Whether memory and files agree, as they do except during a commit.
        self._is_whole = False

    @property
    def directory(self) -> Directory:
        """The growing export."""
        assert self._directory is not None, "a stream is opened before it is used"
        return self._directory

    def open(self) -> None:
        """Lock the directory, and remove what a process that died has left.

        After an error nothing is locked: it may be called again.

        Raises:
            ConfigurationError: it belongs to another cluster, another process has locked it, or it
                is not the directory of a stream.
            BadExport: a file that its manifest lists is missing or wrong.
            ClientError: no node answers.
        """
        settings = self._settings
        place = resolved(settings.directory)
        _check_no_export(place)
        _check_new_layout(place)
        extent = self._nodes.extent()
        found = held(self._place, extent.cluster, extent.birth, adopts=False)
        if found is None:
            self._directory = self._begun()
        else:
            try:
                _check_files(found)
                self.position = self._next_of(found.manifest)
                found.claim(self._nodes.birth, self._event_at)
            except BaseException:
                found.close()
                raise
            self._directory = found
        self._remove(TRIES_FOLDER)

    def restore(self, spark: SparkSession) -> None:
        """Read the partial statistics of the committed events, or compute them anew.

        Raises:
            BadExport: they are computed anew, and a file is damaged.
        """
        if not self._settings.statistics:
            self._is_whole = True
            return
        spans = self.directory.manifest.spans
        if self._pieces.load(spans):
            self._written = tables.end_of(self._tables)
        else:
            # The tables may be by earlier rules, too.
            first, end = (spans[0][0], spans[-1][1]) if spans else (0, 0)
            parts = _all_reduced(spark, self._events, 0 if first == 0 else None)
            self._pieces.begin(first, end, parts)
        self._pieces.clean()
        self._is_whole = True

    def close(self) -> None:
        """Release the directory."""
        if self._directory is not None:
            self._directory.close()
        self._nodes.__exit__()

    def end_now(self) -> int:
        """Return the offset of the cluster's next event.

        Raises:
            ConfigurationError: it lies before `position`: the cluster was begun anew.
            ClientError: no node answers.
        """
        return self._extent_to(self.position).end

    def step(self, spark: SparkSession, end: int) -> int:
        """Run a batch of the events up to an offset, at most `rows_max`.

        Args:
            spark: the session that runs its tasks.
            end: the end of the events, after `position`.

        Returns:
            The number of events in the batch.

        Raises:
            EventsLost: no node has the next event any more, and that is not allowed.
            ClientError: no node answers.
            ConfigurationError: the cluster is another one of the same name.
            BadExport: another process has taken the directory.
        """
        settings = self._settings
        extent = self._nodes.extent_to(end, self.position)
        if extent.end >= self.position:
            # It may be news: nodes of release 0.3.0 do not tell it.
            self.directory.claim(extent.birth, self._event_at)
        first = kept(extent, self.position, end, not settings.skip_lost)
        end = min(end, first + settings.rows_max)
        folder = f"{TRIES_FOLDER}/{uuid.uuid4().hex}"
        batch = batches.Batch(
            below(self._events, folder),
            extent.cluster,
            settings.addresses,
            settings.patience_s,
            not settings.skip_lost,
            settings.statistics,
            self._put_from(first),
            batches.ranges(first, end, settings.addresses, _cores(spark)),
        )
        try:
            written = batches.run(spark, batch)
            self.directory.check_owner()
        except Exception:
            # It may fail again and again while nodes do not answer.
            self._remove(folder)
            raise
        self._commit(folder, written)
        self.position = end
        return sum(file.rows for file in written.files)

    def _put_from(self, first: int) -> int | None:
        known = self._pieces.put_from
        return 0 if first == 0 else known

    def _commit(self, folder: str, written: batches.Written) -> None:
        """Commit a batch. If the process dies here, the batch is either committed or not."""
        step = None
        self._is_whole = False
        before = self.directory.manifest
        files = written.files
        if written.parts is not None and files:
            first = before.end if before.files else files[0].first
            step = self._pieces.prepare(first, files[-1].end, written.parts)
        for file in files:
            _move(self._place, f"{folder}/{file.name}", file.name)
        self.directory.add(files)
        if step is not None:
            self._pieces.accept(step)
        self._remove(folder)
        self._is_whole = True

    def _remove(self, folder: str) -> None:
        """Remove a folder of files that do not count; what stays is removed at the next start."""
        with suppress(OSError):
            self._place.files.delete_dir(self._place.at(folder))

    def touch(self) -> None:
        """Renew the claim to a directory without locks; call it regularly."""
        self.directory.touch()

    def compact(self) -> None:
        """Merge small files if it is worth it, at most as many events as a large file has.

        Raises:
            BadExport: a file is corrupt. The stream can go on.
            OSError: for example, there is no room for the merged file. The stream can go on.
        """
        if group := compaction.due(self.directory.manifest.files):
            compaction.merge(self.directory, group)

    def is_fresh(self) -> bool:
        """Whether the tables cover all committed events."""
        end = self.directory.manifest.end
        return not self._settings.statistics or self._written == end

    def refresh(self) -> None:
        """Write the tables anew, if there are new events."""
        if not self.is_fresh():
            end = self.directory.manifest.end
            tables.write(self._tables, finished(self._pieces.together()), end)
            self._written = end

    def refresh_if_whole(self) -> None:
        """Refresh after a signal, unless it interrupted a commit; then the next start does it."""
        if self._is_whole:
            self.refresh()

    # --- where a stream begins ---

    def _begun(self) -> Directory:
        extent = self._whole()
        self.position = self._first(extent)
        before = self._jobs_before(extent, self.position)
        return begun(self._place, extent.cluster, before, self.position, extent.birth)

    def _next_of(self, manifest: Manifest) -> int:
        """Return the offset of the first event that an existing directory lacks."""
        if not manifest.files and manifest.begin is None:
            # Before the first batch of a release that did not write it down.
            return self._first(self._whole())
        position = manifest.end if manifest.files else manifest.begin or 0
        self._check_end(position)
        return position

    def _whole(self) -> Extent:
        return self._nodes.whole() if self._settings.start == EARLIEST else self._nodes.extent()

    def _first(self, extent: Extent) -> int:
        start = self._settings.start
        if start == EARLIEST:
            if extent.first:
                warn_of_silent(extent)
            return extent.first
        first = extent.end if start == LATEST else int(start)
        if first > extent.end:
            raise ConfigurationError(
                f"--start = {first} is not allowed: cluster {extent.cluster!r} has events to "
                f"{extent.end}"
            )
        return kept(extent, first, extent.end, not self._settings.skip_lost)

    def _jobs_before(self, extent: Extent, first: int) -> Mapping[str, int]:
        """Return the number of jobs by state before an offset, counted from the beginning.

        If events before the offset are lost, it is counted back from the end, which with
        --skip-lost passes over lost events, too: the counts are then those before the first event
        that is kept.
        """
        settings = self._settings
        if first == extent.end:
            return extent.jobs
        try:
            forward = self._changes(extent.first, first, fail_on_data_loss=True)
        except EventsLost:
            back = self._changes(first, extent.end, fail_on_data_loss=not settings.skip_lost)
            # Behind another hole the counts are only relative, but never negative.
            return {state: max(0, extent.jobs[state] - back[state]) for state in STATES}
        return {state: extent.jobs_before[state] + forward[state] for state in STATES}

    def _event_at(self, offset: int) -> pa.RecordBatch | None:
        """Return one event of the cluster as one row; None if no node has it any more."""
        settings = self._settings
        options = of_nodes(settings.addresses, settings.patience_s, True)
        part = Range(offset, offset + 1, settings.addresses)
        try:
            return next(iter(read(part, options, chosen(COLUMNS))))
        except EventsLost as error:
            # A node that does not answer may have it. Nodes without a birth id prove nothing by it.
            if self._nodes.birth and not error.certain:
                raise
            return None

    def _changes(self, first: int, end: int, *, fail_on_data_loss: bool) -> Counter[str]:
        """Return by how much the events [first, end) change the number of jobs in each state."""
        addresses = self._settings.addresses
        options = of_nodes(addresses, self._settings.patience_s, fail_on_data_loss)
        schema = chosen(["offset", "tube", "state_before", "state"])
        found: Counter[str] = Counter()
        for rows in read(Range(first, end, addresses), options, schema):
            rows = rows.filter(pc.invert(pc.starts_with(rows.column("tube"), UNCOUNTED)))
            for name, sign in (("state", 1), ("state_before", -1)):
                for one in rows.column(name).value_counts().to_pylist():
                    found[one["values"]] += sign * one["counts"]
        return found

    def _check_end(self, end: int) -> None:
        """Refuse a cluster that has fewer events than the directory.

        Raises:
            ConfigurationError: a majority of its nodes reports that.
            ClientError: the nodes that answer have fewer events, but are too few to tell.
        """
        extent = self._extent_to(end)
        if extent.end < end:
            raise ClientError(
                f"{shown(self._settings.directory)} has events to {end}, and the nodes that answer "
                f"only to {extent.end}"
            )

    def _extent_to(self, end: int) -> Extent:
        try:
            return self._nodes.extent_to(end)
        except BegunAnew as error:
            raise ConfigurationError(f"{shown(self._settings.directory)}: {error}") from None


def _all_reduced(spark: SparkSession, directory: str, put_from: int | None) -> Parts:
    """Return the partial statistics of a whole export; only holes of --skip-lost are passed over.

    Raises:
        BadExport: a file is damaged. The tables would lack its events for ever.
    """
    found = from_export(spark, opened(directory, allow_holes=True).verified_ahead())
    return merged(found.reduce(partial(reduced, put_from=put_from)))


def _check_no_export(place: Place) -> None:
    """Refuse an export: its readers would refuse the folders of a stream as foreign files.

    Raises:
        ConfigurationError: the directory is one.
    """
    from pyarrow.fs import FileType

    if place.files.get_file_info(place.at(MANIFEST)).type != FileType.NotFound:
        raise ConfigurationError(
            f"{place.name} has a {MANIFEST}, so it is an export of events; a stream keeps its "
            f"events in the folder {EVENTS_FOLDER} of its directory: give another directory"
        )


def _check_new_layout(place: Place) -> None:
    """Refuse a directory of release 0.3.0, whose batches no manifest lists.

    Raises:
        ConfigurationError: the directory has that layout.
    """
    from pyarrow.fs import FileType

    found = place.files.get_file_info([place.at(one) for one in OLD])
    if any(info.type == FileType.Directory for info in found):
        raise ConfigurationError(
            f"{place.name} was written by `stream` of release 0.3.0, which had another layout: "
            "give a new directory, and `--start OFFSET` where that one ends, or remove it"
        )


def _check_files(directory: Directory) -> None:
    """Refuse a directory that lacks files which its manifest lists.

    Raises:
        BadExport: a listed file is missing or wrong.
    """
    place = directory.place
    problems = compared(directory.manifest, listed(place), place.name).problems
    if problems:
        raise BadExport(problems[0].words)


def _move(place: Place, before: str, after: str) -> None:
    """Give a file its final name; a file of that name is from an uncommitted batch."""
    if place.is_local:
        steps.make_folder(place, after.rpartition("/")[0])
        steps.rename(place, before, after)
    else:
        place.files.move(place.at(before), place.at(after))


def _cores(spark: SparkSession) -> int:
    """Return the number of concurrent tasks, or a guess."""
    with suppress(Exception):
        return int(spark.sparkContext.defaultParallelism)
    # A Spark Connect server does not expose the number.
    return CORES_UNKNOWN
