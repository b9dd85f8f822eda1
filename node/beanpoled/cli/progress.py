"""A line on a terminal that says how far a long command is. Nothing where there is no terminal."""

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

# Nobody reads faster, and a terminal across a slow line is not flooded.
PERIOD_S: Final = 0.2
BAR_COLUMNS: Final = 24
_CLEAR_LINE: Final = "\r\x1b[2K"
_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Progress:
    """Counts bytes, or something else, on standard error."""

    def __init__(
        self,
        what: str,
        total_bytes: int = 0,
        output: TextIO | None = None,
        form: Callable[[float], str] | None = None,
    ) -> None:
        """Begin.

        Args:
            what: the first words of the line.
            total_bytes: how many there will be, nearly; 0 if nobody knows.
            output: another place than standard error.
            form: how a number is written that is not one of bytes.
        """
        self._what = what
        self._form = form or size
        self.total = total_bytes
        self._output = output or sys.stderr
        self._shows = self._output is not None and self._output.isatty()
        self._begun_s = time.monotonic()
        self._shown_s = self._begun_s

    def at(self, done_bytes: int) -> None:
        """Say how far it is."""
        if not self._shows:
            return
        now_s = time.monotonic()
        if now_s - self._shown_s >= PERIOD_S:
            self._shown_s = now_s
            passed_s = now_s - self._begun_s
            line = words(self._what, done_bytes, self.total, passed_s, self._form)
            self._output.write(_CLEAR_LINE + line)
            self._output.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._shows:
            self._output.write(_CLEAR_LINE)
            self._output.flush()


def words(
    what: str,
    done_bytes: int,
    total_bytes: int,
    passed_s: float,
    form: Callable[[float], str] | None = None,
) -> str:
    """Return the line: a bar if the total is known, bytes, rate, and the time that is left."""
    rate = done_bytes / passed_s if passed_s > 0 else 0.0
    form = form or size
    line = f"{what} {form(done_bytes)}, {form(rate)}/s"
    if not total_bytes:
        return f"{line}, {_clock(passed_s)}"
    share = min(1.0, done_bytes / total_bytes)
    bar = "#" * round(share * BAR_COLUMNS)
    left = f", {_clock((total_bytes - done_bytes) / rate)} left" if 0 < share < 1 and rate else ""
    return f"{what} [{bar:-<{BAR_COLUMNS}}] {share:4.0%} {line[len(what) + 1 :]}{left}"


def size(count: float) -> str:
    """Return a number of bytes in three or four digits."""
    for unit, name in _UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count:.0f} B"


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
