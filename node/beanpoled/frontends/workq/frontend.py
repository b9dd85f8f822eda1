"""The frontend of the Workq protocol: it makes connections and counts their requests.

The connection itself is in `connection`.
"""

from collections.abc import Mapping

from beanpole.events import PROTOCOL_SINCE, WORKQ
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.frontend import Frontend
from beanpoled.frontends.workq.connection import WorkqConnection
from beanpoled.frontends.workq.shared import Shared
from beanpoled.host.seam import ClientPort


class WorkqFrontend(Frontend):
    """The Workq protocol at a node."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(clients, name, PROTOCOL_SINCE[WORKQ], replies.ERRORS)
        self._shared = Shared(clients.host.now_us())

    def connect(self, port: ClientPort) -> Connection:
        """See `Frontend`."""
        return WorkqConnection(self.clients, self.name, port, self._shared)

    def counters(self) -> Mapping[str, int]:
        """See `Frontend`."""
        return dict(zip(r.COUNTED_WORDS, self._shared.counts[r.ADD :], strict=True))
