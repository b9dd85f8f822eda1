"""The Gearman protocol at its node: packets become commands, results become packets.

The codec is `beanpole.protocol.gearman`; the life of a connection is in `requests`.
"""

from typing import Any, final

from beanpole.core.jobs.job import Job
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.parser import BAD, CLOSE, TEXT, Parser
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.requests import RequestConnection
from beanpoled.host.seam import ClientPort


@final
class GearmanConnection(RequestConnection):
    """A Gearman client or worker."""

    __slots__ = ("_counts", "_parser")

    def __init__(
        self, clients: Clients, protocol: str, port: ClientPort, counts: list[int]
    ) -> None:
        """Begin a connection; `counts` has how often each packet came to this node."""
        super().__init__(clients, protocol, port)
        self._counts = counts
        self._parser = Parser()

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)

    @property
    def _buffered_bytes(self) -> int:
        return self._parser.buffered_bytes

    def _act(self) -> bool:
        request = self._parser.next()
        if request is None:
            return False
        kind, arguments = request
        self._counts[kind] += 1
        if kind == p.ECHO_REQ:
            self._replies.reply(replies.reply(p.ECHO_RES, arguments[0]))
        elif kind == TEXT:
            self._replies.reply(b"OK 1.1.20\n")
        elif kind == BAD:
            self._replies.reply(arguments[0])
        elif kind == CLOSE:
            self._replies.reply(arguments[0])
            self._quit()
        else:
            self._replies.reply(replies.INVALID_COMMAND)
        return True

    def _refuse(self) -> bool:
        if self._parser.next() is None:
            return False
        self._replies.push(replies.error(b"QUEUE_ERROR", b"Too many connections"))
        return True

    def _arm(self) -> None:
        """No wait of this protocol has a time-out."""

    def watches(self, tube: bytes) -> bool:
        """See `Connection`."""
        return False

    def answered(self, kind: int, result: Any) -> None:
        """See `origin.Client`."""

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        """See `origin.Client`."""

    def failed(self, kind: int, why: int) -> None:
        """See `origin.Client`."""
