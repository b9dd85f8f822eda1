"""The write-ahead log: its buffer, its durable end, and the scheduling of writes to the disk.

Belongs here: the log as its owner sees it, driven from one loop. The writes are in `writer.py`,
the recovery from files is in `recovery.py`, and a single segment in `segment.py`.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from crc32c import crc32c

from beanpole.errors import LogFailed
from beanpole.storage.files import LANE_BULK, Files
from beanpole.storage.format import (
    FILE_HEADER_BYTES,
    HEAD,
    PAYLOAD_BYTES_MAX,
    POSITION_MASK,
    PREFIX,
    RECORD_HEADER_BYTES,
    Identity,
    record_size,
)
from beanpole.storage.recovery import recover
from beanpole.storage.segment import NO_LOG, Note, Replay, Segment, damaged, forget_base
from beanpole.storage.writer import Part, WriteBatch, Writer

# Large enough for roll-over to be rare, small enough for a dropped segment to free space soon.
SEGMENT_BYTES: Final = 64 * 1024 * 1024

_pack_prefix = PREFIX.pack
_pack_head = HEAD.pack


def _nothing() -> None:
    """Do nothing; the default of `on_durable`."""


def _no_room() -> bool:
    """Return False; the default of `on_full`."""
    return False


def _raise(error: OSError) -> None:
    """Raise the error; the default of `on_failure`, because a failed disk is never ignored."""
    raise error


class Wal:
    """An append-only log of records in segments, with group commit.

    All methods are called from one loop; the disk's thread only uses `WriteBatch` and `Writer`,
    under a lock. After a failed write or sync no more is written: the process must end, because the
    content of a disk after a failed sync is unknown.

    Attributes:
        end: the position after the last appended record.
        durable: all bytes before this position are on the disk.
        on_durable: called in the loop after `durable` grew, never from inside `append` or `sync`.
        on_failure: called once, in the loop, with the first failed write or sync.
        on_full: called in any thread when there is no room for a write; if it returns that it has
            made room, the write is retried once.
        writes_at_once: whether the end of a write begins the next one, whatever is in the buffer;
            otherwise only `flush` and `sync` cause writes.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        identity: Identity,
        segment_bytes: int,
        segments: list[Segment],
        end: int,
        note: Note,
    ) -> None:
        """Take over the segments that `open` has recovered; use `open`."""
        self.end = self.durable = end
        self.on_durable: Callable[[], None] = _nothing
        self.on_failure: Callable[[OSError], None] = _raise
        self._files = files
        self._directory = directory
        self._identity = identity
        self._capacity = segment_bytes - FILE_HEADER_BYTES
        self._segments = segments
        self._segment = segments[-1]
        self._limit = self._segment.base + self._capacity
        self._seed = self._segment.seed
        # The buffer: complete parts for earlier segments, and the chunks for this segment.
        self._parts: list[Part] = []
        self._chunks: list[bytes] = []
        self._chunks_start = end
        self._buffer_start = end
        # All bytes before this position are durable before a record appended now is written.
        self._front = end
        self._running: WriteBatch | None = None
        self.writes_at_once = True
        self._flush_asked = False  # during the write in progress
        self._filling = False
        self._announced = end
        self._failed = False
        self._closed = False
        self._doomed: list[Segment] = []
        # Makes room on a full disk before a write fails; also called in the disk's thread.
        self.on_full: Callable[[], bool] = _no_room
        # Held during work on the disk: by the disk's thread, or by `sync` in the loop.
        self._lock = threading.Lock()
        self._writer = Writer(
            files, self._segment, end, segment_bytes, note, lambda: self.on_full()
        )

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        identity: Identity,
        segment_bytes: int = SEGMENT_BYTES,
        *,
        replay: Replay,
        newest: int = NO_LOG,
        note: Note = forget_base,
    ) -> "Wal":
        """Open or create the log, calling `replay(at, kind, index, term, payload)` per record.

        A torn tail is cut durably. At return all replayed records are durable.

        `note(base)` is called for every new segment before it holds a record, here or in the
        thread that writes the log, and must be durable at return. The caller passes the highest
        noted base as `newest` at the next start: a log without that segment is rejected.

        Raises:
            Damaged: bytes that were durable once have changed. The records that were replayed
                before must not be used.
            WrongIdentity: a file of another cluster or node.
            UnknownVersion: a file of another version.
            OSError: the disk refuses.
        """
        assert segment_bytes > FILE_HEADER_BYTES
        segments, end = recover(files, directory, identity, replay, newest)
        if segments[-1].base > newest:
            note(segments[-1].base)
        wal = cls(files, directory, identity, segment_bytes, segments, end, note)
        # Now, while no write waits, so that the first batches find preallocated space.
        wal._writer.fill_ahead()
        return wal

    @property
    def start(self) -> int:
        """Return the position of the oldest record that is kept."""
        return self._segments[0].base

    @property
    def buffered_bytes(self) -> int:
        """Return the bytes that were appended and not yet handed to the disk."""
        return self.end - self._buffer_start

    @property
    def bytes_kept(self) -> int:
        """Return the bytes of records from the start of the oldest kept segment to the end."""
        return self.end - self._segments[0].base

    @property
    def failed(self) -> bool:
        """Return whether a write or sync has failed, after which nothing is written."""
        return self._failed

    @property
    def syncs(self) -> int:
        """Return the number of syncs since the start."""
        return self._writer.syncs

    @property
    def sync_us_total(self) -> int:
        """Return the microseconds spent in syncs since the start."""
        return self._writer.sync_us_total

    @property
    def sync_counts(self) -> tuple[int, ...]:
        """Return a histogram of sync times: below 1, 2, 4, 8 us and so on, each counted once."""
        return tuple(self._writer.sync_counts)

    @property
    def last_sync_us(self) -> int:
        """Return the time of the newest sync in microseconds."""
        return self._writer.last_sync_us

    @property
    def bytes_written(self) -> int:
        """Return the bytes of records written since the start."""
        return self._writer.bytes_written

    def append(self, kind: int, index: int, term: int, payload: bytes) -> int:
        """Buffer a record and return its position.

        Args:
            kind: 1 to 255, defined by the owner.
            index: 64 bits, defined by the owner.
            term: 64 bits, defined by the owner.
            payload: at most PAYLOAD_BYTES_MAX bytes.
        """
        assert kind and len(payload) <= PAYLOAD_BYTES_MAX
        at = self.end
        end = at + RECORD_HEADER_BYTES + len(payload)
        if end > self._limit:
            self._roll(end - at)
        seed = self._seed
        head = _pack_head(len(payload), at - self._front, kind, index, term)
        head_check = crc32c(head, seed ^ (at & POSITION_MASK))
        prefix = _pack_prefix(seed, head_check, crc32c(payload, head_check))
        self._chunks += (prefix, head, payload)
        self.end = end
        return at

    def flush(self) -> None:
        """Hand the buffer to the disk; if a write is in progress, this follows when it ends."""
        if self._running is not None:
            self._flush_asked = True
        elif self.end > self._buffer_start and not self._failed:
            self._submit(self._take())

    def sync(self) -> None:
        """Make all appended records durable before returning.

        Waits for a write in progress, or does its work if the disk's thread has not begun it.
        `on_durable` is called in a later step of the loop.

        Raises:
            LogFailed: a write or sync failed, now or earlier.
        """
        assert not self._closed
        batches = [self._running] if self._running is not None else []
        if self.end > self._buffer_start:
            batches.append(self._take())
        # A write in progress may still write zeros after its batch.
        self._files.settle()
        try:
            for batch in batches:
                self._write(batch)
        except OSError as error:
            self._fail(error)
        if self._failed:
            raise LogFailed(f"the log in {self._directory} has failed; nothing is durable any more")
        self.durable = self.end
        if self._running is None and self._announced < self.durable:
            # No write is in progress whose completion would notify the owner.
            self._submit(WriteBatch(self.end, self.end, []))

    @property
    def is_writing(self) -> bool:
        """Return whether the disk is busy, so that `sync` would have to wait for it."""
        running = self._running
        return self._filling or (running is not None and running.end > self.durable)

    def read(self, at: int) -> tuple[int, int, int, bytes]:
        """Return kind, index, term and payload of the record at a position returned by `append`.

        Raises:
            Damaged: the disk does not return the bytes that were written.
        """
        assert self._segments[0].base <= at < self.end, f"there is no record at {at}"
        if at >= self._buffer_start:
            parts = [*self._parts, Part(self._segment, self._chunks_start, self._chunks)]
            return _read_buffered(parts, at)
        running = self._running
        if running is not None and running.start <= at < running.end:
            return _read_buffered(running.parts, at)
        segment = self._segments[bisect_right(self._segments, at, key=lambda item: item.base) - 1]
        return self._read_file(segment, at)

    def drop_before(self, at: int) -> None:
        """Remove the segments whose records are all before `at`, outside the loop.

        The newest segment with durable records always stays. A file that cannot be removed stays
        until the next call or start, without harm.
        """
        segments = self._segments
        count = 0
        # A segment is removed only when a record of the next one is durable: until then the disk's
        # thread may still be using it.
        at = min(at, self.durable - 1)
        while count + 1 < len(segments) and segments[count + 1].base <= at:
            count += 1
        if not count:
            return
        doomed, self._segments = segments[:count], segments[count:]
        for segment in doomed:
            segment.close()
        self._doomed += doomed
        self._files.submit(self._remove_doomed, _ignore_outcome, LANE_BULK)

    def close(self) -> None:
        """Make the buffer durable, unless the disk fails, and close the files."""
        if self._closed:
            return
        if not self._failed:
            # `on_failure` reports a failure.
            with suppress(LogFailed):
                self.sync()
        self._closed = True
        with self._lock:
            for segment in self._segments:
                segment.close()

    def _roll(self, size: int) -> None:
        """Begin a new segment; a record larger than a segment gets a segment of its own."""
        at = self.end
        if at > self._segment.base:
            if self._chunks:
                self._parts.append(Part(self._segment, self._chunks_start, self._chunks))
            self._segment = Segment(self._directory, at, self._identity)
            self._segments.append(self._segment)
            self._seed = self._segment.seed
            self._chunks = []
            # The old segment is synced before the new one is created.
            self._chunks_start = self._front = at
        self._limit = at + max(self._capacity, size)

    def _take(self) -> WriteBatch:
        """Make a batch of the buffer and begin a new buffer."""
        parts = self._parts
        if self._chunks:
            parts.append(Part(self._segment, self._chunks_start, self._chunks))
        batch = WriteBatch(self._buffer_start, self.end, parts)
        self._parts, self._chunks = [], []
        self._chunks_start = self._buffer_start = self._front = self.end
        return batch

    def _submit(self, batch: WriteBatch) -> None:
        self._running = batch
        run = partial(self._write, batch)
        work = self._writer.as_synced_write(batch, run)
        self._files.submit(run if work is None else work, self._finished)

    def _write(self, batch: WriteBatch) -> None:
        """Write and sync a batch once: in the disk's thread, or in the loop from `sync`."""
        with self._lock:
            if not batch.written:
                self._writer.write(batch)

    def _finished(self, error: OSError | None) -> None:
        batch, self._running = self._running, None
        assert batch is not None
        if error is not None and not self._closed and self._writer.may_repeat(error):
            # The native thread found no room; `write` makes room with the ballast.
            self._running = batch
            self._files.submit(partial(self._write, batch), self._finished)
            return
        if error is not None:
            self._writer.refuse(error)
            self._fail(error)
        if self._failed or self._closed:
            return
        self.durable = max(self.durable, batch.end)
        asked, self._flush_asked = self._flush_asked, False
        if asked or self.writes_at_once:
            # First, so that the disk works while the owner handles the durable records.
            self.flush()
        if not self._filling and self._writer.wants_fill():
            self._filling = True
            self._files.submit(self._fill, self._filled)
        if self._announced < self.durable:
            self._announced = self.durable
            self.on_durable()

    def _fill(self) -> None:
        with self._lock:
            if not self._closed:
                self._writer.fill()

    def _filled(self, error: OSError | None) -> None:
        self._filling = False
        if error is not None:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        if not self._failed:
            self._failed = True
            if not self._closed:
                self.on_failure(error)

    def _read_file(self, segment: Segment, at: int) -> tuple[int, int, int, bytes]:
        """Read a written record and verify its checksums."""
        handle = segment.opened(self._files)
        offset = segment.offset(at)
        data = handle.read(offset, RECORD_HEADER_BYTES)
        if len(data) == RECORD_HEADER_BYTES:
            length, _, kind, index, term = HEAD.unpack_from(data, PREFIX.size)
            if length <= PAYLOAD_BYTES_MAX:
                payload = handle.read(offset + RECORD_HEADER_BYTES, length)
                if record_size(data + payload, 0, at, segment.seed):
                    return kind, index, term, payload
        raise damaged(segment.path, offset, "the record is not what was written")

    def _remove_doomed(self) -> None:
        """Remove the oldest first, each durably, so that the log never has a gap."""
        while self._doomed:
            # It is gone already if the sync after its removal failed.
            with suppress(FileNotFoundError):
                self._files.remove(self._doomed[0].path)
            self._files.sync_directory(self._directory)
            del self._doomed[0]


def _ignore_outcome(error: OSError | None) -> None:
    """Ignore the error: a segment that could not be removed only takes space."""


def _read_buffered(parts: list[Part], at: int) -> tuple[int, int, int, bytes]:
    """Read a record from memory. Slow, because owners cache new records themselves."""
    part = parts[bisect_right(parts, at, key=lambda item: item.start) - 1]
    data = b"".join(part.chunks)
    offset = at - part.start
    assert record_size(data, offset, at, part.segment.seed), f"no record begins at {at}"
    length, _, kind, index, term = HEAD.unpack_from(data, offset + PREFIX.size)
    body = offset + RECORD_HEADER_BYTES
    return kind, index, term, data[body : body + length]
