"""A disk that is only looked at: whatever is written, cut or removed never reaches it.

For tools that read the files of a stopped node with the very code that the node starts with, which
would also tidy up (cut a torn tail, remove unfinished files). No file format is known here.
"""

import os

from beanpole.storage.files import Handle, InlineFiles


class ReadOnlyHandle:
    """An open file whose writes are dropped."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, offset: int, data: bytes) -> None:
        """Drop it."""

    def write_synced(self, offset: int, data: bytes) -> None:
        """Drop it."""

    def read(self, offset: int, size: int) -> bytes:
        """Read `size` bytes; fewer only at the end of the file."""
        pieces = []
        while size and (data := os.pread(self._descriptor, size, offset)):
            pieces.append(data)
            offset += len(data)
            size -= len(data)
        return b"".join(pieces)

    def sync(self) -> None:
        """Nothing was written."""

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self._descriptor).st_size

    def truncate(self, size: int) -> None:
        """Leave the file as it is."""

    def close(self) -> None:
        """Close the descriptor once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class ReadOnlyFiles(InlineFiles):
    """The disk of the operating system, behind glass."""

    def open(self, path: str, create: bool = False) -> Handle:
        """Open a file that exists, for reading.

        Raises:
            OSError: there is none, or it was to be made.
        """
        if create:
            raise OSError(f"{path} does not exist, and nothing is made here")
        return ReadOnlyHandle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def make_directory(self, path: str) -> None:
        """Make nothing."""

    def rename(self, source: str, target: str) -> None:
        """Rename nothing."""

    def remove(self, path: str) -> None:
        """Remove nothing."""

    def remove_slowly(self, path: str) -> None:
        """Remove nothing."""

    def sync_directory(self, path: str) -> None:
        """Nothing was changed."""
