"""How late the disk alone is: synced writes at regular times, beside what is measured.

A queue that syncs before it acknowledges cannot be faster than that, so a latency is told together
with this one.
"""

import mmap
import os
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple, Self

from bench.processes import BenchError

PERIOD_S: Final = 0.002
# Writes that are in the middle so late wait for each other, and not for anything else.
QUEUE_S: Final = 0.1
WRITE_BYTES: Final = 4096
# Overwritten again and again, as a log's segment is: its blocks are allocated before.
FILE_BYTES: Final = 1024 * 1024
assert FILE_BYTES % WRITE_BYTES == 0


class Lateness(NamedTuple):
    """Of the writes, each counted from the time at which it was to begin."""

    writes: int
    p50_ms: float
    p99_9_ms: float
    max_ms: float


class DiskProbe:
    """Writes while it is entered, from `begin` on.

    A thread of this process: another interpreter that starts would be measured by everybody else.
    """

    def __init__(self, folder: Path) -> None:
        """Make the file."""
        path = folder / "probe"
        path.write_bytes(bytes(FILE_BYTES))
        try:
            self._file = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        except OSError:  # this file system has no way past the system's cache; nor has the log
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        os.fsync(self._file)
        self._took_s: list[float] = []
        self._error: OSError | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write, name="disk probe")

    def begin(self) -> None:
        """Write from now on."""
        self._thread.start()

    def __enter__(self) -> Self:
        """Nothing is written before `begin`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write no more."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._file)

    def lateness(self) -> Lateness:
        """Return what was found; only after the end, and if it began.

        Raises:
            BenchError: a write failed, or the disk cannot write as often as this wanted.
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
        block = mmap.mmap(-1, WRITE_BYTES)  # begins on a page, as O_DIRECT wants it
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
