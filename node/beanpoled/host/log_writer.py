"""A thread that writes the lines of a log, so that no caller waits for a log that takes none.

Such a log is a pipe whose reader has stopped, or a file on a disk that hangs. `log` formats the
lines; `audit.log` has a thread of its own, which syncs and rotates its files.
"""

import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

from beanpole.storage.threads import start_daemon

# Some 8,000 lines: those of hours, as a node in trouble logs few lines a second.
WAITING_CHARACTERS_MAX: Final = 1024 * 1024
# The end of a process waits this long for its log. A log that takes lines has them within
# milliseconds, and the others must not add much to the end of a node.
FLUSH_MAX_S: Final = 1.0


class Output:
    """Standard error, or a given file: text goes to its descriptor, past Python's buffer.

    A thread that hangs in a write of the buffer holds the lock of the buffer, and Python aborts a
    process that ends then.
    """

    def __init__(self, output: TextIO | None = None) -> None:
        # The present one, because `log.StandardError` may take its place.
        # It is None where it is closed; `print` to None would write to standard output.
        self._output = output or sys.stderr or open(os.devnull, "w")  # noqa: SIM115
        self._is_torn = False  # the last text was written in part

    def write(self, text: str) -> None:
        """Write a text with its line ends. Blocks.

        Raises:
            OSError: there is no room, or no reader.
            ValueError: it is closed.
        """
        stream = self._output
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError):  # a test has replaced it by one in memory
            print(text, end="", file=stream, flush=True)
            return
        left = text.encode(stream.encoding, "backslashreplace")
        if self._is_torn:
            left = b"\n" + left
        while left:
            try:
                written = os.write(descriptor, left)
            except BlockingIOError:  # another program has changed the pipe that it shares with us
                select.select((), (descriptor,), ())
                continue
            left = left[written:]
            self._is_torn = bool(left)


class LogWriter:
    """Writes lines in their order, in a daemon thread that starts with the first of them."""

    def __init__(self, write: Callable[[str], None], lost_line: Callable[[int], str]) -> None:
        """Begin.

        Args:
            write: writes a text. It may block, and raise OSError and ValueError: then the line is
                lost. Called by the thread only.
            lost_line: returns the text that says how many lines are lost.
        """
        self._write = write
        self._lost_line = lost_line
        # With a lock that the handler of a signal may take within another `put`.
        self._changed = threading.Condition(threading.RLock())
        # The number of lines that were lost directly before each text, and the text.
        self._waiting: deque[tuple[int, str]] = deque()
        self._characters = 0
        self._lost = 0  # since the last text that waits
        self._is_writing = False
        self._thread: threading.Thread | None = None
        self._unwritten = 0  # used by the thread only: lost, and not reported yet

    def put(self, text: str, is_last: bool = False) -> None:
        """Let the thread write a text with its line end. Never blocks, and never fails.

        Args:
            text: lost, and counted, if too many wait.
            is_last: never lost here, because the process ends.
        """
        with self._changed:
            is_full = self._characters + len(text) > WAITING_CHARACTERS_MAX
            if is_full and self._waiting and not is_last:
                self._lost += 1
                return
            self._waiting.append((self._lost, text))
            self._lost = 0
            self._characters += len(text)
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def flush(self, within_s: float = FLUSH_MAX_S) -> bool:
        """Wait until all lines are written or lost; return False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, within_s)

    def _is_idle(self) -> bool:
        return not (self._waiting or self._lost or self._is_writing)

    def _start(self) -> None:
        with suppress(OSError):  # the next line tries again
            self._thread = start_daemon(self._run, "log")

    # --- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            lost, text = self._next()
            self._take(lost, text)
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def _next(self) -> tuple[int, str]:
        """Wait for a text, or for lost lines behind which no text has come yet."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._lost)
            self._is_writing = True
            if self._waiting:
                lost, text = self._waiting.popleft()
                self._characters -= len(text)
                return lost, text
            lost, self._lost = self._lost, 0
            return lost, ""

    def _take(self, lost: int, text: str) -> None:
        self._unwritten += lost
        try:
            if self._unwritten:
                self._write(self._lost_line(self._unwritten))
                self._unwritten = 0
            if text:
                self._write(text)
        except (OSError, ValueError):
            self._unwritten += bool(text)
