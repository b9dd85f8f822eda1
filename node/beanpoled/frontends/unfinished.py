"""The requests of all clients of a node whose end has not arrived, and their bound in memory.

Each has a limit of its own, of megabytes, and anybody may have thousands of connections: without a
common bound, half of a body on each of them would take more memory than the node has.
"""

from typing import Final, final

from beanpoled.frontends.connection import Connection

# All unfinished requests together have at most this size: a hundred of the largest bodies. They
# arrive at the speed of the network, so honest clients have few at a time.
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
# Smaller ones are not counted: those of 16,000 connections together are as much.
COUNTED_BYTES: Final = 16 * 1024


@final
class Unfinished:
    """The large unfinished requests of a node's clients.

    Attributes:
        bytes: the sum of their sizes.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._sizes: dict[Connection, int] = {}  # the one that began first is first

    def update(self, connection: Connection, size: int) -> bool:
        """Note the size of a connection's unfinished request, 0 if it has none.

        While all of them together are above the limit, the connection ends whose request began
        first.

        Returns:
            Whether the request is counted; else this needs no call for it.
        """
        before = self._sizes.get(connection, 0)
        if size < COUNTED_BYTES:
            if before:
                self.forget(connection)
            return False
        self._sizes[connection] = size
        self.bytes += size - before
        while self.bytes > UNFINISHED_BYTES_MAX:
            oldest = next(iter(self._sizes))
            self.forget(oldest)
            oldest.abort()
        return True

    def forget(self, connection: Connection) -> None:
        """Forget the request of a connection that ended."""
        self.bytes -= self._sizes.pop(connection, 0)
