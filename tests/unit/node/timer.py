"""A call that the host of the stage makes when a test lets time pass."""

from collections.abc import Callable


class Timer:
    """A call that is due later."""

    def __init__(self, due_us: int, callback: Callable[[], None]) -> None:
        self.due_us = due_us
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call."""
        self.cancelled = True
