"""The connections of the gRPC port: strangers that hold its places make room for newcomers.

gRPC has no API to list its connections or to close one, and closes those above its limit at once,
whoever comes. So the node looks at gRPC's sockets from outside, keeps places free, and ends a
connection as its other end could: by a shutdown of the socket. Which ones end is in `crowding`.

Only Linux shows which sockets are gRPC's; elsewhere gRPC's limit is all there is.
"""

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from urllib.parse import unquote

from beanpole.addresses import address_of, host_name, host_of_peer
from beanpoled.rpc.crowding import Connection, surplus

# Connections of the port, each of which takes a file descriptor before anything is known of its
# caller: a node without descriptors cannot write its log. More are closed by gRPC at once.
CALLERS_MAX: Final = 256
# As many are left at each look. The others are places for callers that come until the next one:
# 64 in 50 ms are 1,280 in a second, more than a node can take up beside its work.
KEPT: Final = CALLERS_MAX - 64
LOOK_S: Final = 0.05

_DESCRIPTORS: Final = "/proc/self/fd"
_POLLER: Final = "anon_inode:[eventpoll]"
# A line of a poller's fdinfo: a descriptor that it watches, and the inode behind it.
_POLLED: Final = re.compile(rb"^tfd: +(\d+) .* ino:([0-9a-f]+)", re.MULTILINE)

_FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
# A descriptor with its inode: the number alone is another connection's after a while.
Socket = tuple[int, bytes]
Name = tuple[bytes, int]


class Door:
    """The connections of one gRPC server."""

    def __init__(self) -> None:
        self._port = 0
        self._others: list[str] = []  # pollers that listened at the port before gRPC did
        self._pollers: list[str] = []
        # None: a socket of gRPC that is none of the server's connections.
        self._sockets: dict[Socket, Connection | None] = {}
        self._names: dict[Name, Connection] = {}

    def prepare(self, port: int) -> None:
        """Call this before gRPC listens at a port; 0: at any one.

        Another address of this machine may have a listener at the port: that of HTTP, in the poller
        of the node's clients and links.
        """
        self._others = self._listening(port) if port else []

    def open(self, port: int) -> None:
        """Begin to know the connections of a port, at which gRPC listens by now."""
        self._pollers = [found for found in self._listening(port) if found not in self._others]

    def _listening(self, port: int) -> list[str]:
        """Return the pollers of a port."""
        self._port = port
        with suppress(OSError):
            return [found for found in _pollers() if self._listens(found)]
        return []

    def prove(self, context: Any) -> None:
        """Note that the caller of the running call has proved itself.

        Its connection is one of the last to be closed, above all while the call is in progress.
        """
        if not self._pollers:
            return
        peer: str = context.peer()
        name = (host_of_peer(peer), int(unquote(peer).rpartition(":")[2] or 0))
        if name not in self._names:
            self._look()  # it is so new
        connection, task = self._names.get(name), asyncio.current_task()
        if connection is None or task is None:
            return
        connection.proved = True
        connection.used_s = asyncio.get_running_loop().time()
        connection.calls += 1
        task.add_done_callback(lambda _: _ended(connection))

    async def keep(self) -> None:
        """Keep places free, until cancelled."""
        while self._pollers:
            self.make_room()
            await asyncio.sleep(LOOK_S)

    def make_room(self) -> None:
        """Close the connections above KEPT."""
        self._look()
        # Not those of `_names`: one name may have a connection to each address of this machine.
        connections = [one for one in self._sockets.values() if one is not None]
        closed = set(surplus(connections, KEPT))
        for (number, _), connection in self._sockets.items():
            if connection is not None and connection in closed:
                self._close(number, connection)

    def _look(self) -> None:
        """Learn which connections there are now."""
        now: list[Socket] = []
        try:
            for path in self._pollers:
                now += _polled(path)
        except OSError:
            return  # no descriptor is free; proved connections must not be forgotten for that
        for gone in self._sockets.keys() - now:
            connection = self._sockets.pop(gone)
            if connection is not None and self._names.get(connection.name) is connection:
                del self._names[connection.name]
        for one in now:
            if one not in self._sockets:
                # No socket, the listener, it ends just now, or no descriptor is free: the next
                # look asks again.
                with suppress(OSError):
                    self._add(one)

    def _add(self, one: Socket) -> None:
        with _shared(one[0]) as its:
            name = self._name(its)
        if name is None:
            self._sockets[one] = None
        else:
            now_s = asyncio.get_running_loop().time()
            self._sockets[one] = self._names[name] = Connection(name, address_of(name[0]), now_s)

    def _close(self, number: int, connection: Connection) -> None:
        with suppress(OSError), _shared(number) as one:
            if self._name(one) == connection.name:  # the descriptor may be another's by now
                one.shutdown(socket.SHUT_RDWR)

    def _name(self, one: socket.socket) -> Name | None:
        """Return the name of a connection; None if it is none of the server's.

        Raises:
            OSError: it has no other end.
        """
        if not self._is_of_port(one):
            return None
        host, port = one.getpeername()[:2]
        return host_name(host), port

    def _is_of_port(self, one: socket.socket) -> bool:
        return one.family in _FAMILIES and one.getsockname()[1] == self._port

    def _listens(self, path: str) -> bool:
        """Whether a poller is the one of the port."""
        with suppress(OSError):  # the poller is closed
            for number, _ in _polled(path):
                with suppress(OSError), _shared(number) as one:
                    if self._is_of_port(one):
                        return True
        return False


def _ended(connection: Connection) -> None:
    connection.calls -= 1
    connection.used_s = asyncio.get_running_loop().time()


def _pollers() -> Iterator[str]:
    """Yield the fdinfo files of the pollers of this process."""
    for number in os.listdir(_DESCRIPTORS):
        with suppress(OSError):  # the one of the list itself is closed
            if os.readlink(f"{_DESCRIPTORS}/{number}") == _POLLER:
                yield f"/proc/self/fdinfo/{number}"


def _polled(path: str) -> list[Socket]:
    with open(path, "rb") as file:
        return [(int(number), inode) for number, inode in _POLLED.findall(file.read())]


@contextmanager
def _shared(number: int) -> Iterator[socket.socket]:
    """Lend a socket of gRPC, by a descriptor of its own: gRPC may close it at any moment."""
    copy = os.dup(number)
    try:
        one = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with one:
        yield one
