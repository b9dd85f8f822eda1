"""Read small files of the configuration, so that a pipe in their place cannot stop a node.

Belongs here: opening without a wait. The callers interpret the bytes.
"""

import errno
import os
import stat


def read_regular(path: str, size_max: int = -1) -> tuple[bytes, os.stat_result]:
    """Return the content of a regular file, and what the system knows of it.

    A running node reads some files in its loop. A plain open of a pipe without a writer waits for
    one, and meanwhile the node serves nobody and obeys no signal.

    Args:
        path: of the file; links are followed.
        size_max: bytes to read at most; -1 for all.

    Raises:
        OSError: the file cannot be read, or is a directory, a pipe or a device.
    """
    with open(path, "rb", opener=_open_at_once) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            words = "it must be a regular file, and no pipe or device"
            raise OSError(errno.EINVAL, words, path)
        return file.read(size_max), found


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
