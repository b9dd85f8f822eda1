"""The Markdown of generated pages: cells, tables, the line that says how a page is made."""

import re
from collections.abc import Sequence
from typing import Final

REMEDY: Final = "run `make references` and commit the result"
_CODE: Final = re.compile(r"(`[^`]*`)")


def head(title: str, sources: str, words: str) -> list[str]:
    """Return the first lines of a page."""
    return [f"# {title}", "", words, f"`make references` writes this page from {sources}.", ""]


def text(words: str) -> str:
    """Return words that Markdown shows as they are; code in backticks stays code."""
    parts = _CODE.split(words)
    return "".join(
        part if part.startswith("`") else re.sub(r"([*<~$])", r"\\\1", part) for part in parts
    )


def code(words: str) -> str:
    """Return words as code; nothing if there are none."""
    return f"`{words}`" if words else ""


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table and an empty line, without the columns that have no value in any row."""
    kept = [at for at in range(len(titles)) if any(row[at] for row in rows)]
    lines = [[titles[at] for at in kept], ["---"] * len(kept)]
    lines += [[row[at].replace("|", r"\|") for at in kept] for row in rows]
    return [*(f"| {' | '.join(line)} |" for line in lines), ""]
