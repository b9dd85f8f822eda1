"""The outputs of commands: the encoding of standard output, its closed end, and full disks.

Tables are laid out in `columns`, and live lines in `screen`.
"""

import contextlib
import errno
import io
import os
import sys
from collections.abc import Iterator
from typing import Final

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def escape_unwritable() -> None:
    """Write what the encoding of standard output lacks as an escape: `caf\\xe9` in ASCII.

    One body in a list would else end the list. JSON is ASCII anyway, and bodies alone are bytes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


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
