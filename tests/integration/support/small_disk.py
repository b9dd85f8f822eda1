"""A node on a small disk: `python small_disk.py BYTES DATA_DIR ARGUMENTS-OF-BEANPOLED`.

A file system of its own would need root. Here the daemon's main is run with the writes of its files
replaced: the files of DATA_DIR take at most BYTES in all, counted in blocks, and further writes
fail with ENOSPC as on a full disk. Everything else is real.
"""

import errno
import os
import sys
from typing import Any, Final

from beanpole.storage.disk_handle import DiskHandle
from beanpole.storage.files import InlineFiles
from beanpoled import main

BLOCK_BYTES: Final = 4096


def blocks(size: int) -> int:
    """Return the space that a file of this size takes."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


class SmallDisk:
    """The files below one folder, and the space that they may take."""

    def __init__(self, size: int, directory: str) -> None:
        self._size = size
        self._directory = directory
        self._write: Any = DiskHandle.write
        self._write_synced: Any = DiskHandle.write_synced

    def free_bytes(self) -> int:
        """Return the number of bytes that can still be written."""
        used = 0
        for folder, _, names in os.walk(self._directory):
            for name in names:
                try:
                    used += blocks(os.path.getsize(os.path.join(folder, name)))
                except FileNotFoundError:  # removed meanwhile
                    continue
        return max(0, self._size - used)

    def fit(self, handle: DiskHandle, offset: int, data: bytes) -> None:
        """If not all data fits, write a part and fail like a full disk."""
        missing = blocks(offset + len(data)) - blocks(handle.size())
        if missing > 0 and (free := self.free_bytes()) < missing:
            end = blocks(handle.size()) + free
            self._write(handle, offset, data[: max(0, end - offset)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write(self, handle: DiskHandle, offset: int, data: bytes) -> None:
        """See `Handle`."""
        self.fit(handle, offset, data)
        self._write(handle, offset, data)

    def write_synced(self, handle: DiskHandle, offset: int, data: bytes) -> None:
        """See `Handle`."""
        self.fit(handle, offset, data)
        self._write_synced(handle, offset, data)


def run(size: int, directory: str, arguments: list[str]) -> None:
    """Run a node whose disk has the given size."""
    disk = SmallDisk(size, directory)
    for owner, name, value in (
        (DiskHandle, "write", lambda *args: disk.write(*args)),
        (DiskHandle, "write_synced", lambda *args: disk.write_synced(*args)),
        (InlineFiles, "free_bytes", lambda *args: disk.free_bytes()),
    ):
        type.__setattr__(owner, name, value)
    sys.argv = ["beanpoled", *arguments]
    main.main()


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
