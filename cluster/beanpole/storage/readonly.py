"""A read-only disk: all writes, truncations and removals are dropped.

For tools that read the files of a stopped node with the code of the node's start, which would also
clean up (cut a torn tail, remove unfinished files). This module knows no file format.
"""

import errno
import os
import stat

from beanpole.storage.disk_handle import DiskHandle
from beanpole.storage.files import Handle, InlineFiles


class ReadOnlyHandle(DiskHandle):
    """An open file whose writes are dropped."""

    __slots__ = ()

    def write(self, offset: int, data: bytes) -> None:
        """Drop the data."""

    def write_synced(self, offset: int, data: bytes) -> None:
        """Drop the data."""

    def sync(self) -> None:
        """Do nothing: nothing was written."""

    def truncate(self, size: int) -> None:
        """Leave the file as it is."""


class ReadOnlyFiles(InlineFiles):
    """The disk of the operating system, read-only."""

    def open(self, path: str, create: bool = False) -> Handle:
        """Open an existing file for reading.

        Raises:
            OSError: the file does not exist, is a directory, a pipe or a device, or `create` is
                set.
        """
        if create:
            raise OSError(f"{path} does not exist, and nothing is made here")
        # A plain open of a pipe without a writer would wait for one.
        handle = ReadOnlyHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        mode = os.fstat(handle.descriptor).st_mode
        if not stat.S_ISREG(mode):
            handle.close()
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise OSError(errno.EINVAL, "it is no regular file", path)
        return handle

    def make_directory(self, path: str) -> None:
        """Do nothing."""

    def rename(self, source: str, target: str) -> None:
        """Do nothing."""

    def remove(self, path: str) -> None:
        """Do nothing."""

    def remove_slowly(self, path: str) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing: nothing was changed."""
