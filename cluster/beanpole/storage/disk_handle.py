"""An open file of the operating system: the implementation of `Handle` on the real disk."""

import contextlib
import os


class DiskHandle:
    """A file of the operating system. Errors of its methods name the file, as it is called now."""

    __slots__ = ("_descriptor", "_truncated")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._truncated = False

    @property
    def descriptor(self) -> int:
        """The descriptor; -1 after `close`."""
        return self._descriptor

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data`, in several calls if the system writes only a part."""
        try:
            written = os.pwrite(self._descriptor, data, offset)
            if written != len(data):
                rest = memoryview(data)
                while written < len(rest):
                    written += os.pwrite(self._descriptor, rest[written:], offset + written)
        except OSError as error:
            self.name(error)
            raise

    def write_synced(self, offset: int, data: bytes) -> None:
        """Write with RWF_DSYNC, which syncs exactly this range, in one system call."""
        try:
            written = os.pwritev(self._descriptor, (data,), offset, os.RWF_DSYNC)
            if written != len(data):
                rest = memoryview(data)
                while written < len(rest):
                    written += os.pwritev(
                        self._descriptor, (rest[written:],), offset + written, os.RWF_DSYNC
                    )
        except OSError as error:
            self.name(error)
            raise

    def read(self, offset: int, size: int) -> bytes:
        """Read until `size` bytes or the end of the file."""
        try:
            data = os.pread(self._descriptor, size, offset)
            if len(data) == size or not data:
                return data
            pieces = [data]
            rest = size - len(data)
            while rest and (data := os.pread(self._descriptor, rest, offset + size - rest)):
                pieces.append(data)
                rest -= len(data)
        except OSError as error:
            self.name(error)
            raise
        return b"".join(pieces)

    def sync(self) -> None:
        """Sync data and size; after a truncation (once per start) also all metadata."""
        try:
            if self._truncated:
                os.fsync(self._descriptor)
                self._truncated = False
            else:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self.name(error)
            raise

    def size(self) -> int:
        """Return the size in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            self.name(error)
            raise

    def truncate(self, size: int) -> None:
        """Truncate the file."""
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            self.name(error)
            raise
        self._truncated = True

    def close(self) -> None:
        """Close the descriptor once."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def name(self, error: OSError) -> None:
        """Give an error the name of the file: the system names none for a call on a descriptor.

        The kernel knows the present name, without the disk: a segment of the log is open while it
        gets its final name.
        """
        with contextlib.suppress(OSError):
            error.filename = os.readlink(f"/proc/self/fd/{self._descriptor}")
