"""The ballast: a file that only takes space, removed when the disk is full and the log needs room.

Belongs here: creating the file, releasing it, and the start on a full disk. The owner, which
measures the free space of the disk, decides when to do so.
"""

import contextlib
import errno
import os
import threading
from typing import Final

from beanpole.storage.files import LANE_BULK, TEMPORARY, Files

FILE: Final = "ballast"
# Enough for the largest entry, a new segment and a snapshot of a queue that was emptied.
BALLAST_BYTES: Final = 8 * 1024 * 1024
# The file is written in steps, each of them synced, because the log shares the disk.
STEP_BYTES: Final = 1024 * 1024
# A start on a disk with less free space than this first releases the ballast, because it must write
# small files.
START_BYTES: Final = 1024 * 1024

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# Not zeros: a file system that compresses data or omits zeros must still reserve the space.
_FILLING: Final = bytes(range(1, 256)) * (STEP_BYTES // 255 + 1)


def is_full(error: OSError | None) -> bool:
    """Return whether an error means that the disk is full, in which case no data is lost."""
    return error is not None and error.errno in _FULL


class Ballast:
    """The ballast file. Any thread may call `release` and `make_room`; the loop calls the rest."""

    def __init__(self, files: Files, directory: str, size: int) -> None:
        """Find the file of an earlier process; with a `size` of 0 none is created."""
        self.size = size
        self._files = files
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._making = False
        self._lock = threading.Lock()  # held during a removal
        self._was_released = False  # whether the file was removed since it was made
        if files.exists(self._path + TEMPORARY):
            files.remove(self._path + TEMPORARY)
        self.there = files.exists(self._path)

    def release(self) -> bool:
        """Remove the file; return whether there was one. The removal need not be durable."""
        with self._lock:
            if not self.there:
                return False
            self.there = False
            try:
                self._files.remove(self._path)
            except OSError:
                return False  # the write that needs the room will fail
            self._was_released = True
            return True

    def make_room(self) -> bool:
        """Remove the file for a write that found no room; return whether to repeat the write.

        Another thread may have removed the file after the write failed.
        """
        return self.release() or self._was_released

    def restore(self) -> None:
        """Create the file outside the loop, unless it exists. Without room it is not created."""
        if self.there or self._making or not self.size:
            return
        self._making = True
        self._files.submit(self._make, self._made, LANE_BULK)

    def _make(self) -> None:
        temporary = self._path + TEMPORARY
        try:
            handle = self._files.open(temporary, create=True)
            try:
                for start in range(0, self.size, STEP_BYTES):
                    handle.write(start, _FILLING[: min(STEP_BYTES, self.size - start)])
                    handle.sync()
            finally:
                handle.close()
            self._files.rename(temporary, self._path)
            self._files.sync_directory(self._directory)
        except OSError:
            with contextlib.suppress(OSError):  # the first error has the cause
                self._files.remove(temporary)
            raise

    def _made(self, error: OSError | None) -> None:
        self._making = False
        # An error is ignored: the queue works without the ballast, and its owner tries again.
        self.there = error is None
        self._was_released = self._was_released and not self.there


def make_room_to_start(files: Files, directory: str) -> bool:
    """Remove the ballast if the disk has no room for the small files of a start."""
    path = os.path.join(directory, FILE)
    if not files.exists(path) or files.free_bytes(directory) >= START_BYTES:
        return False
    files.remove(path)
    return True
