"""Capabilities of terminals, and texts that they may get. Drawing does not belong here."""

import os
from typing import TextIO


def moves_cursor(output: TextIO | None) -> bool:
    """Whether an output is a terminal in which a line can be replaced.

    The terminals of some editors and serial lines, which set TERM=dumb, show control sequences.

    Args:
        output: a stream; None if it is closed.
    """
    return output is not None and output.isatty() and os.environ.get("TERM") != "dumb"


def visible(text: str, kept: str = "") -> str:
    """Return a text from elsewhere with the control characters of terminals escaped: \\x1b.

    Args:
        text: the text.
        kept: characters that are not escaped.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char in kept or char.isprintable() else char.encode("unicode_escape").decode()
        for char in text
    )
