"""The frontend of the qless protocol: it makes connections and counts their requests.

The connection itself is in `connection`.
"""

from collections.abc import Mapping

from beanpole.events import PROTOCOL_SINCE, QLESS
from beanpole.qless import CALL_NAMES
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.frontend import Frontend
from beanpoled.frontends.qless.connection import COMMANDS, QlessConnection
from beanpoled.frontends.qless.shared import Shared
from beanpoled.host.seam import ClientPort


class QlessFrontend(Frontend):
    """The Redis protocol at a node, for clients of qless."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(clients, name, since=PROTOCOL_SINCE[QLESS])
        self._shared = Shared(clients.host.now_us())
        self._shared.counts.update(dict.fromkeys(COMMANDS, 0))

    def connect(self, port: ClientPort) -> Connection:
        """See `Frontend`."""
        return QlessConnection(self.clients, self.name, port, self._shared)

    def counters(self) -> Mapping[str, int]:
        """See `Frontend`."""
        counts = self._shared.counts
        return {name.decode().replace("|", " "): count for name, count in counts.items()}

    def calls(self) -> Mapping[str, int]:
        """See `Frontend`."""
        return {CALL_NAMES[code]: count for code, count in self._shared.calls.items()}

    def errors(self) -> Mapping[str, int]:
        """See `Frontend`."""
        return self._shared.errors
