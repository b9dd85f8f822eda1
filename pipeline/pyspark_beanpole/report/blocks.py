"""The building blocks of the page: formatted numbers, differences, tables, tiles, links.

All external text is escaped when it becomes a cell; cells are HTML.
"""

from collections.abc import Sequence
from html import escape
from typing import Final

from pyspark_beanpole.report import scales

# The text of a cell without a value.
NONE: Final = "-"
# A difference larger than this is shown as a factor.
FACTOR: Final = 3.0


def number(value: float | None) -> str:
    """Format a whole number."""
    return NONE if value is None else f"{value:,.0f}"


def percent(value: float | None) -> str:
    """Format a share."""
    return NONE if value is None else escape(scales.percent(value))


def duration(seconds: float | None) -> str:
    """Format a length of time."""
    return NONE if seconds is None else scales.duration(seconds)


def share(value: float | None) -> str:
    """Format a share, with a bar beside it."""
    if value is None:
        return NONE
    width = min(max(value, 0.0), 1.0) * 100
    return f'{percent(value)} <span class="share"><i style="width:{width:.1f}%"></i></span>'


def difference(now: float, before: float) -> str:
    """Return, as HTML, the change of a number relative to the earlier one; empty if that was 0."""
    if not before:
        return ""
    ratio = now / before
    if ratio >= FACTOR:
        return f"{ratio:,.0f} times" if ratio >= 10 else f"{ratio:.2g} times"
    percents = f"{(ratio - 1) * 100:+.0f}"
    return "same" if percents in ("+0", "-0") else f"{percents}&nbsp;%"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], names: int = 1) -> str:
    """Return a table whose first `names` columns are text; cells are HTML already."""
    if not rows:
        return '<p class="faint">None.</p>'
    kinds = [' class="name"' if place < names else "" for place in range(len(head))]
    parts = ['<div class="wide" tabindex="0"><table><thead><tr>']
    parts += [f"<th{kind}>{escape(word)}</th>" for kind, word in zip(kinds, head, strict=True)]
    parts.append("</tr></thead><tbody>")
    for row in rows:
        cells = "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        parts.append(f"<tr>{cells}</tr>")
    return "".join([*parts, "</tbody></table></div>"])


def tiles(found: Sequence[tuple[str, str, str]]) -> str:
    """Return tiles of (name, value as HTML, addition as HTML)."""
    parts = [
        f'<div class="tile"><b>{value}</b>{escape(name)}'
        f"{f'<i>{before}</i>' if before else ''}</div>"
        for name, value, before in found
    ]
    return f'<div class="tiles">{"".join(parts)}</div>'


def link(anchor: str, words: str) -> str:
    """Return a link to an anchor of the page; `words` are not HTML yet."""
    return f'<a href="#{escape(anchor)}">{escape(words)}</a>'


def section(anchor: str, title: str, *parts: str) -> str:
    """Return a section with its heading."""
    return f'<section id="{escape(anchor)}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def faint(words: str) -> str:
    """Return an explanatory paragraph; `words` are HTML already."""
    return f'<p class="faint">{words}</p>'


def shown_of(shown: int, total: int) -> str:
    """Return how many of the items are listed."""
    return f"All {total:,}" if shown == total else f"The first {shown:,} of {total:,}"


def card(anchor: str, *parts: str) -> str:
    """Return a framed part with an anchor for links."""
    return f'<div class="card" id="{escape(anchor)}">{"".join(parts)}</div>'
