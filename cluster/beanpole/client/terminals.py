"""Capabilities of terminals. Drawing does not belong here."""

import os
from typing import TextIO


def moves_cursor(output: TextIO | None) -> bool:
    """Whether an output is a terminal in which a line can be replaced.

    The terminals of some editors and serial lines, which set TERM=dumb, show control sequences.

    Args:
        output: a stream; None if it is closed.
    """
    return output is not None and output.isatty() and os.environ.get("TERM") != "dumb"
