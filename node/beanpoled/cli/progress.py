"""A progress line on a terminal for long commands; nothing is written elsewhere.

A terminal that cannot move its cursor counts as elsewhere.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from beanpole.client.terminals import moves_cursor
from beanpoled.cli.columns import cut

# As fast as people read; a terminal on a slow line is not flooded.
PERIOD_S: Final = 0.2
BAR_COLUMNS: Final = 24
_CLEAR_LINE: Final = "\r\x1b[2K"
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Progress:
    """Counts bytes, or what `form` formats, on standard error."""

    def __init__(
        self,
        what: str,
        total: int = 0,
        output: TextIO | None = None,
        form: Callable[[float], str] | None = None,
    ) -> None:
        """Start the line.

        Args:
            what: the first words of the line.
            total: the approximate total, in the unit of `form`; 0 if it is unknown.
            output: the stream to write to instead of standard error.
            form: formats a number that is not a size in bytes.
        """
        self._what = what
        self._form = form or size
        self.total = total
        self._output = output or sys.stderr
        self._shows = moves_cursor(self._output)
        self._begun_s = time.monotonic()
        self._shown_s = self._begun_s

    def at(self, done: int) -> None:
        """Update the line; `done` is in the unit of `form`."""
        if not self._shows:
            return
        now_s = time.monotonic()
        if now_s - self._shown_s >= PERIOD_S:
            self._shown_s = now_s
            passed_s = now_s - self._begun_s
            line = words(self._what, done, self.total, passed_s, self._form)
            # Of a line that wraps, only the last row would be cleared.
            columns = os.get_terminal_size(self._output.fileno()).columns
            shown, _ = cut(line, columns - 1 if columns else len(line))
            self._output.write(_CLEAR_LINE + shown)
            self._output.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._shows:
            self._output.write(_CLEAR_LINE)
            self._output.flush()


def words(
    what: str,
    done: int,
    total: int,
    passed_s: float,
    form: Callable[[float], str] | None = None,
) -> str:
    """Return the line: a bar if the total is known, the count, rate, and the remaining time."""
    rate = done / passed_s if passed_s > 0 else 0.0
    form = form or size
    line = f"{what} {form(done)}, {form(rate)}/s"
    if not total:
        return f"{line}, {_clock(passed_s)}"
    share = min(1.0, done / total)
    bar = "#" * round(share * BAR_COLUMNS)
    left = f", {_clock((total - done) / rate)} left" if 0 < share < 1 and rate else ""
    return f"{what} [{bar:-<{BAR_COLUMNS}}] {share:4.0%} {line[len(what) + 1 :]}{left}"


def size(count: float) -> str:
    """Return a size in bytes with three or four digits."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
