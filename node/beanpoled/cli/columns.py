"""Tables of commands that fit the terminal: less important columns are left out first.

If the remaining columns do not fit, the table is folded into several tables below each other.
"""

import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import Final, NamedTuple

# The visible part of the last column, which has text of any length: "serving".
LAST_CHARS: Final = 7
# Kept by `visible` in a body that is printed whole. Programs, by --json or a pipe, get all of it
# unchanged.
LINES: Final = "\n\t"


class Column(NamedTuple):
    """One column.

    Attributes:
        title: the heading.
        chars: its width.
        is_number: whether it is aligned right.
        dispensable: 0 for a column that always stays; of the others, the highest is dropped first.
    """

    title: str
    chars: int
    is_number: bool = True
    dispensable: int = 0


def terminal_chars() -> int | None:
    """Return the width of the terminal; None if the output goes elsewhere: it is unlimited."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def cut(text: str, chars: int) -> tuple[str, int]:
    """Cut a line to the width of a terminal, in which characters take none, one or two columns.

    Returns:
        What fits, and its width.
    """
    used = 0
    for at, char in enumerate(text):
        its = 2 if unicodedata.east_asian_width(char) in "WF" else not unicodedata.combining(char)
        if used + its > chars:
            return text[:at], used
        used += its
    return text, used


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], chars: int | None
) -> tuple[list[str], list[str]]:
    """Lay out a table; the last column is never cut.

    Returns:
        Its lines, and the titles of the dropped columns.
    """
    kept = list(range(len(columns)))
    dropped: list[str] = []
    while chars is not None and _chars([columns[at] for at in kept]) > chars:
        least = max(kept, key=lambda at: columns[at].dispensable)
        if not columns[least].dispensable:
            break
        kept.remove(least)
        dropped.append(columns[least].title)
    cells = [[columns[at].title for at in kept], *([str(row[at]) for at in kept] for row in rows)]
    shown = [columns[at] for at in kept]
    if chars is None or _chars(shown) <= chars:
        return [_line(shown, line) for line in cells], dropped
    return _folded(shown, cells, chars), dropped


def _folded(columns: Sequence[Column], cells: Sequence[Sequence[str]], chars: int) -> list[str]:
    """Lay out several tables as narrow as their cells; each begins with the first column."""
    *fixed, last = columns
    tight = [
        column._replace(chars=max(len(line[at]) for line in cells))
        for at, column in enumerate(fixed)
    ]
    tight.append(last)
    parts: list[list[int]] = [[0]]
    for at in range(1, len(tight)):
        if len(parts[-1]) > 1 and _chars([tight[one] for one in (*parts[-1], at)]) > chars:
            parts.append([0])
        parts[-1].append(at)
    return [
        _line([tight[at] for at in part], [line[at] for at in part])
        for part in parts
        for line in cells
    ]


def _chars(columns: Sequence[Column]) -> int:
    *fixed, last = columns
    return sum(column.chars + 1 for column in fixed) + min(last.chars, LAST_CHARS)


def _line(columns: Sequence[Column], values: Sequence[str]) -> str:
    cells = [
        value.rjust(column.chars) if column.is_number else value.ljust(column.chars)
        for column, value in zip(columns, values, strict=True)
    ]
    return " ".join(cells).rstrip()


def name_words(text: str, chars: int) -> str:
    """Return a client's text in one line of a table, truncated if necessary."""
    text = "".join(char if char.isprintable() else "." for char in text)
    return text if len(text) <= chars else f"{text[: chars - 3]}..."


def duration_words(seconds: float) -> str:
    """Return a duration in at most six characters."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f}us"
    if seconds < 1:
        return f"{seconds * 1e3:.3g}ms" if seconds < 0.9995 else "1s"
    if seconds < 60:
        return f"{seconds:.3g}s"
    for unit, its_s in (("m", 60), ("h", 3600), ("d", 86_400)):
        if seconds < 100 * its_s or unit == "d":
            return f"{seconds / its_s:.3g}{unit}"
    raise AssertionError("days are the last unit")
