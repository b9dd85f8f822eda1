"""Flow control: read from a client only while there is room for its input and its replies.

The limits are here and in `replies`; the meaning of requests is in the package of each protocol.
"""

from typing import final

from beanpoled.frontends.clients import Clients
from beanpoled.frontends.connection import Connection
from beanpoled.host.seam import ClientPort


@final
class FlowControl:
    """Pauses and resumes reading from one client.

    Attributes:
        reading: whether the client is read.
        stalled: whether the client does not read its replies.
        held: whether it must read its replies before it gets more; it may be stalled, too.
    """

    __slots__ = ("_clients", "_port", "held", "reading", "stalled")

    def __init__(self, clients: Clients, port: ClientPort) -> None:
        self._clients = clients
        self._port = port
        self.reading = True
        self.stalled = self.held = False

    def stall(self, connection: Connection) -> bool:
        """Note that the client does not read its replies; return whether that is new."""
        if self.stalled:
            return False
        self.stalled = self.held = True
        self._clients.stalled[connection] = self._clients.loop_us
        return True

    def unstall(self, connection: Connection) -> bool:
        """Note that the client has read its replies; return whether it had been held."""
        if not self.held:
            return False
        self.stalled = self.held = False
        self._clients.stalled.pop(connection, None)
        return True

    def update(self, connection: Connection, has_enough: bool, buffered_bytes: int) -> None:
        """Read from the client only while there is room for more.

        Args:
            connection: the connection of the client.
            has_enough: whether it has a row of requests behind it, or the replies owed to it have
                reached a limit in number or size.
            buffered_bytes: the size of its input that is not parsed yet.
        """
        clients = self._clients
        full = (
            self.held
            or connection.throttled
            or has_enough
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
