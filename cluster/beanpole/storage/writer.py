"""The half of the log that works on the disk: writes batches, syncs, rolls over, fills ahead.

It runs in the disk's thread or, for `Wal.sync`, in the loop; the log's lock keeps the two apart.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, NamedTuple

from beanpole.storage.ballast import is_full
from beanpole.storage.files import Files, SyncedWrite, Work
from beanpole.storage.format import FILE_HEADER_BYTES
from beanpole.storage.segment import Note, Segment, forget_base

# Zeros are written ahead of the records, so that a sync in the steady state writes no metadata.
# 1 MiB and its sync took 0.6 ms where 4 MiB took 12 ms: a step must not delay the batch behind it.
FILL_STEP_BYTES: Final = 1024 * 1024
# Kept ready ahead of the records: the largest burst that finds its space prepared.
FILL_AHEAD_BYTES: Final = 4 * FILL_STEP_BYTES

# Times of syncs are counted by magnitude: less than 1, 2, 4 us and so on up to 4.2 s; the last
# class has all others.
SYNC_CLASSES: Final = 24

_ZEROS: Final = bytes(FILL_STEP_BYTES)


class Part(NamedTuple):
    """The piece of a batch that goes into one segment."""

    segment: Segment
    start: int
    chunks: list[bytes]


class WriteBatch:
    """Bytes that are written and synced as one."""

    __slots__ = ("end", "parts", "start", "written")

    def __init__(self, start: int, end: int, parts: list[Part]) -> None:
        self.start = start
        self.end = end
        self.parts = parts
        self.written = False


class Writer:
    """Writes batches in order. After the first failed write or sync it refuses everything."""

    def __init__(
        self,
        files: Files,
        segment: Segment,
        end: int,
        segment_bytes: int,
        note: Note = forget_base,
        on_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self.syncs = 0
        self.sync_us_total = 0
        self.sync_counts = [0] * SYNC_CLASSES
        self.last_sync_us = 0
        self.bytes_written = 0
        self._files = files
        self._note = note
        self._segment = segment
        self._segment_bytes = segment_bytes
        # The offset after the last record in the current segment.
        self._offset = segment.offset(end)
        # No further try to fill below this offset, after the disk was full.
        self._fill_pause = 0
        self._failure: OSError | None = None
        self._on_full = on_full

    def write(self, batch: WriteBatch) -> None:
        """Write and sync a batch.

        Raises:
            OSError: now, or at an earlier batch. It is not known what the disk has.
        """
        if self._failure is not None:
            raise self._failure
        try:
            for part in batch.parts:
                try:
                    self._write_part(part)
                except OSError as error:
                    # No room is no failed sync: nothing of it is trusted, all is written again.
                    if not is_full(error) or not self._on_full():
                        raise
                    self._write_part(part)
        except OSError as error:
            self._failure = error
            raise
        batch.written = True

    def as_synced_write(self, batch: WriteBatch, run: Work) -> SyncedWrite | None:
        """Return a batch as the one write that it is; None if it is more than that.

        It stays where zeros were written before, so it may be in progress together with `fill`. If
        `Wal.sync` does the same batch afterwards, the same bytes come to the same place twice.
        """
        if len(batch.parts) != 1 or self._failure is not None:
            return None
        part = batch.parts[0]
        segment = part.segment
        offset = segment.offset(part.start)
        end = offset + batch.end - batch.start
        if segment is not self._segment or end > segment.filled:
            return None

        def note(took_us: int) -> None:
            if not batch.written:
                batch.written = True
                self._offset = max(self._offset, end)
                self.bytes_written += end - offset
                self._count_sync(took_us)

        handle = segment.opened(self._files)
        return SyncedWrite(handle, offset, part.chunks, segment.filled, run, note)

    def refuse(self, error: OSError) -> None:
        """Write nothing any more: a write failed that this did not do."""
        if self._failure is None:
            self._failure = error

    def wants_fill(self) -> bool:
        """Return whether a step of zeros is due. Only asked while nothing is being written."""
        filled = self._segment.filled
        return (
            filled < self._segment_bytes
            and filled - self._offset <= FILL_AHEAD_BYTES - FILL_STEP_BYTES
            and self._offset >= self._fill_pause
        )

    def fill(self) -> None:
        """Write one step of zeros after what is filled, and sync it.

        A disk that is full is no failure here: the records that come may still find room.

        Raises:
            OSError: the sync failed, or something failed before.
        """
        if self._failure is not None:
            raise self._failure
        segment = self._segment
        start = max(segment.filled, self._offset, FILE_HEADER_BYTES)
        end = min(start - start % FILL_STEP_BYTES + FILL_STEP_BYTES, self._segment_bytes)
        if end <= start:
            return
        try:
            handle = segment.opened(self._files)
            handle.write(start, _ZEROS[: end - start])
        except OSError:
            self._fill_pause = self._offset + FILL_STEP_BYTES // 4
            return
        segment.filled = end
        begin_ns = perf_counter_ns()
        try:
            handle.sync()
        except OSError as error:
            self._failure = error
            raise
        self._count_sync((perf_counter_ns() - begin_ns) // 1000)

    def fill_ahead(self) -> None:
        """Fill as far as wanted."""
        while self.wants_fill():
            self.fill()

    def _write_part(self, part: Part) -> None:
        """Write and sync what goes into one segment; only then may the next one begin."""
        segment = part.segment
        if segment is not self._segment:
            segment.create(self._files)
            # Before it holds a record: a segment with records is never missed unnoticed.
            self._note(segment.base)
            self._segment, self._fill_pause = segment, 0
        data = b"".join(part.chunks)
        offset = segment.offset(part.start)
        handle = segment.opened(self._files)
        begin_ns = perf_counter_ns()
        handle.write_synced(offset, data)
        self._count_sync((perf_counter_ns() - begin_ns) // 1000)
        self._offset = offset + len(data)
        segment.filled = max(segment.filled, self._offset)
        self.bytes_written += len(data)

    def _count_sync(self, took_us: int) -> None:
        self.syncs += 1
        self.last_sync_us = took_us
        self.sync_us_total += took_us
        self.sync_counts[min(took_us.bit_length(), SYNC_CLASSES - 1)] += 1
