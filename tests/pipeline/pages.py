"""Read the snippets of the pages in docs/, without running them.

A block that a test cannot run is marked in the page's source, in the line before it:
`<!-- not run: REASON -->`. All other blocks in these languages are run, in the order of the page.
"""

import re
from pathlib import Path
from typing import Final, NamedTuple

from tests.pipeline.conftest import ROOT

DOCS: Final = ROOT / "docs"
RUN: Final = ("python", "sql", "sh")
# Listings of files, usage and output.
NOT_RUN: Final = ("", "text", "json", "toml")
# A shorter text is rejected as a reason.
REASON_LENGTH_MIN: Final = 15

_MARK: Final = re.compile(r"<!-- not run: (.*) -->")


class Block(NamedTuple):
    """A fenced block, with the line where it begins and the reason if it is not run."""

    page: str
    line: int
    language: str
    text: str
    reason: str


def blocks(page: Path) -> list[Block]:
    """Return the blocks of a page.

    Raises:
        ValueError: a mark precedes no block or has no reason, or a language is unknown.
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
