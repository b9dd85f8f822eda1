"""The snippets of the pages in docs/, as a reader finds them. Does nothing but read.

A block that cannot be run by a test says so in the page's source, in the line before it:
`<!-- not run: REASON -->`. Everything else in these languages is run, in the order of the page.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from tests.pipeline.conftest import ROOT

DOCS: Final = ROOT / "docs"
RUN: Final = ("python", "sql", "sh")
# Listings: of files, of usage, of what a program prints.
NOT_RUN: Final = ("", "text", "json", "toml")
# Shorter is no reason.
REASON_LENGTH_MIN: Final = 15

_MARK: Final = re.compile(r"<!-- not run: (.*) -->")


class Block(NamedTuple):
    """A fenced block: where its first line is, and why it is not run; empty if it is."""

    page: str
    line: int
    language: str
    text: str
    reason: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page.

    Raises:
        ValueError: a mark stands before nothing or says nothing, or a language is unknown.
    """
    found = []
    reason = ""
    begun: int | None = None
    language = ""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        place = f"{page.name}:{number}"
        if begun is not None:
            if line.strip() == "```":
                text = "\n".join(lines[begun : number - 1])
                found.append(Block(page.name, begun + 1, language, text, reason))
                begun, reason = None, ""
        elif mark := _MARK.fullmatch(line.strip()):
            reason = mark[1]
            if len(reason) < REASON_LENGTH_MIN:
                raise ValueError(f"{place}: {reason!r} is no reason")
        elif line.lstrip().startswith("```"):
            begun, language = number, line.strip().removeprefix("```")
            if language not in (*RUN, *NOT_RUN):
                raise ValueError(f"{place}: blocks are {', '.join(RUN)} or text, not {language}")
        elif reason and line.strip():
            raise ValueError(f"{place}: the mark before this line belongs to a block")
    return found


def run_blocks(page: Path) -> list[Block]:
    """Return the blocks that are to be run."""
    return [block for block in blocks(page) if block.language in RUN and not block.reason]
