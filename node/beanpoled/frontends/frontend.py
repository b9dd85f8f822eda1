"""One client protocol at one node, and all of them together.

Here is what the node, the host and the metrics ask of a protocol. Which protocols there are is in
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
            since: the machine version from which on clients may come.
            errors: the replies that say that something was not done, and the word for each.
        """
        self.clients = clients
        self.name = name
        self.since = since
        self._errors = errors or {}
        assert all(len(reply) <= ERROR_MAX_BYTES for reply in self._errors), name
        clients.errors[name] = dict.fromkeys(self._errors, 0)

    @abstractmethod
    def connect(self, port: ClientPort) -> Connection:
        """Make the connection of a client that has come."""

    @abstractmethod
    def counters(self) -> Mapping[str, int]:
        """How often each command was asked for, by the protocol's own words."""

    def calls(self) -> Mapping[str, int]:
        """How often each call came, if the protocol has some beside its commands."""
        return {}

    def errors(self) -> Mapping[str, int]:
        """How often each error was replied, by its word."""
        found = Counter(dict.fromkeys(self._errors.values(), 0))
        for reply, count in self.clients.errors[self.name].items():
            found[self._errors[reply]] += count
        return found

    def connected(self, port: ClientPort) -> Connection | None:
        """A client connected; None if it must be closed at once."""
        if self.clients.is_crowded(self.name, port.client_host):
            return None
        connection = self.connect(port)
        self.clients.add(connection)
        return connection

    def figures(self) -> ClientFigures:
        """Return what the metrics show."""
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
        self._is_open = False
        self._version = 0  # of the machine, when ports were opened last

    def __getitem__(self, name: str) -> Frontend:
        return self._all[name]

    @property
    def publications(self) -> Publications:
        """Which clients hear what is published."""
        return self._clients.publications

    def open(self) -> None:
        """Let clients come, of every protocol that the machine's version knows."""
        self._is_open = True
        self._version = self._clients.machine.version
        for frontend in self._all.values():
            if frontend.since <= self._version:
                self._clients.host.open_clients(frontend.name)

    def close(self) -> None:
        """Let no more clients come; those that are connected stay."""
        self._is_open = False
        self._clients.host.close_clients()

    def run_periodic(self) -> None:
        """Called every 100 ms of the loop's time: what a raised version brought opens its ports."""
        if self._is_open and self._clients.machine.version != self._version:
            self.open()

    def figures(self) -> dict[str, ClientFigures]:
        """Return what the metrics show, by protocol."""
        return {name: frontend.figures() for name, frontend in self._all.items()}
