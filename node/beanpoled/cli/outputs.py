"""Where commands write: a standard output that takes no more, and disks that are full.

Tables are laid out in `columns`, and live lines in `screen`.
"""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def drop_output() -> None:
    """Discard unwritten output: Python would retry at exit, and report an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the file in errors of the system: those of a read or a write do not.

    Args:
        path: what the block reads or writes.

    Raises:
        OSError: in the place of any other one; its only argument is the message.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # it has a message of ours
            raise
        words = "the disk is full" if error.errno in _FULL else error.strerror
        raise OSError(f"{error.filename or path}: {words}") from error
