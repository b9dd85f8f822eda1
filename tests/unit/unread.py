"""Output whose reader has gone, as with `| head`, or reads nothing."""

import os
from typing import TextIO

import pytest


def dead_pipe() -> int:
    """Return the writing end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_pipe() -> tuple[int, int]:
    """Return a pipe that takes no byte; its writing end does not block."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    for size in (4096, 1):
        with pytest.raises(BlockingIOError):
            while True:
                os.write(write, b"x" * size)
    return read, write


def unread_output() -> TextIO:
    """Return a stream that writes each line at once, as all do with PYTHONUNBUFFERED."""
    return open(dead_pipe(), "w", buffering=1)
