"""A client's connection in memory: both directions in order, with delays, pauses and every end.

The node's end is a `ClientPort`; the client's end is a `User`. `clients` decides which bytes are
sent.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from beanpoled.frontends.connection import Connection
from tests.sim.costs import METER, of_input

if TYPE_CHECKING:
    from tests.sim.host import SimHost
    from tests.sim.world import World


class User(Protocol):
    """The client's side."""

    def received(self, wire: "Wire", data: bytes) -> None:
        """Take bytes from the node."""

    def ended(self, wire: "Wire") -> None:
        """Note that the node's side is closed or gone."""


class Wire:
    """One connection. Everything that the client does takes `delay_s` to reach the node."""

    def __init__(
        self,
        world: "World",
        host: "SimHost",
        user: User,
        delay_s: float,
        protocol: str = "beanstalk",
        client_host: bytes = b"::1",
    ) -> None:
        self.world = world
        self.host = host
        self.user = user
        self.connection: Connection | None = None
        self.number = 0  # of the session, once it is open
        self.incarnation = 0
        self.protocol = protocol
        self.client_host = client_host
        self.client_names: tuple[bytes, ...] = ()
        self.certificate = ""
        self.open = True  # the client's side
        self.cut_s: float | None = None  # when the node's side ended
        self._delay_s = delay_s
        self._reading = True
        self._held: deque[Callable[[], None]] = deque()  # input that the node has not read
        self._to_node_s = self._to_client_s = 0.0
        self._slow = False  # the client does not read
        self._unread: list[bytes] = []
        world.clock.after(delay_s, lambda: host.enter(self._accept))
        host.wires[self] = None

    # --- the node's end ---------------------------------------------------------------------------

    def _accept(self) -> None:
        if self.protocol not in self.host.open_protocols:
            self._cut()
            return
        self.connection = self.host.node.frontends[self.protocol].connected(self)
        if self.connection is None:
            self._cut()

    @property
    def unsent_bytes(self) -> int:
        """See `ClientPort`."""
        return sum(map(len, self._unread))

    def write(self, data: bytes) -> None:
        """See `ClientPort`."""
        if self.cut_s is None:
            if self.connection is not None:
                self._note_session(self.connection)  # what was received may have waited
            self._to_client(lambda: self._arrived(data))

    def close(self) -> None:
        """See `ClientPort`."""
        self._cut()

    def abort(self) -> None:
        """See `ClientPort`."""
        self._cut()

    def pause_reading(self) -> None:
        """See `ClientPort`."""
        self._reading = False

    def resume_reading(self) -> None:
        """See `ClientPort`."""
        self._reading = True
        if self._held:
            self.world.clock.after(0.0, lambda: self.host.enter(self._read))

    def _cut(self) -> None:
        """Close the node's side: notify the client, and the node's connection a little later."""
        if self.cut_s is None:
            self.world.stops.closes(self)
            self.cut_s = self.world.clock.now_s
            self.host.wires.pop(self, None)
            self._slow = False
            self._to_client(self._end)
            if self.connection is not None:
                self.world.clock.after(0.0, lambda: self.host.enter(self._lost))

    def _lost(self) -> None:
        if self.connection is not None:
            self.connection.lost()

    def died(self, after_s: float) -> None:
        """Note that the node died; the client notices after a while."""
        if self.cut_s is None:
            self.cut_s = self.world.clock.now_s
            self._to_client_s = max(self._to_client_s, self.cut_s + after_s)
            self._to_client(self._end)

    # --- the client's end -------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send bytes to the node."""
        assert self.open
        self._to_node(lambda: self._receive(data))

    def finish(self) -> None:
        """Close the sending side; replies are still read."""
        self._to_node(self._half_close)

    def drop(self) -> None:
        """Break the connection."""
        if self.open:
            self.open = False
            self._to_node(self._broken)

    def slow(self, on: bool) -> None:
        """Stop reading replies, or resume."""
        self._slow = on
        if not on:
            unread, self._unread = self._unread, []
            for data in unread:
                self._arrived(data)
            self.host.enter(self._unstall)

    def _unstall(self) -> None:
        if self.connection is not None and self.cut_s is None:
            self.connection.unstall()

    def _receive(self, data: bytes) -> None:
        connection = self.connection
        if connection is not None and self.cut_s is None:
            METER.us += of_input(data)
            connection.received(data)
            self._note_session(connection)

    def _half_close(self) -> None:
        if self.connection is not None and self.cut_s is None:
            self.connection.half_closed()

    def _broken(self) -> None:
        if self.cut_s is None:
            self.cut_s = self.world.clock.now_s
            self.host.wires.pop(self, None)
            self._lost()

    def _note_session(self, connection: Connection) -> None:
        # Also without a session, because a stopping node may answer a client without one.
        self.number = connection.number or self.number
        self.incarnation = self.host.node.origin.incarnation

    # --- in flight --------------------------------------------------------------------------------

    def _to_node(self, action: Callable[[], None]) -> None:
        self._to_node_s = max(self._to_node_s, self.world.clock.now_s + self._delay_s)
        self.world.clock.at(self._to_node_s, lambda: self.host.enter(partial(self._take, action)))

    def _take(self, action: Callable[[], None]) -> None:
        """Take an action of the client, in order after those that the node has not read yet."""
        self._held.append(action)
        self._read()

    def _read(self) -> None:
        while self._held and (self._reading or self.cut_s is not None):
            self._held.popleft()()

    @property
    def is_slow(self) -> bool:
        """Whether the client does not read its replies."""
        return self._slow or bool(self._unread)

    @property
    def unread(self) -> bool:
        """Whether something that reached the node waits, unread or in its memory."""
        return bool(self._held) or self.connection in self.host.node.clients.paused

    def _to_client(self, action: Callable[[], None]) -> None:
        self._to_client_s = max(self._to_client_s, self.world.clock.now_s + self._delay_s)
        self.world.clock.at(self._to_client_s, action)

    def _arrived(self, data: bytes) -> None:
        if not self.open:
            return
        if self._slow or self._unread:  # unread bytes are delivered first when the connection ends
            self._unread.append(data)
            limit = self.host.node.context.config.client_output_bytes_max
            if self._slow and sum(map(len, self._unread)) > limit:
                self.host.enter(self._stall)
            return
        self.user.received(self, data)

    def _stall(self) -> None:
        if self.connection is not None and self.cut_s is None:
            self.connection.stall()

    def _end(self) -> None:
        if self.open:
            self.open = False
            for data in self._unread:
                self.user.received(self, data)
            self.user.ended(self)
