"""A watch over work in the loop's own thread, which nothing in the loop can interrupt."""

import math
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from beanpole.storage.threads import start_daemon

# The watch counts such steps of its own, so that a pause of the process is not mistaken for one of
# the work.
STEP_S: Final = 0.1


class Watch:
    """Calls `give_up` once, in a thread of its own, when no `beat` has come for a time.

    After `end` it is never called, and `end` waits while it runs: of the work and a `give_up` that
    both log how the process ends, only one does.
    """

    def __init__(self, within_s: float, give_up: Callable[[], None]) -> None:
        self._steps = max(1, math.ceil(within_s / STEP_S))
        self._left = self._steps
        self._give_up = give_up
        self._lock = threading.Lock()
        self._ended = threading.Event()
        with suppress(OSError):  # without a thread, the work is unwatched
            start_daemon(self._run, "watch")

    def beat(self) -> None:
        """Note that the work goes on."""
        self._left = self._steps

    def end(self) -> None:
        """End the watch: the work is done."""
        with self._lock:
            self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(STEP_S):
            # A beat that comes meanwhile may be lost; the next one is not.
            self._left -= 1
            if self._left <= 0:
                with self._lock:
                    if not self._ended.is_set():
                        self._give_up()
                return
