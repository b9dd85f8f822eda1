"""The clients of a node by their addresses: how many connections each has.

How fast an address may ask is in `client_rates`; connections themselves are in `clients` and
`requests`. Clients at sockets of the machine (unix:) have no address and are not counted.
"""

from typing import Final

from beanpole.addresses import UNIX, host_name
from beanpoled.config.clients import ClientConfig
from beanpoled.frontends.client_rates import BURST_US, Meter
from beanpoled.frontends.connection import Connection

# Clients of one address beyond its limit that may wait for their refusal; more are closed at once.
REFUSED_MAX: Final = 8
# At a UNIX socket, or gone before its address was asked for.
_UNCOUNTED: Final = frozenset({b"", host_name(UNIX)})


class ClientHost(Meter):
    """One address.

    Attributes:
        name: the address without a port, as events name it.
        connections: how many it has.
    """

    __slots__ = ("connections", "name")

    def __init__(self, name: bytes, rate: int) -> None:
        super().__init__(rate)
        self.name = name
        self.connections = 0


class ClientHosts:
    """All addresses with clients.

    Attributes:
        connections_max: of one address; 0: without limit.
        refused: connections above the limit, by protocol.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.connections_max = config.connections_per_address_max
        self._rate = config.commands_per_second_max
        self.refused: dict[str, int] = {}
        self._hosts: dict[bytes, ClientHost] = {}
        # When those lost their last connection that have none. They are kept until they have saved
        # all that they can: with a new connection for each burst a client would get around its
        # rate. The longest first.
        self._left_us: dict[ClientHost, int] = {}

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
            host = self._hosts[name] = ClientHost(name, self._rate)
        self._left_us.pop(host, None)
        host.connections += 1

    def forget(self, connection: Connection, now_us: int) -> None:
        """A connection ended."""
        host = self._hosts.get(connection.client_host)
        if host is None:
            return
        host.connections -= 1
        if not host.connections:
            self._left_us[host] = now_us

    def connections_most(self) -> int:
        """How many connections the address with most of them has."""
        return max((host.connections for host in self._hosts.values()), default=0)

    def find(self, name: bytes) -> ClientHost | None:
        """Return an address that has clients, or had some lately; none that is not counted."""
        return self._hosts.get(name)

    def run_periodic(self, now_us: int) -> None:
        """Forget the addresses without clients that have saved all that they can."""
        while self._left_us:
            host = next(iter(self._left_us))
            if now_us - self._left_us[host] < BURST_US:
                break
            del self._left_us[host], self._hosts[host.name]

    def set_limits(self, config: ClientConfig) -> None:
        """Take other limits; connections above the new ones stay."""
        self.connections_max = config.connections_per_address_max
        self._rate = config.commands_per_second_max
        for host in self._hosts.values():
            host.rate = self._rate
