"""A handler of a signal that raises an OSError ends a command of the synchronous clients."""

import functools
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from beanpole.client import blocking, dialing, workq
from tests.unit.client.scripted import Node

Handler = Callable[[int, FrameType | None], Any]
USED = (b"list-tube-used\r\n", b"USING default\r\n")


def time_out(_: int, frame: FrameType | None) -> None:
    raise TimeoutError("my time-out")


def fail(*_: object) -> None:
    raise OSError("my device")


def fail_deeper(number: int, frame: FrameType | None) -> None:
    fail()


def fail_for(name: str, number: int, frame: FrameType | None) -> None:
    raise OSError(name)


class Handling:
    def __call__(self, number: int, frame: FrameType | None) -> None:
        raise ConnectionResetError("my connection")


HANDLERS: list[Handler] = [
    time_out,
    fail,
    fail_deeper,
    functools.partial(fail_for, "my name"),
    Handling(),
]


@pytest.fixture(params=HANDLERS)
def handler(request: pytest.FixtureRequest) -> Iterator[Handler]:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield request.param
    signal.signal(signal.SIGUSR1, before)


def interrupting(listener: socket.socket, wanted: bytes) -> None:
    """Take a connection, and interrupt the client once it waits for the reply to a request."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(60)
        assert connection.recv(len(wanted), socket.MSG_WAITALL) == wanted
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        assert connection.recv(1) == b""  # the client leaves


@pytest.mark.usefixtures("handler")
def test_the_program_gets_the_error_of_its_handler() -> None:
    node = Node([USED])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = b"reserve-with-timeout 30\r\n"
        thread = threading.Thread(target=interrupting, args=(listener, asked))
        thread.start()
        first = f"127.0.0.1:{listener.getsockname()[1]}"
        with blocking.Client([first, node.address], spread=False) as client:
            with pytest.raises(OSError, match=r"^my ") as caught:
                client.reserve()
            assert not isinstance(caught.value, blocking.MayBeDoneError)
            thread.join(60)
            assert not thread.is_alive()
            listener.close()
            assert client.using() == "default"
    node.finish()


@pytest.mark.usefixtures("handler")
def test_so_does_the_program_of_a_client_of_another_protocol() -> None:
    """A time-out was an outcome that is unknown, and the request was repeated elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        asked = b"lease q 60000\r\n"
        thread = threading.Thread(target=interrupting, args=(listener, asked))
        thread.start()
        with workq.Client([f"127.0.0.1:{listener.getsockname()[1]}"]) as client:
            with pytest.raises(OSError, match=r"^my "):
                client.lease([b"q"])
            thread.join(60)
            assert not thread.is_alive()


class Interrupted(socket.socket):
    """A socket of which each read is interrupted."""

    def recv(self, *_: int) -> bytes:
        signal.raise_signal(signal.SIGUSR1)
        return b""


@pytest.mark.usefixtures("handler")
def test_an_error_of_a_handler_is_no_end_of_a_connection() -> None:
    with Interrupted() as connected, pytest.raises(OSError, match=r"^my "):
        dialing.is_at_end(connected)
