"""Files of events: written as a whole, never changed, and verified when they are read.

Belongs here: Parquet and checksums. `steps` publishes a file; `directory` determines the files that
count. Arrow is imported late, because a node never needs it itself.
"""

import contextlib
import io
import json
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from crc32c import crc32c

from beanpole.exporting import steps
from beanpole.exporting.kinds import check_columns
from beanpole.exports import (
    CHANGES_KEY,
    CLUSTER_KEY,
    FILE_ROWS_MAX,
    STATES,
    BadExport,
    File,
    file_name,
)
from beanpole.places import Place

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Rows of a row group: the part of a file that a reader holds in memory.
GROUP_ROWS: Final = 131_072
# Rows of a batch that is read: the size of the batches that the nodes send.
BATCH_ROWS: Final = 16_384
DAY_US: Final = 86_400_000_000
# The prefix of the name of an unfinished file, before its first offset.
HIDDEN: Final = ".events-"

# By tube, the change of the number of jobs in each state.
Changes = Mapping[str, Mapping[str, int]]


class Writer:
    """Writes events in order as files below a place, one for each date and contiguous range.

    A file gets its name when it is complete, by `finish` or because it is full. Its bytes depend on
    its events only, so that a repeated task writes the same file.
    """

    def __init__(
        self,
        place: Place,
        cluster: str,
        rows_max: int = FILE_ROWS_MAX,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write nothing yet.

        Args:
            place: where the files are to be.
            cluster: the cluster of the events.
            rows_max: the most events in one file.
            check: called before a file gets its name; it drops the file by an error.
        """
        self._place = place
        self._cluster = cluster
        self._rows_max = rows_max
        self._check = check
        self._file: _Unfinished | None = None
        # The files that have their names since the last call that returned: after an error, those
        # that no caller knows.
        self.named: list[File] = []

    def write(self, batch: "pa.RecordBatch") -> list[File]:
        """Add events; return the files that this has finished.

        After an error the unfinished file is dropped: it lacks events, and must get no name.
        """
        with self._dropped_on_error():
            self._write(batch)
        return self._taken()

    def _write(self, batch: "pa.RecordBatch") -> None:
        for day, rows in _days(batch):
            position = 0
            while position < rows.num_rows:
                part = rows.slice(position)
                first = part.column("offset")[0].as_py()
                if self._file is not None and not self._file.takes(day, first, part.schema):
                    self._finish()
                if self._file is None:
                    self._file = _Unfinished(self._place, self._cluster, day, first, part.schema)
                part = part.slice(0, self._rows_max - self._file.rows)
                self._file.write(part)
                position += part.num_rows
                if self._file.rows >= self._rows_max:
                    self._finish()

    def finish(self) -> list[File]:
        """Finish the file that is being written, if there is one, and return it.

        After an error it is dropped, as by `write`.
        """
        with self._dropped_on_error():
            self._finish()
        return self._taken()

    def _finish(self) -> None:
        if self._file is not None:
            self.named.append(self._file.finish(self._check))
        self._file = None

    def _taken(self) -> list[File]:
        done, self.named = self.named, []
        return done

    @contextlib.contextmanager
    def _dropped_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Discard the unfinished file."""
        file, self._file = self._file, None
        if file is not None:
            file.drop()


def write_range(
    place: Place,
    cluster: str,
    batches: Iterable["pa.RecordBatch"],
    rows_max: int = FILE_ROWS_MAX,
    check: Callable[[], None] = lambda: None,
) -> list[File]:
    """Write events in order as files below a place; return the files for a manifest.

    The arguments are those of `Writer`.
    """
    writer = Writer(place, cluster, rows_max, check)
    done = []
    try:
        for batch in batches:
            done += writer.write(batch)
        return done + writer.finish()
    except BaseException:
        writer.drop()
        raise


class _Unfinished:
    """A file that does not have its final name yet."""

    def __init__(
        self, place: Place, cluster: str, day: int, first: int, schema: "pa.Schema"
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._day, self._first, self._end = day, first, first
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []  # less than a row group
        self._changes: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STATES, 0))
        folder = f"date={date_of(day)}"
        # Objects are published as a whole and cannot be renamed, so they get their name at once.
        self._hidden = f"{folder}/{HIDDEN}{first:020d}-{uuid.uuid4().hex}" if place.is_local else ""
        if place.is_local:
            steps.make_folder(place, folder)
        self._buffer = io.BytesIO()
        self._sink = _open(place, self._hidden) if place.is_local else self._buffer
        self._counted = _Counted(self._sink)
        self._writer: Any = None  # begins the file, so it is made with the first rows

    @property
    def rows(self) -> int:
        return self._end - self._first

    def takes(self, day: int, first: int, schema: "pa.Schema") -> bool:
        """Whether these events continue this file."""
        return (day, first) == (self._day, self._end) and schema.equals(self._schema)

    def write(self, rows: "pa.RecordBatch") -> None:
        self._batches.append(rows)
        self._end += rows.num_rows
        while sum(batch.num_rows for batch in self._batches) >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        """Write a row group of a fixed number of rows, however the rows were batched."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._writer = pq.ParquetWriter(self._counted, self._schema, compression="zstd")
        table = pa.Table.from_batches(self._batches).combine_chunks()
        group = table.slice(0, GROUP_ROWS)
        self._batches = table.slice(GROUP_ROWS).to_batches()
        with steps.naming(self._place.at(self._hidden)):
            self._writer.write_table(group, row_group_size=GROUP_ROWS)
        add_changes(self._changes, group)

    def finish(self, check: Callable[[], None]) -> File:
        if self._batches:
            self._write_group()
        changes = {
            tube: {state: change for state, change in by_state.items() if change}
            for tube, by_state in sorted(self._changes.items())
        }
        found = {
            CHANGES_KEY: json.dumps({tube: change for tube, change in changes.items() if change}),
            CLUSTER_KEY: self._cluster,
        }
        self._writer.add_key_value_metadata(found)
        with steps.naming(self._place.at(self._hidden)):
            self._writer.close()
        file = File(
            file_name(date_of(self._day), self._first, self._end),
            self._first,
            self._end,
            self._counted.bytes,
            self._counted.checksum,
        )
        check()
        if self._place.is_local:
            with steps.naming(self._place.at(self._hidden)), self._sink:
                self._sink.flush()
                os.fsync(self._sink.fileno())
            steps.rename(self._place, self._hidden, file.name)
        else:
            steps.put(self._place, file.name, self._buffer.getbuffer())
        return file

    def drop(self) -> None:
        # Both write what is left, and a full disk refuses that, too.
        for part in filter(None, (self._writer, self._sink)):
            with contextlib.suppress(Exception):
                part.close()
        if self._place.is_local:
            steps.remove(self._place, self._hidden)


class _Counted(io.RawIOBase):
    """A write-only file that counts the bytes and computes their checksum."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.bytes = 0
        self.checksum = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.bytes

    def write(self, data: Any) -> int:
        self._sink.write(data)
        self.checksum = crc32c(data, self.checksum)
        self.bytes += len(data)
        return len(data)


def add_changes(changes: dict[str, dict[str, int]], rows: "pa.Table") -> None:
    """Add the changes of the counts of jobs by events, for each tube and state."""
    for column, sign in (("state", 1), ("state_before", -1)):
        counts = (
            rows.select(["tube", column]).group_by(["tube", column]).aggregate([([], "count_all")])
        )
        for one in counts.to_pylist():
            if one[column] in STATES:
                # Every tube has a name, so the empty one stands for events without a tube.
                changes[one["tube"] or ""][one[column]] += sign * one["count_all"]


def _open(place: Place, name: str) -> Any:
    return open(place.at(name), "wb")


# --- reading --------------------------------------------------------------------------------------


class How(NamedTuple):
    """The form in which events are returned."""

    # Only these columns and `offset`, as far as a file has them; None for all.
    columns: Sequence[str] | None = None
    # The text columns that are returned as dictionaries.
    texts: Sequence[str] = ()
    batch_rows: int = BATCH_ROWS


def read_file(
    place: Place,
    file: File,
    cluster: str,
    first: int | None = None,
    end: int | None = None,
    how: How = How(),  # noqa: B008 (it does not change)
) -> Iterator["pa.RecordBatch"]:
    """Yield the events of one file in order, after the whole file has been verified.

    Args:
        place: the directory.
        file: one of its files.
        cluster: the cluster of the directory.
        first: skip events before this offset.
        end: skip events from this offset on.
        how: the columns, and the number of rows in a batch.

    Raises:
        FileNotFoundError: the file does not exist; a compaction may have replaced it.
        BadExport: the file is corrupt.
    """
    import pyarrow as pa

    parquet = checked(place, file, cluster, how.texts)
    names = parquet.schema_arrow.names
    wanted = None
    if how.columns is not None:
        wanted = [name for name in names if name == "offset" or name in how.columns]
    first = file.first if first is None else max(first, file.first)
    end = file.end if end is None else min(end, file.end)
    groups = []
    begun = position = file.first
    for number in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(number).num_rows
        if position < end and first < position + rows:
            groups.append(number)
            begun = position if len(groups) == 1 else begun
        position += rows
    if not groups:
        return
    position = begun
    try:
        # Without threads, because each task has one core.
        batches = parquet.iter_batches(how.batch_rows, groups, wanted, use_threads=False)
        for batch in batches:
            after = position + batch.num_rows
            _check_offsets(place, file, batch, position)
            low, high = max(position, first), min(after, end)
            if low < high:
                yield batch.slice(low - position, high - low)
            position = after
    except (pa.ArrowException, OSError) as error:
        raise unreadable(place, file, error) from None


def checked(place: Place, file: File, cluster: str, texts: Sequence[str] = ()) -> "pq.ParquetFile":
    """Read a file, and verify its size, its checksum, its number of events and its cluster.

    Raises the errors of `read_file`. The offsets are not verified. The columns of `texts` are
    returned as dictionaries.
    """
    return _checked(place, file, cluster, _content(place, file), texts)


def _content(place: Place, file: File) -> "pa.Buffer":
    try:
        with place.files.open_input_stream(place.at(file.name)) as stream:
            return stream.read_buffer()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise unreadable(place, file, error) from None


def _checked(
    place: Place, file: File, cluster: str, content: "pa.Buffer", texts: Sequence[str] = ()
) -> "pq.ParquetFile":
    import pyarrow as pa
    import pyarrow.parquet as pq

    name = f"{place.name}/{file.name}"
    if file.bytes is not None and content.size != file.bytes:
        raise BadExport(f"{name} has {content.size} bytes and was written with {file.bytes}")
    if file.checksum is not None and crc32c(content) != file.checksum:
        raise BadExport(f"{name} is damaged: its checksum is not that of the manifest")
    try:
        parquet = pq.ParquetFile(pa.BufferReader(content))
        columns = parquet.schema_arrow.names
        if known := [name for name in texts if name in columns]:
            parquet = pq.ParquetFile(pa.BufferReader(content), read_dictionary=known)
    except (pa.ArrowException, OSError) as error:
        raise BadExport(f"{name} is no Parquet file: {_line(error)}") from None
    if parquet.metadata.num_rows != file.rows or "offset" not in columns:
        rows = parquet.metadata.num_rows
        raise BadExport(f"{name} has {rows} events; its name says {file.rows}")
    check_columns(place, file, parquet.metadata)
    owner = (parquet.metadata.metadata or {}).get(CLUSTER_KEY, cluster.encode()).decode()
    if owner != cluster:
        raise BadExport(f"{name} has events of cluster {owner!r}, not of {cluster!r}")
    return parquet


def described(place: Place, file: File, cluster: str) -> File:
    """Return a file known by its name only, completed with size and checksum; see `checked`."""
    content = _content(place, file)
    _checked(place, file, cluster, content)
    return file._replace(bytes=content.size, checksum=crc32c(content))


def changes_of(place: Place, file: File) -> Changes | None:
    """Return the changes of job counts in a file's metadata; None if release 0.3.0 wrote the file.

    Only the end of the file is read and verified.

    Raises:
        FileNotFoundError: the file does not exist.
        BadExport: the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(place.at(file.name), filesystem=place.files).metadata or {}
        text = metadata.get(CHANGES_KEY)
        found: Changes | None = None if text is None else json.loads(text)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise unreadable(place, file, error) from None
    return found


def _check_offsets(place: Place, file: File, batch: "pa.RecordBatch", position: int) -> None:
    import numpy as np

    offsets = batch.column(batch.schema.get_field_index("offset"))
    expected = np.arange(position, position + batch.num_rows, dtype=np.int64)
    if offsets.null_count or not np.array_equal(offsets.to_numpy(), expected):
        raise BadExport(
            f"{place.name}/{file.name} does not have the events {file.first} to {file.end - 1} "
            "in order"
        )


def unreadable(place: Place, file: File, error: Exception) -> BadExport:
    """Return the error for a file that the disk or its contents do not let a program read."""
    return BadExport(f"{place.name}/{file.name} cannot be read: {_line(error)}")


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


# --- days -----------------------------------------------------------------------------------------


def date_of(day: int) -> str:
    """Return the date of a number of days since 1970, YYYY-MM-DD."""
    import numpy as np

    return str(np.datetime64(day, "D"))


def _days(batch: "pa.RecordBatch") -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """Split a batch at changes of the date and at gaps: yield (days since 1970, rows)."""
    import numpy as np
    import pyarrow as pa

    days = batch.column("wall_time").cast(pa.int64()).to_numpy() // DAY_US
    gaps = np.diff(batch.column("offset").to_numpy()) != 1
    changes = np.flatnonzero((np.diff(days) != 0) | gaps) + 1
    for start, stop in pairwise([0, *changes.tolist(), batch.num_rows]):
        if start < stop:
            yield int(days[start]), batch.slice(start, stop - start)
