"""SIGINT and SIGTERM for a command that ends between two steps, and in time."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from beanpoled.cli.exits import EXIT_NO_ANSWER

# The most that a step and the orderly end may take after a signal. Below the times after which
# supervisors kill: 30 s of Kubernetes, 90 s of systemd.
END_MAX_S: Final = 25.0


@contextmanager
def stopped_by_signals(ended: threading.Event, end_max_s: float = END_MAX_S) -> Iterator[list[int]]:
    """Let SIGINT and SIGTERM end the work between two batches, not in the middle of a file.

    Python runs handlers between two of its own steps, not while a library waits for a disk or a
    store that hangs. So a thread ends the process if the work has not ended in time.

    Args:
        ended: is set by a signal.
        end_max_s: how long the work may go on after a signal.

    Yields:
        The numbers of the signals in the order in which they come.
    """
    signals: list[int] = []
    done = threading.Event()

    def stop(number: int, _: FrameType | None) -> None:
        signals.append(number)
        ended.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    told, telling = os.pipe()
    os.set_blocking(telling, False)
    guard = threading.Thread(target=_end_in_time, args=(told, done, end_max_s), daemon=True)
    guard.start()
    fd_before = signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield signals
    finally:
        done.set()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
        signal.set_wakeup_fd(fd_before)
        os.close(telling)
        guard.join()
        os.close(told)


def _end_in_time(told: int, done: threading.Event, end_max_s: float) -> None:
    # Other signals that have a handler in Python are written there, too.
    while number := os.read(told, 1):
        if number[0] in (signal.SIGINT, signal.SIGTERM):
            break
    if number and not done.wait(end_max_s):
        sys.stderr.write(f"beanpole: broken off: it has not ended {end_max_s:g} s after a signal\n")
        sys.stderr.flush()
        os._exit(EXIT_NO_ANSWER)
