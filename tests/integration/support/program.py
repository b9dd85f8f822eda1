"""The program `beanpole` in the process of the tests, because starting one takes half a second.

Belongs here: its outputs and its exit status, in any thread. The tests check what it prints.
Commands that handle signals, or are to be killed, are processes: `commands.Commands.begin`.
"""

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from beanpoled.cli import main


class Done(NamedTuple):
    """The status and the outputs of a command that ended."""

    status: int
    said: str
    errors: str


class _PerThread:
    """A standard stream that each thread can replace for itself."""

    def __init__(self, others: Any) -> None:
        self._others = others
        self._own = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._own, "stream", self._others), name)

    @contextmanager
    def own(self) -> Iterator[io.BytesIO]:
        data = io.BytesIO()
        # The command must not close it, because its contents are read afterwards.
        self._own.stream = io.TextIOWrapper(data, "utf-8", write_through=True)
        try:
            yield data
        finally:
            del self._own.stream


@contextmanager
def outputs() -> Iterator[None]:
    """Allow commands to run in several threads at once while the context lasts."""
    output, errors = _PerThread(sys.stdout), _PerThread(sys.stderr)
    with mock.patch.object(sys, "stdout", output), mock.patch.object(sys, "stderr", errors):
        yield


def ran(*words: object) -> Done:
    """Run a command to its end. Several at once need `outputs`."""
    if not isinstance(sys.stdout, _PerThread):
        with outputs():
            return ran(*words)
    errors: Any = sys.stderr
    with sys.stdout.own() as said, errors.own() as complained:
        try:
            status = main([str(word) for word in words])
        except SystemExit as error:  # raised by argparse
            status = error.code if isinstance(error.code, int) else 1
        return Done(status, said.getvalue().decode(), complained.getvalue().decode())
