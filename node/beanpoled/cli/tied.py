"""Run a program that gets a signal when its parent ends: `python tied.py PARENT SIGNAL PROGRAM...`.

In place of `preexec_fn` of `subprocess`, which forks: a child forked beside threads of gRPC may
never reach its program. Only the standard library belongs here, because this is run as a script.
"""

import ctypes
import os
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tied(command: Sequence[str], number: int) -> list[str]:
    """Return the command line of a program that is tied to this process.

    Args:
        command: the program's path, and its arguments.
        number: of the signal.
    """
    return [sys.executable, "-IS", __file__, str(os.getpid()), str(int(number)), *command]


def main() -> None:
    """Become the program."""
    parent, number, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number))
    if os.getppid() != int(parent):
        sys.exit("the parent has ended already")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
