"""Measure the latency of the disk alone: synced writes at regular times, during a measurement.

A queue that syncs before it acknowledges cannot be faster than the disk, so its latency is reported
together with this one.
"""

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

from bench.processes import BenchError

PERIOD_S: Final = 0.002
# If the median write is this late, writes wait for each other and measure nothing else.
QUEUE_S: Final = 0.1
WRITE_BYTES: Final = 4096
# The file is overwritten in place, like a log's segment: its blocks are allocated before.
FILE_BYTES: Final = 1024 * 1024
assert FILE_BYTES % WRITE_BYTES == 0


class Lateness(NamedTuple):
    """Latencies of the writes, each counted from its scheduled time."""

    writes: int
    p50_ms: float
    p99_9_ms: float
    max_ms: float


class DiskProbe:
    """A context that writes regularly, from `begin` on.

    It is a thread of this process, because the start of another interpreter would disturb the
    measurement.
    """

    def __init__(self, folder: Path) -> None:
        """Create the file."""
        path = folder / "probe"
        path.write_bytes(bytes(FILE_BYTES))
        try:
            self._file = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:  # this file system has no direct I/O; then the log does not use it, either
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        os.fsync(self._file)
        self._took_s: list[float] = []
        self._error: OSError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="disk probe")

    def begin(self) -> None:
        """Start the writes."""
        self._thread.start()

    def __enter__(self) -> Self:
        """Enter the context; nothing is written before `begin`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the writes."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._file)

    def lateness(self) -> Lateness:
        """Return the latencies; only after the end, and if it began.

        Raises:
            BenchError: a write failed, or the disk cannot sync at this rate.
        """
        if self._error is not None:
            raise BenchError(f"the disk's own lateness: {self._error}")
        assert self._ended.is_set() and self._took_s, "nothing was measured"
        took = sorted(self._took_s)
        if took[len(took) // 2] > QUEUE_S:
            raise BenchError(f"4 KiB every {PERIOD_S * 1e3:.0f} ms are more than the disk can sync")
        return Lateness(
            len(took),
            1e3 * took[len(took) // 2],
            1e3 * took[int(len(took) * 0.999)],
            1e3 * took[-1],
        )

    def _write(self) -> None:
        block = mmap.mmap(-1, WRITE_BYTES)  # page-aligned, as O_DIRECT requires
        block.write(b"x" * WRITE_BYTES)
        offset = 0
        due_s = time.monotonic()
        while not self._ended.wait(max(0.0, due_s - time.monotonic())):
            try:
                os.pwritev(self._file, (block,), offset, os.RWF_DSYNC)
            except OSError as error:
                self._error = error
                return
            self._took_s.append(time.monotonic() - due_s)
            due_s += PERIOD_S
            offset = (offset + WRITE_BYTES) % FILE_BYTES
