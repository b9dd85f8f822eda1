"""The outputs of commands: the encoding of standard output, files in errors, signals.

Tables are laid out in `columns`, and live lines in `screen`; closed pipes are in
`beanpole.client.printing`.
"""

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from beanpole.client.exiting import os_error_words
from beanpoled import first_process


def escape_unwritable() -> None:
    """Write what the encoding of standard output lacks as an escape: `caf\\xe9` in ASCII.

    One body in a list would else end the list. JSON is ASCII anyway, and bodies alone are bytes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def is_within(path: str, directory: str) -> bool:
    """Whether a path is a directory, or lies inside of it, whatever links are on the way."""
    whole = os.path.realpath(directory)
    return os.path.commonpath((os.path.realpath(path), whole)) == whole


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Name the file in errors of the system: those of a read or a write do not.

    Args:
        path: what the block reads or writes.

    Raises:
        OSError: in the place of any other one; its only argument is the message.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # it has a message of ours
            raise
        raise OSError(os_error_words(error, path)) from error


class _Ended(BaseException):
    """A signal ends the process, once the files of the command are removed."""


@contextlib.contextmanager
def removing() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by an exception, as Ctrl-C does; then they end us.

    Without that they end a process at once, and what it would remove stays.
    """

    def end(number: int, _: FrameType | None) -> None:
        for one in befores:  # a second signal would interrupt the removal
            signal.signal(one, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise _Ended(number)

    # A signal that `nohup` ignores stays ignored. Python lets only the main thread handle signals,
    # and a program may run the command in another one.
    is_main = threading.current_thread() is threading.main_thread()
    usual = (signal.SIG_DFL, signal.default_int_handler, first_process.end)
    befores = {
        number: before
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if is_main and (before := signal.getsignal(number)) in usual
    }
    for number in befores:
        signal.signal(number, end)
    ended = 0
    try:
        yield
    except _Ended as error:
        (ended,) = error.args
        raise
    finally:
        for number, before in befores.items():
            signal.signal(number, before)
        if ended:
            signal.raise_signal(ended)
            os._exit(128 + ended)  # process 1, for which the kernel drops a signal by default
