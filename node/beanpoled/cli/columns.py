"""Tables of commands that fit their terminal: columns that matter less are left out first."""

import shutil
import sys
from collections.abc import Sequence
from typing import Final, NamedTuple

# Of the last column, which has words of any length: what must be in sight of it. "serving".
LAST_CHARS: Final = 7


class Column(NamedTuple):
    """One column.

    Attributes:
        title: stands above it.
        chars: its width.
        is_number: whether it stands at the right.
        dispensable: 0 for a column that always stays; of the others, the highest goes first.
    """

    title: str
    chars: int
    is_number: bool = True
    dispensable: int = 0


def terminal_chars() -> int | None:
    """The width of the terminal; None where the output goes elsewhere, which has any width."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], chars: int | None
) -> tuple[list[str], list[str]]:
    """Lay out a table; the last column is never cut.

    Returns:
        Its lines, and the titles of the columns that had no room.
    """
    kept = list(range(len(columns)))
    dropped: list[str] = []
    while chars is not None and _chars([columns[at] for at in kept]) > chars:
        least = max(kept, key=lambda at: columns[at].dispensable)
        if not columns[least].dispensable:
            break
        kept.remove(least)
        dropped.append(columns[least].title)
    lines = [[columns[at].title for at in kept], *([str(row[at]) for at in kept] for row in rows)]
    shown = [columns[at] for at in kept]
    return [_line(shown, line) for line in lines], dropped


def _chars(columns: Sequence[Column]) -> int:
    *fixed, last = columns
    return sum(column.chars + 1 for column in fixed) + min(last.chars, LAST_CHARS)


def _line(columns: Sequence[Column], values: Sequence[str]) -> str:
    cells = [
        value.rjust(column.chars) if column.is_number else value.ljust(column.chars)
        for column, value in zip(columns, values, strict=True)
    ]
    return " ".join(cells).rstrip()
