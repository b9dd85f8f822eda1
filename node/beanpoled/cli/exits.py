"""The exit statuses of `beanpole`; 0: the command is done."""

from typing import Final

from beanpole.client import exiting

# The answer is no: not found, nothing there, a node or a job that is not well.
EXIT_NO: Final = 1
# The request is wrong.
EXIT_REFUSED: Final = exiting.EXIT_REFUSED
# No node answers, it refuses, or the outcome is unknown.
EXIT_NO_ANSWER: Final = exiting.EXIT_NO_ANSWER

EXIT_WORDS: Final = (
    "Exit status: 0 done; 1 the answer is no (not found, nothing there); 2 what was asked for is "
    "wrong; 3 no node answers, it refuses, or the outcome is unknown; 130 ended by Ctrl-C."
)
