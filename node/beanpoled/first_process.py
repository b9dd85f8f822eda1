"""SIGTERM where this is process 1, as in containers: the kernel drops it if there is no handler.

A daemon that is still being loaded would miss it, begin to serve, and be killed in the middle of
that; a command would go on to its end. Everywhere else SIGTERM ends a process by default.
"""

import os
import signal
import threading
from types import FrameType


def end(number: int, _: FrameType | None) -> None:
    """End at once, with the status that a shell shows for a process that a signal ended."""
    os._exit(128 + number)


# Python lets only the main thread set handlers.
if (
    os.getpid() == 1
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
):
    signal.signal(signal.SIGTERM, end)
