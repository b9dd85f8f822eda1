"""The base of all sides of a qless connection: its codec, its version of RESP and its replies.

A reply is written in the version that was in force when its request was made: commands that change
the version, or subscribe to messages, wait until no reply is owed.
"""

from beanpole.events import QLESS
from beanpole.protocol.resp.parser import Parser
from beanpole.protocol.resp.values import RESP2, Error, Value, encode
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.qless.shared import COMMAND, Shared
from beanpoled.frontends.replies import EMPTY
from beanpoled.frontends.requests import RequestConnection
from beanpoled.host.seam import ClientPort


class QlessSession(RequestConnection):
    """A connection that can reply to its client.

    Attributes:
        version: the version of RESP.
        name: the name that the client gave itself.
        place: the connection's number at this node.
    """

    __slots__ = ("_deferred", "_hello", "_parser", "_shared", "name", "place", "version")
    _speaks = QLESS

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port)
        self._parser = Parser()
        self._shared = shared
        self._deferred: list[bytes] = []  # a command that waits until no reply is owed
        # The version and name of a HELLO, which is answered when its AUTH is.
        self._hello: tuple[int, bytes] | None = None
        self.version = RESP2
        self.name = b""
        shared.connections += 1
        self.place = shared.connections

    @property
    def clients(self) -> Clients:
        """The clients of the node."""
        return self._clients

    @property
    def shared(self) -> Shared:
        """The shared state of the node."""
        return self._shared

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    @property
    def _buffered_bytes(self) -> int:
        return self._parser.buffered_bytes

    def _unfinished_bytes(self) -> int:
        return self._parser.unfinished_bytes

    def say(self, value: Value) -> None:
        """Answer the newest request, after the replies that are owed."""
        if type(value) is Error:
            self._shared.errors[COMMAND] += 1
        self._replies.reply(encode(value, self.version))

    def refuse(self, kind: str, value: Error) -> None:
        """Answer with an error, and count it by its kind for the metrics."""
        self._shared.errors[kind] += 1
        self._replies.reply(encode(value, self.version))

    def _answer_call(self, reply: bytes) -> None:
        """Answer the oldest request that is owed a reply."""
        head = self._replies.answer(reply)
        if head == EMPTY and (self._deferred or self.ended or not self._flow.reading):
            self._go_on()

    def _go_on(self) -> None:
        if self._deferred:
            self.blocked = False
            self._process()
        else:
            super()._go_on()

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        self._deferred = []
