"""Large outputs of a node's clients: a few megabytes of them are written in a step of the loop.

The system takes a millisecond or two to accept a megabyte, and any number of clients may be sent
megabytes in one turn: the result of a job for which they all wait, a body that they all peek. So
their outputs wait in a line, and in each step of the loop those of other clients pass them.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

from beanpoled.frontends.connection import Connection
from beanpoled.frontends.unread import Unread
from beanpoled.host.seam import ClientPort

# A longer output is large. Shorter ones cost little more than the call that writes them.
LARGE_BYTES: Final = 32 * 1024
# One step of the loop writes large outputs of this size together, and one more: up to 10 ms, as a
# large entry takes.
STEP_BYTES: Final = 4 * 1024 * 1024
# The line holds at most this much that is in memory for one client alone. More is written at once:
# its memory is bounded by `Unread`.
OWN_BYTES_MAX: Final = 128 * 1024 * 1024


@final
class _Ending:
    """The last output of a connection that has ended: the port is closed behind it."""

    __slots__ = ("_output", "_port", "output_bytes")

    def __init__(self, port: ClientPort, output: Sequence[bytes]) -> None:
        self._port = port
        self._output = output
        self.output_bytes = sum(map(len, output))

    def write(self) -> None:
        self._port.write(b"".join(self._output))
        self._port.close()


@final
class LargeOutput:
    """The line of the clients of one node whose outputs are large, first come first served.

    Attributes:
        ending: the number of ended connections whose last output is in the line.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], None], unread: Unread) -> None:
        """Begin with an empty line."""
        self._call_soon = call_soon
        self._unread = unread
        # With the bytes that each has in memory for itself.
        self._line: dict[Connection | _Ending, int] = {}
        self._own_bytes = 0
        self._written = 0  # in this step
        # The part of it that passed the line. It may belong to the next step: turns come before
        # and behind `_step` in a step of the loop.
        self._passed = 0
        self._is_stepping = False
        self.ending = 0

    def may_write(self, connection: Connection, own_bytes: int) -> bool:
        """Whether a connection may write its large output now; else it joins the line.

        Args:
            connection: its `write` is called when it is its turn.
            own_bytes: the part of its output that is in memory for this client alone.
        """
        if connection in self._line:
            return False
        has_room = self._own_bytes + own_bytes <= OWN_BYTES_MAX
        if has_room and (self._line or self._written >= STEP_BYTES):
            self._join(connection, own_bytes)
            return False
        self._written += connection.output_bytes
        self._passed += connection.output_bytes
        self._step_soon()
        return True

    def has(self, connection: Connection) -> bool:
        """Whether a connection is in the line."""
        return connection in self._line

    def end_behind(self, connection: Connection, port: ClientPort, output: list[bytes]) -> None:
        """Write the output of a connection in the line when it is its turn, and close its port."""
        own_bytes = self._line[connection]
        self.forget(connection)
        self._join(_Ending(port, output), own_bytes)
        self.ending += 1

    def forget(self, connection: Connection) -> None:
        """Remove a connection that ended."""
        self._own_bytes -= self._line.pop(connection, 0)

    def go_on(self) -> None:
        """Look again whether clients have read; called every 100 ms."""
        if self._line:
            self._step_soon()

    def _step(self) -> None:
        """Write what one step may.

        While clients leave so much unread that some of them will be closed, nothing is written.
        """
        self._is_stepping = False
        self._written, self._passed = self._passed, 0
        unread = self._unread
        may_write = True  # the first one always: others may pass as much as a step writes
        while self._line and may_write:
            if unread.bytes > 2 * unread.bytes_max:
                break
            first = next(iter(self._line))
            self._own_bytes -= self._line.pop(first)
            self._written += first.output_bytes
            if isinstance(first, _Ending):
                self.ending -= 1
            first.write()
            may_write = self._written < STEP_BYTES
        if self._written:
            self._step_soon()

    def _join(self, item: Connection | _Ending, own_bytes: int) -> None:
        self._line[item] = own_bytes
        self._own_bytes += own_bytes
        self._step_soon()

    def _step_soon(self) -> None:
        if not self._is_stepping:
            self._is_stepping = True
            self._call_soon(self._step)
