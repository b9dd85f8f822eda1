"""Redirect the output of Spark and Java from the terminal to a file of bounded size.

Our own lines in it, and Spark's progress bars, still go to the terminal. `cli.failures` interprets
errors.
"""

import logging
import os
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from beanpole.client.terminals import moves_cursor

# The prefix of lines from our own processes beside Spark (see `logs`).
OURS: Final = "beanpole: "
# The prefix of Spark's progress bars; each replaces the one before.
BAR: Final = "[Stage "
# Some days of a stream that warns often. A full file is kept once as NAME.1.
FILE_BYTES_MAX: Final = 16 * 1024 * 1024
# More lines than an error of Spark with its stack and those of its causes.
LINES_KEPT: Final = 400
CHUNK_BYTES: Final = 64 * 1024
# How long to wait for the remaining output of a Java that has ended.
REST_S: Final = 2.0
_FORMATTER: Final = logging.Formatter()


class SparkLog:
    """A log file, and a pipe into it for Java's standard output and error."""

    def __init__(self, path: Path | None = None) -> None:
        """Open the file.

        Args:
            path: the file to append to; None for a new one in the system's temporary directory,
                which `close` removes if it is not wanted.

        Raises:
            OSError: the file cannot be written.
        """
        self._is_ours = path is None
        if path is None:
            descriptor, name = tempfile.mkstemp(prefix="beanpole-pipeline-", suffix=".log")
            os.close(descriptor)
            path = Path(name)
        self.path: Final = path.absolute()
        self._file: TextIO = self.path.open("a", errors="replace")
        self._bytes = self.path.stat().st_size
        self._lock = threading.Lock()
        self._last: deque[str] = deque(maxlen=LINES_KEPT)
        self._pump: threading.Thread | None = None

    def pipe(self) -> int:
        """Return a descriptor for Java to write to; the caller closes it after passing it on."""
        reading, writing = os.pipe()
        self._pump = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._pump.start()
        return writing

    def write(self, text: str) -> None:
        """Append lines. Lines that a full disk rejects are dropped."""
        with self._lock:
            self._last.extend(text.splitlines())
            if self._bytes > FILE_BYTES_MAX:
                self._begin_anew()
            with suppress(OSError, ValueError):
                self._bytes += self._file.write(f"{text.rstrip()}\n")
                self._file.flush()

    def take(self, record: logging.LogRecord) -> bool:
        """Write what Py4J logs, as a filter of the root logger.

        Py4J logs there, with a stack, each request that Java has not answered. A thread of its own
        sends requests too, so that this can come after the end of our command, which ended Java.
        """
        if Path(record.pathname).parent.name != "py4j":
            return True
        self.write(_FORMATTER.format(record))
        return False

    def last(self) -> list[str]:
        """Return the last lines, after a wait for the rest of an ended Java's output."""
        if self._pump is not None:
            self._pump.join(REST_S)
        with self._lock:
            return list(self._last)

    def close(self, is_wanted: bool) -> None:
        """Close the file; a temporary one is kept only if it `is_wanted`."""
        with self._lock:
            self._file.close()
        if self._is_ours and not is_wanted:
            for path in (self.path, self._older()):
                path.unlink(missing_ok=True)

    def _begin_anew(self) -> None:
        with suppress(OSError, ValueError):
            self._file.close()
            self.path.replace(self._older())
            self._file = self.path.open("a", errors="replace")
            self._bytes = 0

    def _older(self) -> Path:
        return self.path.with_name(f"{self.path.name}.1")

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            for line in _lines(pipe.fileno()):
                if line.startswith(OURS):
                    _show(f"{line}\n")
                elif line.startswith(BAR):
                    if moves_cursor(sys.stderr):
                        _show(f"\r\x1b[2K{line}\r")
                elif line.strip():
                    self.write(line)
                elif line and moves_cursor(sys.stderr):
                    # Spark overwrites its bar with blanks to remove it.
                    _show("\r\x1b[2K")


def _lines(descriptor: int) -> Iterator[str]:
    """Read lines, which also end at carriage returns, so that each bar is a line."""
    rest = b""
    while chunk := os.read(descriptor, CHUNK_BYTES):
        *whole, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
        for line in whole:
            yield line.decode(errors="replace")
        if len(rest) > CHUNK_BYTES:
            yield rest.decode(errors="replace")
            rest = b""
    if rest:
        yield rest.decode(errors="replace")


def _show(text: str) -> None:
    with suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
