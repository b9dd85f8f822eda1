"""Bystanders: clients that put a job and delete it, over and over, beside what is measured.

They run in a process of their own, so that waits for the benchmark's interpreter do not count.
"""

import multiprocessing
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection as Pipe
from typing import Final

from bench.processes import BenchError

REPLY_S: Final = 120.0
ENDED: Final = "a bystander has ended"
# The pauses between two jobs: where only the longest wait is asked for, and where all puts count.
PAUSE_S: Final = 0.01
SHORT_PAUSE_S: Final = 0.005


class Connection:
    """A plain beanstalk client."""

    def __init__(self, address: str, tube: bytes = b"bystanders") -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), REPLY_S)
        self._file = self.socket.makefile("rb")
        self.ask(b"use %b\r\n" % tube)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """Return the next line from the node."""
        line = self._file.readline()
        if not line:
            raise ConnectionError("closed by the node")
        return line

    def ask(self, data: bytes) -> bytes:
        self.send(data)
        return self.line()

    def ready(self) -> int:
        """Return how many jobs of the used tube are ready."""
        tube = self.ask(b"list-tube-used\r\n").split()[1]
        size = int(self.ask(b"stats-tube %b\r\n" % tube).split()[1])
        lines = self._file.read(size + 2).splitlines()
        (found,) = [line for line in lines if line.startswith(b"current-jobs-ready:")]
        return int(found.split()[1])

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@contextmanager
def bystander(address: str) -> "Iterator[Waits]":
    """Run a client that puts and deletes continuously; yield a callable that reports its puts."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_put_always, args=(address, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Waits(ours)
    finally:
        ours.close()
        process.join()


class Waits:
    """Asks a bystander how long its puts took."""

    def __init__(self, pipe: "Pipe[None, list[float]]") -> None:
        self._pipe = pipe

    def __call__(self) -> list[float]:
        """Return the durations of all puts since the last call; BenchError if it has ended."""
        try:
            self._pipe.send(None)
            return self._pipe.recv()
        except (EOFError, OSError):
            raise BenchError(ENDED) from None


def p99_ms(waits_s: list[float]) -> float:
    """Return the 99th percentile in milliseconds."""
    return statistics.quantiles(waits_s, n=100)[98] * 1e3 if len(waits_s) > 1 else 0.0


def _put_always(address: str, pipe: "Pipe[list[float], None]") -> None:
    waits_s: list[float] = []
    ends = threading.Event()

    def work() -> None:
        client = Connection(address)
        while not ends.wait(SHORT_PAUSE_S):
            begun_s = time.monotonic()
            word, number = client.ask(b"put 0 0 60 1\r\nx\r\n").split()
            waits_s.append(time.monotonic() - begun_s)
            assert word == b"INSERTED", word
            client.ask(b"delete %b\r\n" % number)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    with suppress(EOFError):
        while True:
            pipe.recv()
            if not thread.is_alive():
                return  # it printed the reason; fewer puts would look like quick ones
            count = len(waits_s)
            pipe.send(waits_s[:count])
            del waits_s[:count]
    ends.set()
    thread.join()


class Bystanders:
    """One client at each node; the longest wait for an answer counts."""

    def __init__(self, addresses: list[str]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_stand_by, args=(addresses, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def take(self) -> tuple[float, int]:
        """Return (longest wait in ms since the last call, number of closed connections).

        Raises:
            BenchError: a bystander has ended.
        """
        try:
            self._pipe.send(None)
            longest_ms, closed = self._pipe.recv()
        except (EOFError, OSError):
            raise BenchError(ENDED) from None
        return longest_ms, closed

    def stop(self) -> None:
        self._pipe.close()
        self._process.join()


def _stand_by(addresses: list[str], pipe: "Pipe[tuple[float, int], None]") -> None:
    """Run the bystanders, and report at each message from the pipe, until it closes."""
    bystanders = [Bystander(address) for address in addresses]
    with suppress(EOFError):
        while True:
            pipe.recv()
            if not all(one.is_alive for one in bystanders):
                return  # it printed the reason; its waits would be missing
            longest_s = max(one.take() for one in bystanders)
            pipe.send((longest_s * 1e3, sum(one.closed for one in bystanders)))


class Bystander:
    """Puts a job and deletes it at one node, in a thread that ends with its process."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._longest_s = 0.0
        self._asked_s: float | None = None  # when the answer under way was asked for
        self.closed = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def take(self) -> float:
        """Return the longest wait for an answer since the last call, in seconds.

        An answer that has not come yet counts for as long as it has been missing.
        """
        found, self._longest_s = self._longest_s, 0.0
        asked_s = self._asked_s
        return found if asked_s is None else max(found, time.monotonic() - asked_s)

    def _run(self) -> None:
        connection = Connection(self._address)
        while True:
            time.sleep(PAUSE_S)
            try:
                word, number = self._ask(connection, b"put 0 0 60 1\r\nx\r\n").split()
                assert word == b"INSERTED", word
                self._ask(connection, b"delete %b\r\n" % number)
            except OSError:
                self.closed += 1
                connection = Connection(self._address)

    def _ask(self, connection: Connection, data: bytes) -> bytes:
        self._asked_s = begun_s = time.monotonic()
        try:
            return connection.ask(data)
        finally:
            self._longest_s = max(self._longest_s, time.monotonic() - begun_s)
            self._asked_s = None
