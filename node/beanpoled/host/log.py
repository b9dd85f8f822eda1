"""The lines of a node's log: their levels, and their format as text or JSON.

The callers decide when to log, and choose the words.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, TextIO

from beanpoled.config.node import NodeConfig
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
        self._output = output
        self._is_telling = False

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
        if level < (min(self.level, INFO) if self._is_telling else self.level):
            return
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
            text = json.dumps(entry, ensure_ascii=False)
        else:
            text = f"{stamp} {self._node} {_PREFIXES[level]}{line}"
        # The reader of the log may be gone, or its disk full. Callers log in the middle of a turn,
        # or before they end the process: what they do then must not depend on it.
        with suppress(OSError, ValueError):
            print(text, file=self._output or sys.stderr, flush=True)
