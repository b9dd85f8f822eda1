"""The lines of a node's log: their levels, and their format as text or JSON.

The callers decide when to log, and choose the words; `log_writer` writes the lines.
"""

import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from beanpoled.config.node import NodeConfig
from beanpoled.host.log_writer import LogWriter, Output
from beanpoled.host.seam import DEBUG, ERROR, INFO, WARNING

LEVELS: Final = {"debug": DEBUG, "info": INFO, "warning": WARNING, "error": ERROR}
_NAMES: Final = {level: name for name, level in LEVELS.items()}
# In the text format, an ordinary line has no prefix.
_PREFIXES: Final = {DEBUG: "debug: ", INFO: "", WARNING: "warning: ", ERROR: "fatal: "}


class LogLines:
    """Writes the lines of one node to standard error.

    Attributes:
        level: lines below it are left out, unless `telling`.
    """

    def __init__(self, config: NodeConfig, output: TextIO | None = None) -> None:
        self.level = LEVELS[config.log_level]
        self._is_json = config.log_format == "json"
        self._cluster = config.cluster
        self._node = config.node_id
        self._output = Output(output)
        self._writer: LogWriter | None = None
        self._is_telling = False
        self._is_stuck = False  # a flush has been in vain: the process ends anyway

    def begin(self) -> None:
        """From now on a thread writes the lines, and no caller waits for it but in `flush`."""
        if self._writer is None:
            self._writer = LogWriter(self._output.write, self._lost_line)

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Write lines of `info` and above at any level: an operator has asked for this outcome."""
        before, self._is_telling = self._is_telling, True
        try:
            yield
        finally:
            self._is_telling = before

    def write(self, line: str, level: int = INFO) -> None:
        """Write one line with the time in UTC, to the millisecond; it is lost if that fails."""
        if level >= (min(self.level, INFO) if self._is_telling else self.level):
            self._put(self._line(line, level))

    def end(self, line: str, level: int = INFO) -> None:
        """Write the last line before the process ends, and wait for it like `flush`."""
        if level >= self.level:
            self._put(self._line(line, level), is_last=True)
        self.flush()

    def raw(self, text: str) -> None:
        """Write a text with its line ends that is no line of this log, such as a traceback."""
        self._put(text)

    def flush(self) -> None:
        """Wait until the lines are written, but only `FLUSH_MAX_S`, and in vain only once."""
        if self._writer is not None and not self._is_stuck:
            self._is_stuck = not self._writer.flush()

    def _put(self, text: str, is_last: bool = False) -> None:
        if self._writer is not None:
            self._writer.put(text, is_last)
            return
        # The reader of the log may be gone, or its disk full. Callers log in the middle of a turn,
        # or before they end the process: what they do then must not depend on it.
        with suppress(OSError, ValueError):
            self._output.write(text)

    def _lost_line(self, count: int) -> str:
        are = "line is" if count == 1 else "lines are"
        return self._line(f"{count} {are} lost: this log did not take them", WARNING)

    def _line(self, line: str, level: int) -> str:
        now_ms = time.time_ns() // 1_000_000
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ms // 1000))
        stamp = f"{stamp}.{now_ms % 1000:03}Z"
        if self._is_json:
            entry = {
                "time": stamp,
                "level": _NAMES[level],
                "cluster": self._cluster,
                "node": self._node,
                "message": line,
            }
            return json.dumps(entry, ensure_ascii=False) + "\n"
        return f"{stamp} {self._node} {_PREFIXES[level]}{line}\n"


class StandardError(io.TextIOBase):
    """Takes the place of `sys.stderr`: what Python and libraries write there never blocks either.

    Such texts are their log lines, warnings, and errors of other threads.
    """

    def __init__(self, lines: LogLines) -> None:
        self._lines = lines
        self._before = sys.stderr

    def write(self, text: str) -> int:
        """See `io.TextIOBase`."""
        self._lines.raw(text)
        return len(text)

    def fileno(self) -> int:
        """See `io.TextIOBase`."""
        return self._before.fileno()
