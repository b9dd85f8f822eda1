"""The exit statuses of `beanpole`; 0: the command is done."""

from typing import Final

from beanpole.client.exiting import EXIT_NO_ANSWER, EXIT_REFUSED

__all__ = ["EXIT_NO", "EXIT_NO_ANSWER", "EXIT_REFUSED", "EXIT_WORDS"]

# The answer is no: not found, nothing there, a node or a job that is not well.
EXIT_NO: Final = 1

EXIT_WORDS: Final = (
    "Exit status: 0 done; 1 the answer is no (not found, nothing there); 2 the command is wrong; "
    "3 no node answers, it refuses, or the outcome is unknown; 130 ended by Ctrl-C."
)
