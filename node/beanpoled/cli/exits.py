"""The exit statuses of `beanpole`; 0: the command is done."""

import json
import sys
from typing import Any, Final

from beanpole.client.exiting import EXIT_NO_ANSWER, EXIT_REFUSED
from beanpole.client.printing import print_lines
from beanpole.client.terminals import visible

__all__ = ["EXIT_NO", "EXIT_NO_ANSWER", "EXIT_REFUSED", "EXIT_WORDS", "say_done", "say_no"]

# The answer is no: not found, nothing there, a node or a job that is not well.
EXIT_NO: Final = 1

EXIT_WORDS: Final = (
    "Exit status: 0 done; 1 the answer is no (not found, nothing there); 2 the command is wrong; "
    "3 no node answers, it refuses, or the outcome is unknown; 130 ended by Ctrl-C."
)


def say_done(words: str, plain: dict[str, Any], as_json: bool) -> int:
    """Print the result of a change, in words or as JSON, and return its status."""
    # Names of queues and users are in the words; an escape in one would steer the terminal.
    print_lines((json.dumps(plain) if as_json else visible(words),))
    return 0


def say_no(words: object, as_json: bool) -> int:
    """Print why the answer is no, and return its status.

    With --json programs read standard output, and find nothing there: the words are no JSON.
    """
    shown = visible(str(words), "\n")
    if as_json:
        print(shown, file=sys.stderr)
    else:
        print_lines((shown,))
    return EXIT_NO
