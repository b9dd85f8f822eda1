"""The files of the audit log: written by a separate thread, bounded, read in pages.

A call never waits for them: lines that cannot be written are counted, and logged at a limited rate.
`rpc.auditing` decides which calls are logged, `entry` formats the lines.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from beanpole.storage.threads import start_daemon
from beanpoled.audit.alike import Alike
from beanpoled.audit.entry import Entry, line, number_of

NAME: Final = "audit.jsonl"
# A line has about 300 bytes, so a file holds some 50,000 calls. A busy reader of events causes one
# line a minute.
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
# The newest file has no number, the oldest has the highest: 128 MiB in all.
FILES_MAX: Final = 8
# The limit of entries that wait for a disk that hangs; further entries are lost.
WAITING_MAX: Final = 10_000
# Lines are synced after this much quiet, or this late. The log records what happened; it promises
# nothing to a caller, so no caller waits for it.
SYNC_AFTER_S: Final = 1.0
COMPLAINT_PERIOD_S: Final = 60.0
FLUSH_TIMEOUT_S: Final = 2.0
CLOSE_TIMEOUT_S: Final = 2.0
PAGE_BYTES_MAX: Final = 1024 * 1024

_Item = Entry | threading.Event | None


class Page(NamedTuple):
    """Lines without their line ends, the oldest first; and whether these are all."""

    lines: list[bytes]
    complete: bool


class AuditLog:
    """The audit log of one node.

    Attributes:
        lost: the number of entries that were not written.
        record: logs a call, unless it is like one of the last minute. Never blocks.
    """

    def __init__(self, directory: str, node: str, complain: Callable[[str], None]) -> None:
        """Begin; no file is opened before the first entry.

        Args:
            directory: of the node's data.
            node: its name.
            complain: logs why entries are lost. Called from another thread.
        """
        self.lost = 0
        self.record = Alike(self.add).add
        self._path = os.path.join(directory, NAME)
        self._node = node
        self._complain = complain
        self._complained_s = -COMPLAINT_PERIOD_S
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._starting = threading.Lock()  # entries are added in the loop, pages read in a thread
        self._thread: threading.Thread | None = None
        # Used by the thread only:
        self._file: int | None = None
        self._bytes = 0
        self._number = 0
        self._is_torn = False  # the file may end within a line

    # --- any thread -----------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Log a call. Never blocks, and never fails."""
        if self._queue.qsize() >= WAITING_MAX:
            self.lost += 1
            return
        self._queue.put(entry)
        self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            try:
                self._thread = start_daemon(self._run, "audit")
            except OSError as error:  # the next entry, or the end, tries again
                self._failed(0, error)

    def flush(self) -> bool:
        """Wait until earlier entries are in the file; return False if that takes too long."""
        if self._queue.empty() and self._thread is None:
            return True
        self._start()
        if self._thread is None:
            return False
        written = threading.Event()
        self._queue.put(written)
        return written.wait(FLUSH_TIMEOUT_S)

    def close(self) -> None:
        """Write the pending entries, and end the thread; gives up on a disk that hangs."""
        if not self._queue.empty():
            self._start()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSE_TIMEOUT_S)

    def page(self, after: int, bytes_max: int = PAGE_BYTES_MAX) -> Page:
        """Return lines with higher numbers. Blocks; returns at least one line, if there is one.

        Raises:
            OSError: a file cannot be read.
        """
        self.flush()
        found: list[bytes] = []
        room = bytes_max
        for raw in self._lines(after):
            room -= len(raw)
            if found and room < 0:
                return Page(found, complete=False)
            found.append(raw)
        return Page(found, complete=True)

    def _lines(self, after: int) -> Iterator[bytes]:
        with contextlib.ExitStack() as stack:
            # All at once: a rename in the meantime does not affect open files.
            files = []
            for place in reversed(range(FILES_MAX)):
                with contextlib.suppress(FileNotFoundError):
                    files.append(stack.enter_context(open(self._name(place), "rb")))
            last = after
            for file in files:
                if 0 < _last_number(file.fileno()) <= last:
                    continue
                for raw in file:
                    number = number_of(raw)
                    # A line without an end is still being written, or its disk was full.
                    if number > last and raw.endswith(b"}\n"):
                        last = number
                        yield raw[:-1]

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        synced_s = time.monotonic()
        is_dirty = False
        while True:
            try:
                item = self._queue.get(timeout=SYNC_AFTER_S if is_dirty else None)
            except Empty:
                is_dirty = self._sync()
                continue
            items = [item]
            with contextlib.suppress(Empty):
                while True:
                    items.append(self._queue.get_nowait())
            entries = [item for item in items if isinstance(item, Entry)]
            if entries:
                self._write(entries)
                is_dirty = True
            if is_dirty and time.monotonic() - synced_s > SYNC_AFTER_S:
                is_dirty = self._sync()
                synced_s = time.monotonic()
            for item in items:
                if isinstance(item, threading.Event):
                    item.set()
            if None in items:
                self._sync()
                self._close()
                return

    def _write(self, entries: list[Entry]) -> None:
        try:
            if self._file is not None and self._is_moved(self._file):
                self._sync()
                self._close()
            if self._file is None:
                self._open()
            assert self._file is not None, "it was opened"
            now_us = time.time_ns() // 1000
            lines = []
            for entry in entries:
                self._number = max(self._number + 1, now_us)
                lines.append(line(entry, self._number, self._node))
            data = (b"\n" if self._is_torn else b"") + b"".join(lines)
            self._is_torn = True
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(f"{written} of {len(data)} bytes were written")
            self._is_torn = False
            self._bytes += written
            if self._bytes >= FILE_BYTES_MAX:
                self._rotate()
        except OSError as error:
            self._failed(len(entries), error)

    def _open(self) -> None:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._bytes = os.fstat(self._file).st_size
        self._number = max(self._number, _last_number(self._file))
        if not self._number and os.path.exists(self._name(1)):
            with open(self._name(1), "rb") as before:
                self._number = _last_number(before.fileno())
        end = os.pread(self._file, 1, self._bytes - 1) if self._bytes else b"\n"
        self._is_torn = end != b"\n"

    def _is_moved(self, file: int) -> bool:
        """Whether another program, such as logrotate, has moved or removed the open file.

        Lines in it are found by nobody. One look per write is enough, which may have many lines.
        After a look that fails otherwise, the open file still takes the lines.
        """
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(file))
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _rotate(self) -> None:
        self._sync()
        self._close()
        for place in reversed(range(FILES_MAX - 1)):
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._name(place), self._name(place + 1))

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _name(self, place: int) -> str:
        return f"{self._path}.{place}" if place else self._path

    def _sync(self) -> bool:
        """Sync written lines. Returns False, the new dirty flag, even if the sync failed."""
        if self._file is not None:
            try:
                os.fdatasync(self._file)
            except OSError as error:
                self._failed(0, error)
        return False

    def _failed(self, lost: int, error: OSError) -> None:
        self.lost += lost
        now_s = time.monotonic()
        if now_s - self._complained_s >= COMPLAINT_PERIOD_S:
            self._complained_s = now_s
            words = f"{error.strerror or error}; {self.lost} lines are lost, and service goes on"
            self._complain(f"{self._path}: {words}")


# Longer than any line that this release writes.
_TAIL_BYTES: Final = 128 * 1024


def _last_number(descriptor: int) -> int:
    """Return the number of the last complete line of a file; 0 if it has none."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    found = [number_of(raw) for raw in tail.split(b"\n")[:-1]]
    return max(found, default=0)
