"""Strangers at ports of gRPC: they know the protocol, but no token, secret or certificate.

Belongs here: connections that take places, and come again when they lose one. The tests check
the nodes meanwhile.
"""

import selectors
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from beanpole.addresses import split_address

# The first bytes of a client of HTTP/2, with empty settings.
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
# New connections to each port in each turn, and the time of a turn: at most 200 in a second, which
# leaves the cores to the nodes.
EACH_TURN: Final = 4
TURN_S: Final = 0.02


class Strangers:
    """As many connections as asked for to each of some ports, in a thread.

    Attributes:
        came: the number of connections that were opened, by port.
    """

    def __init__(self, addresses: Sequence[str], count: int, speaks: bool = True) -> None:
        """Prepare them; `speaks`: they send what a client of HTTP/2 sends first, else nothing."""
        self._ports = [split_address(address) for address in addresses]
        self._count = count
        self._first = PREFACE if speaks else b""
        self._open: Counter[tuple[str, int]] = Counter()
        self._selector = selectors.DefaultSelector()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.came: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator["Strangers"]:
        """Let them come, and come again, until the end."""
        self._thread.start()
        try:
            yield self
        finally:
            self._end.set()
            self._thread.join()

    def have_filled(self, count: int) -> bool:
        """Whether so many came to each port; fails if they come no more."""
        assert self._thread.is_alive(), "the strangers have left"
        return all(self.came[f"{host}:{port}"] >= count for host, port in self._ports)

    def _run(self) -> None:
        try:
            while not self._end.wait(TURN_S):
                for port in self._ports:
                    for _ in range(min(EACH_TURN, self._count - self._open[port])):
                        self._come(port)
                for key, _ in self._selector.select(0):
                    self._heard(key.fileobj, key.data)
        finally:
            for key in list(self._selector.get_map().values()):
                self._left(key.fileobj, key.data)
            self._selector.close()

    def _come(self, port: tuple[str, int]) -> None:
        try:
            stranger = socket.create_connection(port, 1.0)
        except OSError:
            return
        stranger.setblocking(False)
        self._selector.register(stranger, selectors.EVENT_READ, port)
        self._open[port] += 1
        self.came["{}:{}".format(*port)] += 1
        try:
            stranger.send(self._first)
        except OSError:
            self._left(stranger, port)

    def _heard(self, stranger: object, port: tuple[str, int]) -> None:
        assert isinstance(stranger, socket.socket)
        try:
            ended = not stranger.recv(65536)
        except OSError:
            ended = True
        if ended:
            self._left(stranger, port)

    def _left(self, stranger: object, port: tuple[str, int]) -> None:
        assert isinstance(stranger, socket.socket)
        self._selector.unregister(stranger)
        stranger.close()
        self._open[port] -= 1
