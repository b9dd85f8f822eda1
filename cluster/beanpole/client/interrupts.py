"""Errors that the handler of a signal raises, told from those of a connection.

A handler runs between any two steps of the program. If it raises an OSError, such as the
TimeoutError of an alarm, the program gets the error: it is no lost connection. Therefore each
clause of a synchronous client that notices a lost connection asks here.
"""

from contextlib import suppress
from types import TracebackType
from typing import final


def is_of_handler(error: BaseException) -> bool:
    """Whether a handler of a signal has raised an error.

    Only such a handler is called with the frame that it interrupts, which precedes its own in the
    traceback. An error of a socket has no such frame, whatever module implements the socket.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            if value is interrupted:
                return True
            if isinstance(value, tuple) and any(one is interrupted for one in value):
                return True  # of a handler that takes `*args`
    return False


@final
class Suppress(suppress):
    """Like `contextlib.suppress`, except for an error of the handler of a signal."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is not None and is_of_handler(error):
            return False
        return bool(super().__exit__(kind, error, trace))
