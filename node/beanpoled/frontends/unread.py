"""The output of all clients of a node that they have not read, and its bound in memory.

Each client has a limit of its own, of megabytes, and anybody may have thousands of connections:
without a common bound, the replies that wait for them would take more memory than the node has.
Only clients that are behind are counted: the system has not taken all of their output. A client
that reads costs nothing here.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

from beanpoled.frontends.connection import Connection
from beanpoled.host.seam import ClientPort
from beanpoled.shared.context import Context

# The limit of all output together, in clients that each have as much as one may. Beyond it, clients
# that are behind get no more replies before they have read, and those that do not read are closed.
# Clients that have just fallen behind may take as much again: then the first of them are closed.
CLIENTS: Final = 16
# ... but at least this.
UNREAD_BYTES_MIN: Final = 128 * 1024 * 1024
# Replies with a body that clients have asked for and not been given have at most this size
# together: they may all be made in one turn, before a byte of them is written. Beyond it, each
# client is owed one at a time.
OWED_BYTES_MAX: Final = 128 * 1024 * 1024
# Memory of one write besides its bytes (measured: 800): replies of 15 bytes would fill a node.
WRITE_BYTES: Final = 1024
# A client counts as one that does not read after this time. The system tells that there is room
# when a third of its buffer is free, which has up to 4 MiB: a client that reads 270 KiB in a second
# is seen to read.
PATIENCE_US: Final = 5_000_000
# A connection that has ended, but not been read to its end, stays for this time at most: it is no
# client any more, but has a file descriptor.
LINGER_MAX_US: Final = 30_000_000
# For both, a client that has read this much in each second of the time is one that reads.
PACE_BYTES: Final = 64 * 1024


@final
class _Held:
    """The output of a client that is behind.

    A write that was partly sent takes its whole size. So what is behind counts in two parts: the
    first is free when all bytes that were unsent at its end are sent.
    """

    __slots__ = ("connection", "first", "left", "second", "sent", "since_us", "unsent")

    def __init__(self, connection: Connection, size: int, unsent: int, now_us: int) -> None:
        self.connection = connection
        self.first = size  # of the writes of the first part
        self.left = unsent  # bytes of the first part that are not sent
        self.second = 0  # of the writes after it
        self.unsent = unsent  # bytes of both, when they were last looked at
        self.since_us = now_us
        self.sent = 0  # bytes since then

    def keeps_pace(self, past_us: int) -> bool:
        """Whether the client has read at a normal pace since `since_us`, which is so long ago."""
        return self.sent > 0 and self.sent * 1_000_000 >= PACE_BYTES * past_us


@final
class Unread:
    """The output of clients that do not read it, or not as fast as it is made.

    Attributes:
        bytes_max: its limit, set by `Clients`.
        bytes: its size, of all clients that are behind.
        owed_bytes: the size of the replies that all clients are owed (`ReplyQueue.owe_copy`).
    """

    def __init__(self, context: Context, close: Callable[[Connection], None]) -> None:
        """Begin; `close` closes a connection whose client does not read."""
        self.bytes_max = UNREAD_BYTES_MIN
        self.bytes = self.owed_bytes = 0
        self._context = context
        self._looked_us = 0  # when `make_room` was last called
        self._close = close
        # The client that has not read for the longest time is first.
        self._behind: OrderedDict[ClientPort, _Held] = OrderedDict()
        # Those of connections that have ended, the first one first, with the time of their end.
        self._ended: OrderedDict[ClientPort, int] = OrderedDict()

    def set_limit(self, client_output_bytes_max: int) -> None:
        """Set the limit of all clients by that of one."""
        self.bytes_max = max(UNREAD_BYTES_MIN, CLIENTS * client_output_bytes_max)

    def wrote(self, connection: Connection, port: ClientPort, size: int, unsent: int) -> None:
        """Count a write to a client that is behind.

        Args:
            connection: of the client.
            port: of the connection.
            size: what was written.
            unsent: the port's `unsent_bytes` before the write.
        """
        size += WRITE_BYTES
        held = self._behind.get(port)
        if held is None:
            held = _Held(connection, size, port.unsent_bytes, self._context.loop_us)
            self._behind[port] = held
        else:
            self._look(port, held, unsent)
            held.second += size
            held.unsent = port.unsent_bytes
        self.bytes += size
        if self.bytes > self.bytes_max:
            connection.hold()

    @property
    def is_full(self) -> bool:
        """Whether each client may be owed one body at a time only: see `ReplyQueue.owe_copy`."""
        return self.owed_bytes >= OWED_BYTES_MAX or self.bytes > self.bytes_max

    @property
    def lingering(self) -> int:
        """The number of connections that have ended and are open until their clients have read."""
        return len(self._ended)

    def ended(self, port: ClientPort) -> None:
        """Note that the connection of a client that is behind has ended."""
        if port in self._behind:
            self._ended.setdefault(port, self._context.loop_us)

    def forget(self, port: ClientPort) -> None:
        """Forget a client that has read everything, or is gone."""
        held = self._behind.pop(port, None)
        if held is not None:
            self._ended.pop(port, None)
            self.bytes -= held.first + held.second

    def make_room(self) -> None:
        """Close clients that do not read while the output is above a limit; called every 100 ms.

        A client that has fallen behind since the last call is never closed: all of those that wait
        for one large result get it in one turn, and share its bytes.
        """
        now_us = self._context.loop_us
        self._end_lingering(now_us)
        before_us, self._looked_us = self._looked_us, now_us
        while self.bytes > self.bytes_max:
            port, held = next(iter(self._behind.items()))
            if self._look(port, held, port.unsent_bytes):
                continue
            past_us = now_us - held.since_us
            is_patient = past_us < PATIENCE_US and self.bytes <= 2 * self.bytes_max
            if not held.unsent:
                self.forget(port)
            elif held.keeps_pace(past_us):
                self._renew(port, held)
            elif is_patient or held.since_us >= before_us:
                break
            else:
                self._abort(port, held)

    def _end_lingering(self, now_us: int) -> None:
        while self._ended:
            port, since_us = next(iter(self._ended.items()))
            if now_us - since_us <= LINGER_MAX_US:
                break
            held = self._behind[port]
            is_new = self._look(port, held, port.unsent_bytes)
            if is_new or held.keeps_pace(now_us - held.since_us):
                self._renew(port, held)
                self._ended[port] = now_us
                self._ended.move_to_end(port)
            else:
                self._abort(port, held)

    def _abort(self, port: ClientPort, held: _Held) -> None:
        self.forget(port)
        self._close(held.connection)
        port.abort()  # a connection that has ended does nothing any more

    def _look(self, port: ClientPort, held: _Held, unsent: int) -> bool:
        """Take note of what a client has read; return whether that was all of the first part."""
        sent = held.unsent - unsent
        held.unsent = unsent
        held.sent += sent
        held.left -= sent
        if held.left > 0 or not unsent:
            return False
        self.bytes -= held.first
        held.first, held.second, held.left = held.second, 0, unsent
        self._renew(port, held)
        return True

    def _renew(self, port: ClientPort, held: _Held) -> None:
        """Count from now on how fast a client reads."""
        held.sent, held.since_us = 0, self._context.loop_us
        self._behind.move_to_end(port)
