"""How a client opens a connection, and how each end of it notices that the other has vanished."""

import select
import socket
import ssl
from collections.abc import Iterable, Sequence
from typing import Any, Final

from beanpole.addresses import UNIX_PREFIX, split_address
from beanpole.client.interrupts import is_of_handler

# A node or client that vanished without closing its connection is detected after about two minutes
# of silence, and a firewall does not forget a connection that idles. The kernel by itself begins
# after two hours.
KEEPALIVE_IDLE_S: Final = 60
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 5


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """Connect to a host and port, or to the UNIX socket at the path `host` if the port is 0."""
    if port:
        connected = socket.create_connection((host, port), timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(connected)
        return connected
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(timeout_s)
    try:
        connected.connect(host)
    except OSError:
        connected.close()
        raise
    return connected


def dial_address(
    address: str, timeout_s: float, tls: ssl.SSLContext | None = None
) -> socket.socket:
    """Connect to an address of the form HOST:PORT, by TLS if there is a context, or unix:PATH."""
    return Hosts(address).dial(timeout_s, tls)


def places_of(found: Iterable[Sequence[Any]]) -> list[tuple[str, int]]:
    """Return the hosts and ports that `getaddrinfo` found, each once, in its order."""
    return list(dict.fromkeys((host_of(place), int(place[1])) for *_, place in found))


class Hosts:
    """The hosts behind one address, of the form HOST:PORT or unix:PATH.

    A name may have several, and a resolver may return them in another order each time. Those that
    were left come last, the longest ago first: a host that accepts connections and is silent would
    be taken again and again.

    Attributes:
        count: the number of hosts at the last `dial`, without those that did not accept; 1 before
            the first `dial`.
    """

    def __init__(self, address: str) -> None:
        self.count = 1
        self._address = address
        self._place = ("", 0)  # the host that was tried last
        self._left: dict[tuple[str, int], int] = {}
        self._leaves = 0

    def dial(self, timeout_s: float, tls: ssl.SSLContext | None = None) -> socket.socket:
        """Connect to the first host that accepts, by TLS if there is a context.

        Raises:
            OSError: the name is unknown, no host accepts, or the one that does refuses TLS.
        """
        if self._address.startswith(UNIX_PREFIX):
            return dial(self._address.removeprefix(UNIX_PREFIX), 0, timeout_s)
        name, port = split_address(self._address)
        places = places_of(socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        self.count = len(places)
        self._left = {place: self._left.get(place, 0) for place in places}
        connected = self._first(sorted(places, key=self._left.__getitem__), timeout_s)
        return connected if tls is None else encrypt(connected, tls, name)

    def leave(self) -> None:
        """Let the host that was tried last come after the others."""
        self._leaves += 1
        self._left[self._place] = self._leaves

    def _first(self, places: list[tuple[str, int]], timeout_s: float) -> socket.socket:
        for place in places[:-1]:
            self._place = place
            try:
                return dial(*place, timeout_s)
            except OSError as error:
                if is_of_handler(error):
                    raise
                self.leave()
                self.count -= 1
        self._place = places[-1]
        return dial(*self._place, timeout_s)


def encrypt(connected: socket.socket, tls: ssl.SSLContext, name: str) -> ssl.SSLSocket:
    """Return the connection with TLS; `name` must be in the certificate of the other side."""
    try:
        return tls.wrap_socket(connected, server_hostname=name)
    except BaseException:
        connected.close()
        raise


def host_of(place: Sequence[object]) -> str:
    """Return the host of a resolved address, with its zone: IPv6's link-local ones need that."""
    zone = place[3] if len(place) > 3 else 0
    return f"{place[0]}%{zone}" if zone else str(place[0])


def keep_alive(connected: socket.socket) -> None:
    """Let the kernel ask in silence whether the other end of a TCP connection is still there."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Clients run on other systems too, which may lack the options of Linux.
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def has_ended(connected: socket.socket, *, is_tls: bool) -> bool:
    """Whether the other end has closed a connection, or has sent bytes unasked.

    Bytes of TLS are not judged: they may be its own, such as those of its end. Systems other than
    Linux do not tell what comes behind them.
    """
    if not hasattr(select, "POLLRDHUP"):
        with connected.dup() as readable:  # the sockets of asyncio have no `recv`
            return is_at_end(readable, is_tls=is_tls)
    poll = select.poll()
    wanted = select.POLLRDHUP if is_tls else select.POLLRDHUP | select.POLLIN
    poll.register(connected.fileno(), wanted)  # a reset is always reported
    return bool(poll.poll(0))


def is_at_end(connected: socket.socket, *, is_tls: bool = False) -> bool:
    """Whether a connection has ended, or without TLS, whether its node has sent bytes unasked.

    Such bytes would be read as the reply to the next request. Nothing is read here.
    """
    connected.setblocking(False)
    try:
        return not (connected.recv(1, socket.MSG_PEEK) and is_tls)
    except BlockingIOError:
        return False
    except OSError as error:
        if is_of_handler(error):
            raise
        return True


def is_gone(connected: socket.socket) -> bool:
    """Whether the node has closed an idle connection, or has sent bytes unasked.

    The socket has no time-out afterwards: each request sets its own.
    """
    if not isinstance(connected, ssl.SSLSocket):
        return is_at_end(connected)
    try:
        connected.setblocking(False)
        connected.recv(1)  # TLS cannot peek, so a byte that was sent unasked is consumed
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError as error:
        if is_of_handler(error):
            raise
    return True
