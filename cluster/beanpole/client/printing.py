"""Standard output that cannot be written: its reader has gone (`| head`), or its disk is full."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

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
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
