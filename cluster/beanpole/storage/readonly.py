"""A read-only disk: all writes, truncations and removals are dropped.

For tools that read the files of a stopped node with the code of the node's start, which would also
clean up (cut a torn tail, remove unfinished files). This module knows no file format.
"""

import os

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
            OSError: the file does not exist, or `create` is set.
        """
        if create:
            raise OSError(f"{path} does not exist, and nothing is made here")
        return ReadOnlyHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

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
