"""The clients of a node by address: the number of connections of each address.

The addresses of a network of IPv6 count as one: a host usually has all of them.

Command rates are in `client_rates`; connections themselves are in `clients` and `requests`.
Clients at UNIX sockets (unix:) have no address and are not counted.
"""

from collections import OrderedDict
from typing import Final

from beanpole.addresses import UNIX, host_name, network_of_host
from beanpoled.config.clients import ClientConfig
from beanpoled.frontends.client_rates import BURST_US, Meter
from beanpoled.frontends.connection import Connection

# Clients of one address beyond its limit that may wait for their refusal; more are closed at once.
REFUSED_MAX: Final = 8
# Clients at a UNIX socket, or disconnected before their address was read.
_UNCOUNTED: Final = frozenset({b"", host_name(UNIX)})


class ClientHost(Meter):
    """One address.

    Attributes:
        network: the address without a port, or its network of IPv6.
        connections: the number of its open connections.
    """

    __slots__ = ("connections", "network")

    def __init__(self, network: bytes, rate: int) -> None:
        super().__init__(rate)
        self.network = network
        self.connections = 0


class ClientHosts:
    """All addresses that have clients.

    Attributes:
        connections_max: the limit of each address; 0: no limit.
        refused: the number of connections above the limit, by protocol.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.connections_max = config.connections_per_address_max
        self._rate = config.commands_per_second_max
        self.refused: dict[str, int] = {}
        self._hosts: dict[bytes, ClientHost] = {}
        # Addresses without connections, and when each lost its last one; the oldest first. A meter
        # is kept until its allowance is full again: otherwise a client could evade its rate with a
        # new connection for each burst.
        self._left_us: OrderedDict[ClientHost, int] = OrderedDict()

    # --- connections ----------------------------------------------------------------------------

    def has_room(self, name: bytes, beyond: int = 0) -> bool:
        """Whether an address may have one more client; `beyond`: the allowance above the limit."""
        if not self.connections_max:
            return True
        host = self._hosts.get(network_of_host(name))
        return host is None or host.connections < self.connections_max + beyond

    def count_refused(self, protocol: str) -> None:
        """Count a client above the limit of its address."""
        self.refused[protocol] = self.refused.get(protocol, 0) + 1

    def add(self, connection: Connection) -> None:
        """Count a new connection."""
        if connection.client_host in _UNCOUNTED:
            return
        network = connection.network
        host = self._hosts.get(network)
        if host is None:
            host = self._hosts[network] = ClientHost(network, self._rate)
        self._left_us.pop(host, None)
        host.connections += 1

    def forget(self, connection: Connection, now_us: int) -> None:
        """Count the end of a connection."""
        host = self.find(connection.network)
        if host is None:
            return
        host.connections -= 1
        if not host.connections:
            self._left_us[host] = now_us

    def connections_most(self) -> int:
        """Return the largest number of connections that an address has."""
        return max((host.connections for host in self._hosts.values()), default=0)

    def find(self, network: bytes) -> ClientHost | None:
        """Return the address, if it has or lately had clients; None also if it is not counted."""
        return self._hosts.get(network)

    def run_periodic(self, now_us: int) -> None:
        """Forget the addresses without clients whose allowance is full again."""
        while self._left_us:
            host = next(iter(self._left_us))
            if now_us - self._left_us[host] < BURST_US:
                break
            del self._left_us[host], self._hosts[host.network]

    def set_limits(self, config: ClientConfig) -> None:
        """Apply other limits; connections above the new ones stay."""
        self.connections_max = config.connections_per_address_max
        self._rate = config.commands_per_second_max
        for host in self._hosts.values():
            host.rate = self._rate
