"""Output whose reader has gone, as with `| head`."""

import os
from typing import TextIO


def dead_pipe() -> int:
    """Return the writing end of a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def unread_output() -> TextIO:
    """Return a stream that writes each line at once, as all do with PYTHONUNBUFFERED."""
    return open(dead_pipe(), "w", buffering=1)
