"""The interface of a client protocol to its node, and the collection of all protocols.

The node, the host and the metrics use protocols through this interface. The list of protocols is in
`table`; each has its package.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping

from beanpole import commands as c
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.publications import Publications
from beanpoled.frontends.replies import ERROR_MAX_BYTES
from beanpoled.host.seam import ClientPort
from beanpoled.view import ClientFigures


class Frontend:
    """A protocol at a node."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        since: int = c.BASE_VERSION,
        errors: Mapping[bytes, str] | None = None,
    ) -> None:
        """Make the frontend of one node.

        Args:
            clients: of that node.
            name: of the protocol, as in the configuration.
            since: the first machine version that accepts such clients.
            errors: the replies that report a failure, with the word for each.
        """
        self.clients = clients
        self.name = name
        self.since = since
        self._errors = errors or {}
        assert all(len(reply) <= ERROR_MAX_BYTES for reply in self._errors), name
        clients.errors[name] = dict.fromkeys(self._errors, 0)

    @abstractmethod
    def connect(self, port: ClientPort) -> Connection:
        """Make the connection of a new client."""

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """Return how often each command was requested, by the protocol's own words."""

    def calls(self) -> Mapping[str, int]:
        """Return how often each call came, if the protocol has calls beside its commands."""
        return {}

    def errors(self) -> Mapping[str, int]:
        """Return how often each error was replied, by its word."""
        found = Counter(dict.fromkeys(self._errors.values(), 0))
        for reply, count in self.clients.errors[self.name].items():
            found[self._errors[reply]] += count
        return found

    def connected(self, port: ClientPort) -> Connection | None:
        """Accept a new client; return None if it must be closed at once."""
        if self.clients.is_crowded(self.name, port.client_host):
            return None
        connection = self.connect(port)
        self.clients.add(connection)
        return connection

    def figures(self) -> ClientFigures:
        """Return the figures that the metrics show."""
        clients = self.clients
        own = [item for item in clients.connections if item.protocol == self.name]
        return ClientFigures(
            len(own),
            clients.connections_total.get(self.name, 0),
            clients.connections_refused.get(self.name, 0),
            sum(connection.is_waiting for connection in own),
            self.counters(),
            clients.slow_total.get(self.name, 0),
            self.calls(),
            self.errors(),
            clients.hosts.refused.get(self.name, 0),
        )


class Frontends:
    """All protocols of one node."""

    def __init__(
        self, clients: Clients, table: Mapping[str, Callable[[Clients, str], Frontend]]
    ) -> None:
        self._clients = clients
        self._all = {name: make(clients, name) for name, make in table.items()}
        self.is_open = False
        self._version = 0  # of the machine, when ports were last opened

    def __getitem__(self, name: str) -> Frontend:
        return self._all[name]

    @property
    def publications(self) -> Publications:
        """The subscriptions of this node's clients."""
        return self._clients.publications

    def open(self) -> None:
        """Accept clients of every protocol that the machine's version supports."""
        self.is_open = True
        self._version = self._clients.machine.version
        for frontend in self._all.values():
            if frontend.since <= self._version:
                self._clients.host.open_clients(frontend.name)

    def close(self) -> None:
        """Accept no more clients; those that are connected stay."""
        self.is_open = False
        self._clients.host.close_clients()

    def run_periodic(self) -> None:
        """Open the ports of protocols that a raised version added; called every 100 ms."""
        if self.is_open and self._clients.machine.version != self._version:
            self.open()

    def figures(self) -> dict[str, ClientFigures]:
        """Return the figures that the metrics show, by protocol."""
        return {name: frontend.figures() for name, frontend in self._all.items()}
