"""The clients of a node by their addresses: how many connections each has, how fast each may ask.

A client above its rate gets no error: it is not read until it may go on, as with a full outbox.
Connections themselves are in `clients` and `requests`. Clients at sockets of the machine (unix:)
have no address and are not counted.
"""

from typing import Final

from beanpole.addresses import UNIX, host_name
from beanpoled.config.clients import ClientConfig
from beanpoled.frontends.connection import Connection

# An address may save up this much of its rate while it is silent, so that bursts go through.
BURST_US: Final = 1_000_000
# Clients of one address beyond its limit that may wait for their refusal; more are closed at once.
REFUSED_MAX: Final = 8
# No chunk of a client has as many commands.
_UNLIMITED: Final = 1 << 30
# At a UNIX socket, or gone before its address was asked for.
_UNCOUNTED: Final = frozenset({b"", host_name(UNIX)})


class ClientHost:
    """One address.

    Attributes:
        name: the address without a port, as events name it.
        connections: how many it has.
        throttled: those that are not read because the address is above its rate; they take turns.
        paid_us: until when its commands are paid for; behind the present by what it has saved.
        turn: how many commands one of `throttled` may give now; 0 outside its turn.
    """

    __slots__ = ("connections", "name", "paid_us", "throttled", "turn")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.connections = 0
        self.throttled: dict[Connection, None] = {}
        self.paid_us = 0.0
        self.turn = 0


class ClientHosts:
    """All addresses with clients.

    Attributes:
        connections_max: of one address; 0: without limit.
        commands_per_second_max: of one address; 0: without limit.
        refused: connections above the limit, by protocol.
        throttled_total: how often a connection was not read because of the rate.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.connections_max = config.connections_per_address_max
        self.commands_per_second_max = config.commands_per_second_max
        self.refused: dict[str, int] = {}
        self.throttled_total = 0
        self._hosts: dict[bytes, ClientHost] = {}
        # When those lost their last connection that have none. They are kept until they have saved
        # all that they can: with a new connection for each burst a client would get around its
        # rate. The longest first.
        self._left_us: dict[ClientHost, int] = {}
        self._throttled: dict[ClientHost, None] = {}

    # --- connections ----------------------------------------------------------------------------

    def has_room(self, name: bytes, beyond: int = 0) -> bool:
        """Whether one more client of an address may come; `beyond`: above the limit, too."""
        if not self.connections_max:
            return True
        host = self._hosts.get(name)
        return host is None or host.connections < self.connections_max + beyond

    def count_refused(self, protocol: str) -> None:
        """A client was one too many of its address."""
        self.refused[protocol] = self.refused.get(protocol, 0) + 1

    def add(self, connection: Connection) -> None:
        """A client connected."""
        name = connection.client_host
        if name in _UNCOUNTED:
            return
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = ClientHost(name)
        self._left_us.pop(host, None)
        host.connections += 1

    def forget(self, connection: Connection, now_us: int) -> None:
        """A connection ended."""
        host = self._hosts.get(connection.client_host)
        if host is None:
            return
        self._wake(host, connection)
        host.connections -= 1
        if not host.connections:
            self._left_us[host] = now_us

    def connections_most(self) -> int:
        """How many connections the address with most of them has."""
        return max((host.connections for host in self._hosts.values()), default=0)

    # --- the rate -------------------------------------------------------------------------------

    def allowance(self, connection: Connection, now_us: int) -> int:
        """How many commands a connection may give now; asked once for all that it has sent."""
        host = self._hosts.get(connection.client_host)
        if host is None:
            return _UNLIMITED
        return host.turn if host.throttled else self._saved(host, now_us)

    def spend(self, connection: Connection, commands: int, now_us: int) -> None:
        """A connection gave commands that `allowance` granted."""
        host = self._hosts.get(connection.client_host)
        if host is not None:
            cost_us = commands * 1e6 / self.commands_per_second_max
            host.paid_us = max(host.paid_us, now_us - BURST_US) + cost_us

    def throttle(self, connection: Connection) -> None:
        """A connection has given all that it may: it is not read until it is its turn."""
        host = self._hosts.get(connection.client_host)
        if host is not None and not connection.throttled:
            connection.throttled = True
            host.throttled[connection] = None
            self._throttled[host] = None
            self.throttled_total += 1

    def run_periodic(self, now_us: int) -> None:
        """Let throttled connections go on as far as their addresses have saved; forget the gone."""
        for host in list(self._throttled):
            self._take_turns(host, now_us)
        while self._left_us:
            host = next(iter(self._left_us))
            if now_us - self._left_us[host] < BURST_US:
                break
            del self._left_us[host], self._hosts[host.name]

    def set_limits(self, config: ClientConfig) -> None:
        """Take other limits; connections above the new ones stay."""
        self.connections_max = config.connections_per_address_max
        self.commands_per_second_max = config.commands_per_second_max
        if not self.commands_per_second_max:
            for host in list(self._throttled):
                for connection in list(host.throttled):
                    self._wake(host, connection)
                    connection.room_again()

    def _take_turns(self, host: ClientHost, now_us: int) -> None:
        turn = max(1, self._saved(host, now_us) // len(host.throttled))
        while host.throttled and self._saved(host, now_us):
            connection = next(iter(host.throttled))
            self._wake(host, connection)
            host.turn = turn
            connection.room_again()  # if it has more to say, it is the last in the row now
            host.turn = 0

    def _saved(self, host: ClientHost, now_us: int) -> int:
        """How many commands an address may give now."""
        saved_us = min(now_us - host.paid_us, BURST_US)
        return max(0, int(saved_us * self.commands_per_second_max / 1e6))

    def _wake(self, host: ClientHost, connection: Connection) -> None:
        connection.throttled = False
        host.throttled.pop(connection, None)
        if not host.throttled:
            self._throttled.pop(host, None)
