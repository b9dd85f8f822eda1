"""A file that only takes room, to be given up when the disk is full and the log needs room.

Belongs here: making the file, giving it up, and the start on a full disk. When that is due is
decided where the disk's room is counted.
"""

import errno
import os
from typing import Final

from beanpole.storage.files import LANE_BULK, Files

FILE: Final = "ballast"
TEMPORARY: Final = ".tmp"
# Enough for the largest entry, a new segment and a snapshot of a queue that was emptied.
BALLAST_BYTES: Final = 8 * 1024 * 1024
# Written in steps, each of them synced: the log shares the disk.
STEP_BYTES: Final = 1024 * 1024
# A start on a disk with less than this gives the ballast up first: it has small files to write.
START_BYTES: Final = 1024 * 1024

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
# Not zeros: a file system that compresses or keeps no zeros must take the room all the same.
_FILLING: Final = bytes(range(1, 256)) * (STEP_BYTES // 255 + 1)


def is_full(error: OSError | None) -> bool:
    """Return whether an error says that there is no room: nothing was harmed then."""
    return error is not None and error.errno in _FULL


class Ballast:
    """The file. `release` may be called by any thread, everything else by the loop's."""

    def __init__(self, files: Files, directory: str, size: int) -> None:
        """See what an earlier life left; `size` 0: there is to be none."""
        self.size = size
        self._files = files
        self._directory = directory
        self._path = os.path.join(directory, FILE)
        self._making = False
        if files.exists(self._path + TEMPORARY):
            files.remove(self._path + TEMPORARY)
        self.there = files.exists(self._path)

    def release(self) -> bool:
        """Give the file up; return whether there was one. Its removal need not be durable."""
        if not self.there:
            return False
        self.there = False
        try:
            self._files.remove(self._path)
        except OSError:
            return False  # a write that needs the room will fail
        return True

    def restore(self) -> None:
        """Make the file away from the loop, unless it is there. If there is no room it is not."""
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
            if self._files.exists(temporary):
                self._files.remove(temporary)
            raise

    def _made(self, error: OSError | None) -> None:
        self._making = False
        # Whatever the disk says: the queue works without it, and it is tried again.
        self.there = error is None


def make_room_to_start(files: Files, directory: str) -> bool:
    """Give the ballast up if the disk has no room for the small files of a start."""
    path = os.path.join(directory, FILE)
    if not files.exists(path) or files.free_bytes(directory) >= START_BYTES:
        return False
    files.remove(path)
    return True
