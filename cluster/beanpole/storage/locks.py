"""The lock that keeps a second process out of a data directory.

A node holds it while it runs, and a command while it writes to a directory that a node may use.
"""

import contextlib
import fcntl
import os
from typing import Final

from beanpole.errors import StorageError

# The name of the file that is locked.
LOCK: Final = "lock"


class DirectoryLock:
    """Keeps a second process out of a directory; the system releases it when the process dies."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = _locked(path)
        # Another process may have removed the file since it was opened here: a lock on an unlinked
        # file excludes no other process.
        while not _is_at(self._descriptor, path):
            os.close(self._descriptor)
            self._descriptor = _locked(path)

    def release(self) -> None:
        """Release the directory for other processes."""
        os.close(self._descriptor)

    def remove(self) -> None:
        """Release a directory that is not used after all, without the file of the lock."""
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)


def _locked(path: str) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        message = f"{os.path.dirname(path)} is in use by another process"
        raise StorageError(message) from None
    return descriptor


def _is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is the one with this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
