"""The manual pages of both programs, for `make man`: those of argparse-manpage, with an addition.

It writes a line that begins with a dot or an apostrophe as it is, and roff takes it for a request
that it does not know: the words of the line would be missing.
"""

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Final

from argparse_manpage.manpage import Manpage

from beanpoled import cli, main

FOLDER: Final = Path("dist/man")
# All that argparse-manpage writes; other lines that begin like a request are text.
REQUESTS: Final = frozenset({".TH", ".SH", ".SS", ".TP", ".B"})
_LIKE_A_REQUEST: Final = re.compile(r"^[.'].*$", re.MULTILINE)
_PAGES: Final = (
    (cli.parser, 1, "a replicated work queue"),
    (main.parser, 8, "a node of Beanpole"),
)


def page(parser: ArgumentParser, section: int, description: str) -> str:
    """Return the page of a program.

    Args:
        parser: of the program.
        section: the number of the section of the manual.
        description: of the program, in a few words.
    """
    data = {
        "description": description,
        "project_name": "beanpole",
        "manual_title": "Beanpole",
        "manual_section": section,
    }
    return _LIKE_A_REQUEST.sub(_escaped, str(Manpage(parser, _data=data)))


def _escaped(line: re.Match[str]) -> str:
    # \& is a character without a width: the line begins with that.
    return line[0] if line[0].split(" ")[0] in REQUESTS else rf"\&{line[0]}"


def pages() -> dict[Path, str]:
    """Return the text of each page by its path below `FOLDER`."""
    found = {}
    for parser, section, description in _PAGES:
        root = parser()
        place = Path(f"man{section}/{root.prog}.{section}")
        found[place] = page(root, section, description)
    return found


if __name__ == "__main__":
    for place, text in pages().items():
        path = FOLDER / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
