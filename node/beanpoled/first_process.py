"""Signals before a program is loaded: SIGTERM as process 1, and those of a node that runs.

Process 1 is that of containers: the kernel drops SIGTERM if there is no handler. A daemon that is
still being loaded would miss it, begin to serve, and be killed in the middle of that; a command
would go on to its end. Everywhere else SIGTERM ends a process by default.
"""

import os
import signal
import threading
from types import FrameType
from typing import Any, Final

# A running node handles these, and they do not stop it. By default each ends a process.
RUNNING_SIGNALS: Final = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
_befores: dict[signal.Signals, Any] = {}


def end(number: int, _: FrameType | None) -> None:
    """End at once, with the status that a shell shows for a process that a signal ended."""
    os._exit(128 + number)


def ignore() -> None:
    """Ignore the signals of a node that runs, until it handles them; `restore` ends that."""
    for one in RUNNING_SIGNALS:
        _befores[one] = signal.signal(one, signal.SIG_IGN)


def restore() -> None:
    """Give the signals the meaning that they had before `ignore`: this will be no node."""
    for one, before in _befores.items():
        signal.signal(one, before)


# Python lets only the main thread set handlers.
if (
    os.getpid() == 1
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
):
    signal.signal(signal.SIGTERM, end)
