"""The frontend of the beanstalk protocol: it makes connections and counts their requests.

The connection itself is in `connection`.
"""

from collections.abc import Mapping

from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.frontends.frontend import Frontend
from beanpoled.host.seam import ClientPort


class BeanstalkFrontend(Frontend):
    """The beanstalk protocol at a node."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(clients, name, errors=replies.ERRORS)
        self._counts = [0] * r.COUNTERS

    def connect(self, port: ClientPort) -> Connection:
        """See `Frontend`."""
        return BeanstalkConnection(self.clients, self.name, port, self._counts)

    def counters(self) -> Mapping[str, int]:
        """See `Frontend`."""
        return dict(zip(r.COUNTED_WORDS, self._counts[1:], strict=True))
