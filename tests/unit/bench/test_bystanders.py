"""Bystanders of the benchmark: no answer is a long wait, and their end is no silence."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest

from bench.bystanders import Bystanders, bystander
from bench.processes import BenchError
from tests.integration.support.waiting import wait_until

TIMEOUT_S: Final = 30.0


class Server:
    """Answers the lines of a client with the given ones, and then no more."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):  # the test is over, or the client has ended
            client, _ = self._listener.accept()
            with client, client.makefile("rb") as lines:
                for answer in self._answers:
                    lines.readline()
                    client.sendall(answer)
                while lines.readline():
                    pass

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()


@pytest.fixture
def silent() -> Iterator[Server]:
    server = Server(b"USING bystanders\r\n")
    yield server
    server.close()


@pytest.fixture
def refusing() -> Iterator[Server]:
    server = Server(b"USING bystanders\r\n", b"OUT_OF_MEMORY\r\n")
    yield server
    server.close()


@pytest.mark.slow
def test_an_answer_that_does_not_come_is_a_wait_that_grows(silent: Server) -> None:
    several = Bystanders([silent.address])
    try:
        first_ms = wait_until(lambda: several.take()[0], TIMEOUT_S, "the bystander waits")
        wait_until(lambda: several.take()[0] > first_ms, TIMEOUT_S, "it waits for longer")
    finally:
        several.stop()


@pytest.mark.slow
def test_a_refused_put_ends_the_measurement(refusing: Server) -> None:
    several = Bystanders([refusing.address])
    try:
        with pytest.raises(BenchError, match="has ended"):
            wait_until(lambda: several.take()[0] < 0, TIMEOUT_S, "an error")
    finally:
        several.stop()


@pytest.mark.slow
def test_a_refused_put_is_no_quick_one(refusing: Server) -> None:
    with (
        bystander(refusing.address) as waits,
        pytest.raises(BenchError, match="has ended"),
    ):
        wait_until(lambda: waits() is None, TIMEOUT_S, "an error")
