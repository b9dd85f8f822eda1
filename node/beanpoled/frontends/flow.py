"""Whether a client is read: only while there is room for what it sends and for its replies.

The limits are here and in `replies`; what a request means is in the package of each protocol.
"""

from typing import final

from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.host.seam import ClientPort


@final
class FlowControl:
    """Pauses one client and reads it again.

    Attributes:
        reading: whether the client is read.
        stalled: whether the client does not read its replies.
    """

    __slots__ = ("_clients", "_port", "reading", "stalled")

    def __init__(self, clients: Clients, port: ClientPort) -> None:
        self._clients = clients
        self._port = port
        self.reading = True
        self.stalled = False

    def stall(self, connection: Connection) -> bool:
        """The client does not read its replies; whether that is new."""
        if self.stalled:
            return False
        self.stalled = True
        self._clients.stalled[connection] = self._clients.loop_us
        return True

    def unstall(self, connection: Connection) -> bool:
        """The client has read its replies; whether that is new."""
        if not self.stalled:
            return False
        self.stalled = False
        self._clients.stalled.pop(connection, None)
        return True

    def update(self, connection: Connection, owes_enough: bool, buffered_bytes: int) -> None:
        """Read from the client only while there is room for more.

        Args:
            connection: whose client it is.
            owes_enough: whether its replies are as many, or as large, as they may be.
            buffered_bytes: what it has sent and was not looked at.
        """
        clients = self._clients
        full = (
            self.stalled
            or connection.throttled
            or owes_enough
            or clients.outbox_is_full
            or buffered_bytes > clients.input_bytes_max
        )
        if full == self.reading:
            self.reading = not full
            if full:
                self._port.pause_reading()
                clients.paused[connection] = None
            else:
                self._port.resume_reading()
                clients.paused.pop(connection, None)
