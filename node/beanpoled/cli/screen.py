"""Output with lines that stay, and in a terminal live lines below them."""

import shutil
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from beanpole.client.terminals import moves_cursor

_CLEAR_LINE: Final = "\x1b[2K"
_UP: Final = "\x1b[{}A"


class Screen:
    """Writes to a terminal or to a file; only a terminal that moves its cursor gets live lines."""

    def __init__(self, output: TextIO | None = None) -> None:
        self._output = output or sys.stdout
        self._live: list[str] = []
        self.terminal = moves_cursor(self._output)

    def say(self, line: str) -> None:
        """Print a line that stays, above the live lines."""
        live = self._live
        self._erase()
        self._output.write(line + "\n")
        self._draw(live)
        self._output.flush()

    def show(self, lines: Sequence[str]) -> None:
        """Replace the live lines; nothing is written if there is no terminal."""
        if not self.terminal or list(lines) == self._live:
            return
        self._erase()
        self._draw(list(lines))
        self._output.flush()

    def end(self) -> None:
        """Leave the live lines as they are; later output follows below them."""
        self._live = []

    def _erase(self) -> None:
        if self._live:
            self._output.write((_UP.format(1) + _CLEAR_LINE) * len(self._live) + "\r")
            self._live = []

    def _draw(self, lines: list[str]) -> None:
        # A wrapped line would make the number of lines to move up wrong.
        width = shutil.get_terminal_size().columns
        for line in lines:
            self._output.write(line[: width - 1] + "\n")
        self._live = lines
