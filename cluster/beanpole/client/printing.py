"""Standard output and error that cannot be written: the reader has gone, or the disk is full."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


def print_lines(lines: Iterable[str]) -> None:
    """Print lines, as many as the reader of a pipe wants.

    Raises:
        OSError: they cannot be written.
    """
    if sys.stdout is None:
        raise OSError("standard output is closed")
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError:
        drop_output()
        raise


class Parser(argparse.ArgumentParser):
    """A parser that tells where the text of --help or --version cannot be written.

    argparse itself ignores that, and a full disk looks like success. It parses in any thread: it
    leaves `sys.stdout`, which other threads write to, as it is.
    """

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        # The one way of argparse to all of its outputs. The file is None if it is closed.
        if file is not None and file is sys.stdout:
            print_lines(message.splitlines())
        elif file is not None:
            super()._print_message(message, file)


def drop_output() -> None:
    """Discard unwritten output: Python would retry at exit, and end with status 120."""
    _discard(sys.stdout)


def _discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Lossy:
    """A text stream whose failures are not raised; text that it cannot write is lost."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, perhaps without effect."""
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, perhaps without effect."""
        try:
            self._stream.flush()
        except OSError:
            return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def messages_may_be_lost() -> Iterator[None]:
    """Let no message on standard error fail meanwhile, so that none decides how a command ends.

    Without it, a command whose log has no reader any more would end in the middle, like a listing
    of which nobody reads the rest.
    """
    if sys.stderr is None:
        # It is closed. `print` to None would write to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    stream = sys.stderr
    lossy = sys.stderr = cast(TextIO, _Lossy(stream))
    try:
        yield
    finally:
        if sys.stderr is lossy:  # else another thread is in here, too
            sys.stderr = stream
        try:
            stream.flush()
        except OSError:
            _discard(stream)
