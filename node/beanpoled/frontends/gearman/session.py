"""The base of all sides of a Gearman connection: its codec, its session and its owed replies.

Most commands have a reply only if they fail, and some are answered here without the cluster. So
each command that may have a reply is `expect`ed, and answered with nothing on success: replies
leave in the order of the requests. `worker`, `client` and `admin` interpret the requests.
"""

from collections import deque

from beanpole import commands as c
from beanpole.events import GEARMAN
from beanpole.protocol.gearman.parser import Parser
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.gearman.shared import Shared
from beanpoled.frontends.requests import RequestConnection
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import Batch

# The context of a command until its answer: a number, and two replies or names.
Asked = tuple[int, bytes, bytes]
NOTHING: Asked = (0, b"", b"")


class GearmanSession(RequestConnection):
    """A connection that can submit commands to the cluster.

    Attributes:
        client_id: the name that the client gave itself.
        place: the connection's number at this node.
    """

    __slots__ = ("_asked", "_parser", "_shared", "client_id", "place")
    _speaks = GEARMAN

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

    def _unfinished_bytes(self) -> int:
        return self._parser.unfinished_bytes

    def _ask(self, kind: int, command: c.Command, asked: Asked = NOTHING) -> Batch:
        """Submit a command, and expect its reply in order; return the batch that holds it."""
        self._replies.expect(kind)
        self._asked.append(asked)
        return self._clients.origin.submit(self, kind, command)

    def _ask_alone(self, kind: int, command: c.Command, asked: Asked = NOTHING) -> None:
        """Do the same for a command that must be answered before those behind it are acted on."""
        self.blocked = True
        self._ask(kind, command, asked)

    def _ask_again(self, kind: int, command: c.Command, asked: Asked) -> None:
        """Repeat a command submitted alone, whose reply is still owed."""
        self._asked.append(asked)
        self._clients.origin.submit(self, kind, command)

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        self._asked.clear()
