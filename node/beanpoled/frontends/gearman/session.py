"""What all sides of a Gearman connection stand on: its codec, its session, and what it is owed.

Most commands have a reply only if they fail, and some are answered here without the cluster. So
each command that may have one is `expect`ed, and answered with nothing if all is well: replies
leave in the order of the requests. What requests mean is in `worker`, `client` and `admin`.
"""

from collections import deque

from beanpole import commands as c
from beanpole.events import GEARMAN
from beanpole.protocol.gearman.parser import Parser
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.gearman.shared import Shared
from beanpoled.frontends.requests import RequestConnection
from beanpoled.host.seam import ClientPort

# What is remembered of a command until its answer: a number, and two replies or names.
Asked = tuple[int, bytes, bytes]
NOTHING: Asked = (0, b"", b"")


class GearmanSession(RequestConnection):
    """A connection that can ask the cluster.

    Attributes:
        client_id: how the client calls itself.
        place: the connection's number at this node.
    """

    __slots__ = ("_asked", "_parser", "_shared", "client_id", "place")

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port)
        self._shared = shared
        self._parser = Parser()
        # In the order of the log, which is that of the requests.
        self._asked: deque[Asked] = deque()
        self.client_id = b"-"
        shared.connections += 1
        self.place = shared.connections

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    @property
    def _buffered_bytes(self) -> int:
        return self._parser.buffered_bytes

    def _session(self) -> int:
        """The number of the session, which is opened with the first command that needs one."""
        if not self.number:
            self._clients.origin.open_session(self, GEARMAN)
        return self.number

    def _ask(self, kind: int, command: c.Command, asked: Asked = NOTHING) -> None:
        """Submit a command whose answer is owed in its place."""
        self._replies.expect(kind)
        self._asked.append(asked)
        self._clients.origin.submit(self, kind, command)

    def _ask_alone(self, kind: int, command: c.Command, asked: Asked = NOTHING) -> None:
        """The same, for one that must be answered before what stands behind it is looked at."""
        self.blocked = True
        self._ask(kind, command, asked)

    def _ask_again(self, kind: int, command: c.Command, asked: Asked) -> None:
        """Repeat a command that was asked alone, and is still owed."""
        self._asked.append(asked)
        self._clients.origin.submit(self, kind, command)

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        self._asked.clear()
