"""The disk side of the log: write batches, sync, roll over, preallocate.

Runs in the disk's thread or, for `Wal.sync`, in the loop; the log's lock serializes the two.
"""

from collections.abc import Callable
from time import perf_counter_ns
from typing import Final, NamedTuple

from beanpole.storage.ballast import is_full
from beanpole.storage.files import Files, SyncedWrite, Work
from beanpole.storage.format import FILE_HEADER_BYTES
from beanpole.storage.segment import Note, Segment

# Zeros are written ahead of the records, so that a sync in the steady state writes no metadata. A
# step must not delay the batch behind it: 1 MiB and its sync took 0.6 ms, 4 MiB took 12 ms.
FILL_STEP_BYTES: Final = 1024 * 1024
# The zeros kept ahead of the records: the largest burst that finds preallocated space.
FILL_AHEAD_BYTES: Final = 4 * FILL_STEP_BYTES

# The classes of the histogram of sync times: below 1, 2, 4 us and so on up to 4.2 s; the last class
# counts all others.
SYNC_CLASSES: Final = 24

_ZEROS: Final = bytes(FILL_STEP_BYTES)


class Part(NamedTuple):
    """The part of a batch that is written to one segment."""

    segment: Segment
    start: int
    chunks: list[bytes]


class WriteBatch:
    """Bytes that are written and synced as a unit."""

    __slots__ = ("end", "parts", "start", "written")

    def __init__(self, start: int, end: int, parts: list[Part]) -> None:
        self.start = start
        self.end = end
        self.parts = parts
        self.written = False


class Writer:
    """Writes batches in order. After the first failed write or sync it refuses all others."""

    def __init__(
        self,
        files: Files,
        segment: Segment,
        end: int,
        segment_bytes: int,
        note: Note,
        on_full: Callable[[], bool],
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
        # After the disk was full, filling is not retried below this offset.
        self._fill_pause = 0
        self._failure: OSError | None = None
        self._on_full = on_full

    def write(self, batch: WriteBatch) -> None:
        """Write and sync a batch.

        Raises:
            OSError: this write or an earlier one failed. The content of the disk is unknown.
        """
        if self._failure is not None:
            raise self._failure
        try:
            for part in batch.parts:
                try:
                    self._write_part(part)
                except OSError as error:
                    # A full disk is not a failed sync: the first attempt is discarded, and the
                    # whole part is written again.
                    if not is_full(error) or not self._on_full():
                        raise
                    self._write_part(part)
        except OSError as error:
            self._failure = error
            raise
        batch.written = True

    def as_synced_write(self, batch: WriteBatch, run: Work) -> SyncedWrite | None:
        """Return a batch as a single synced write; None if it needs more than that.

        The write is within the preallocated zeros, so it may run concurrently with `fill`. If
        `Wal.sync` writes the same batch again, the same bytes are written to the same place twice.
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

    def may_repeat(self, error: OSError) -> bool:
        """Return whether `write` may repeat a write that failed and that this object did not do.

        That is so if it found no room. As in `write`, the whole part is written again.
        """
        return self._failure is None and is_full(error)

    def refuse(self, error: OSError) -> None:
        """Refuse all further writes, after a failed write that this object did not do."""
        if self._failure is None:
            self._failure = error

    def wants_fill(self) -> bool:
        """Return whether a step of zeros is due. Only called while no write is in progress."""
        filled = self._segment.filled
        return (
            filled < self._segment_bytes
            and filled - self._offset <= FILL_AHEAD_BYTES - FILL_STEP_BYTES
            and self._offset >= self._fill_pause
        )

    def fill(self) -> None:
        """Write one step of zeros after the filled range, and sync it.

        A full disk is not a failure here: later records may still find room.

        Raises:
            OSError: the sync failed, or an earlier write or sync did.
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
        """Fill until enough zeros are ahead of the records."""
        while self.wants_fill():
            self.fill()

    def _write_part(self, part: Part) -> None:
        """Write and sync the part for one segment, before the next segment may begin."""
        segment = part.segment
        if segment is not self._segment:
            segment.create(self._files)
            # Before it holds a record, so that the loss of a segment with records is noticed.
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
