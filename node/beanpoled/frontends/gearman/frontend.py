"""The frontend of the Gearman protocol: it makes connections and counts their requests.

The connection itself is in `connection`.
"""

from collections import Counter
from collections.abc import Mapping

from beanpole.events import GEARMAN, PROTOCOL_SINCE
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.parser import TEXT
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.frontend import Frontend
from beanpoled.frontends.gearman.connection import GearmanConnection
from beanpoled.frontends.gearman.shared import Shared
from beanpoled.host.seam import ClientPort


class GearmanFrontend(Frontend):
    """The Gearman protocol at a node."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(clients, name, PROTOCOL_SINCE[GEARMAN], replies.ERRORS)
        self._shared = Shared(clients.config.cluster, clients.host.call_soon)

    def connect(self, port: ClientPort) -> Connection:
        """See `Frontend`."""
        return GearmanConnection(self.clients, self.name, port, self._shared)

    def counters(self) -> Mapping[str, int]:
        """See `Frontend`."""
        counts = self._shared.counts
        return {
            **{name.lower(): counts[kind] for kind, name in p.NAMES.items()},
            "text": counts[TEXT],
        }

    def errors(self) -> Mapping[str, int]:
        """See `Frontend`; includes the errors whose text has a size or a count."""
        found = Counter(super().errors())
        found.update(self._shared.errors)
        return found
