"""Standard output that cannot be written: its reader has gone (`| head`), or its disk is full."""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Iterable, Sequence


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


def parse(parser: argparse.ArgumentParser, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse a command line, and print the text of --help and --version.

    argparse itself ignores that it cannot be written, and a full disk looks like success.

    Raises:
        OSError: it cannot be written.
    """
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            return parser.parse_args(argv)
    except SystemExit:
        if sys.stdout is not None:
            print_lines(printed.getvalue().splitlines())
        raise


def drop_output() -> None:
    """Discard unwritten output: Python would retry at exit, and end with status 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
