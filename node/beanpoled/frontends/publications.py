"""Clients of this node that are subscribed to channels, or to patterns of channels.

The machine publishes the same messages on every node, in the order of the log; a node without
subscribers does not even create them. Delivery is at most once: a client misses the messages that
are published while it has no connection, or while its node loads a snapshot. The package of each
protocol formats the messages.

One call may publish a thousand messages, and each may have thousands of subscribers: they are
delivered in slices, between which others have their step of the loop.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final

from beanpole.protocol.resp.globs import Pattern, Text
from beanpole.qless import Message
from beanpoled.frontends.connection import Connection
from beanpoled.shared.context import Context

# The prefix of the names of channels that the machine publishes to.
CHANNEL_PREFIX: Final = b"ql:"
# Channels and patterns of one client. Patterns are fewer: each message is matched with all of them.
CHANNELS_MAX: Final = 1024
PATTERNS_MAX: Final = 64
# Different patterns of all clients of this node, and the sum of their lengths. With as many, the
# slowest ones and a channel name of four kilobytes, a message is matched within 10 ms.
NODE_PATTERNS_MAX: Final = 1024
NODE_PATTERN_BYTES_MAX: Final = 16_384

# A subscription to a channel takes this much beside the name: entries in three dicts, and one of
# them.
CHANNEL_BYTES: Final = 512
# All subscriptions of this node to channels, with their names, take at most this much. A client
# with all its channels takes 0.5 MiB, and 4.5 with the longest names; 16,000 clients may have 30
# short ones each.
NODE_CHANNEL_BYTES_MAX: Final = 256 * 1024 * 1024

# Deliveries of one turn, of some 7 us each on a node from the sources.
DELIVERIES_PER_TURN_MAX: Final = 512
# Bytes of a message that take a subscriber's delivery as long again: they are copied to its socket.
BYTES_A_DELIVERY: Final = 16 * 1024
# Patterns with which a channel is matched in the time of one delivery, if they are slow.
PATTERNS_A_DELIVERY: Final = 2
# Channels whose patterns are remembered while messages wait; each may fit all patterns.
FITTING_MAX: Final = 64
# Messages that wait, and their bytes (that of a failure may have two megabytes). With more, the
# clients with most subscriptions end: a few of those may delay all others.
WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024


class _Known:
    """A pattern and its subscribers."""

    __slots__ = ("connections", "pattern")

    def __init__(self, pattern: bytes) -> None:
        self.pattern = Pattern(pattern)
        # Dicts and not sets: the order of deliveries is the same in every run.
        self.connections: dict[Connection, None] = {}


class _Subscriptions:
    """The channels and patterns of one client, in the order of its subscriptions."""

    __slots__ = ("channels", "patterns")

    def __init__(self) -> None:
        self.channels: dict[bytes, None] = {}
        self.patterns: dict[bytes, None] = {}


class Publications:
    """The subscribed clients of one node."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._channels: dict[bytes, dict[Connection, None]] = {}
        self._patterns: dict[bytes, _Known] = {}
        self._pattern_bytes = 0
        self._channel_bytes = 0
        self._of: dict[Connection, _Subscriptions] = {}
        self._waiting: deque[Message] = deque()
        self._waiting_bytes = 0
        self._deliveries: Iterator[None] = iter(())  # the rest of those of the present message
        self._fitting: dict[bytes, list[tuple[bytes, _Known]]] = {}  # while messages wait
        self._left = 0  # deliveries of this turn
        self._cost = 1  # of the present message, for each subscriber
        self._is_resting = False  # a step of the loop is requested
        self.delivered_total = 0  # messages delivered, counted once for each subscriber

    def channels_of(self, connection: Connection) -> list[bytes]:
        """Return the channels that a client has subscribed to."""
        found = self._of.get(connection)
        return [] if found is None else list(found.channels)

    def patterns_of(self, connection: Connection) -> list[bytes]:
        """Return the patterns that a client has subscribed to."""
        found = self._of.get(connection)
        return [] if found is None else list(found.patterns)

    def count_of(self, connection: Connection) -> int:
        """Return the number of channels and patterns that a client has subscribed to."""
        found = self._of.get(connection)
        return 0 if found is None else len(found.channels) + len(found.patterns)

    @property
    def subscribers(self) -> int:
        """The number of clients with a subscription."""
        return len(self._of)

    # --- clients come and go --------------------------------------------------------------------

    def subscribe(self, connection: Connection, channel: bytes) -> bool:
        """Subscribe a client to a channel, if there is room; return False if it has too many."""
        assert self.has_channel_room(connection, channel)
        own = self._subscriptions(connection).channels
        if channel in own:
            return True
        if len(own) >= CHANNELS_MAX:
            return False
        own[channel] = None
        self._channel_bytes += CHANNEL_BYTES + len(channel)
        self._channels.setdefault(channel, {})[connection] = None
        self._note()
        return True

    def has_channel_room(self, connection: Connection, channel: bytes) -> bool:
        """Return whether this node has room for a subscription of a client, or knows it already."""
        own = self._of.get(connection)
        return (own is not None and channel in own.channels) or (
            self._channel_bytes + CHANNEL_BYTES + len(channel) <= NODE_CHANNEL_BYTES_MAX
        )

    def has_room(self, pattern: bytes) -> bool:
        """Return whether this node may know a pattern, too, or knows it already."""
        return pattern in self._patterns or (
            len(self._patterns) < NODE_PATTERNS_MAX
            and self._pattern_bytes + len(pattern) <= NODE_PATTERN_BYTES_MAX
        )

    def subscribe_pattern(self, connection: Connection, pattern: bytes) -> bool:
        """Subscribe a client to the channels that match a pattern; False if it has too many.

        The pattern has PATTERN_MAX_BYTES at most, and the node has room for it.
        """
        assert self.has_room(pattern)
        own = self._subscriptions(connection).patterns
        if len(own) >= PATTERNS_MAX and pattern not in own:
            return False
        own[pattern] = None
        known = self._patterns.get(pattern)
        if known is None:
            known = self._patterns[pattern] = _Known(pattern)
            self._pattern_bytes += len(pattern)
            self._fitting.clear()
        known.connections[connection] = None
        self._note()
        return True

    def unsubscribe(self, connection: Connection, channel: bytes) -> None:
        """Unsubscribe a client from a channel, if it was subscribed."""
        own = self._of.get(connection)
        if own is None or channel not in own.channels:
            return
        del own.channels[channel]
        self._channel_bytes -= CHANNEL_BYTES + len(channel)
        connections = self._channels[channel]
        del connections[connection]
        if not connections:
            del self._channels[channel]
        self._settle(connection, own)

    def unsubscribe_pattern(self, connection: Connection, pattern: bytes) -> None:
        """Unsubscribe a client from a pattern, if it was subscribed."""
        own = self._of.get(connection)
        if own is None or pattern not in own.patterns:
            return
        del own.patterns[pattern]
        known = self._patterns[pattern]
        del known.connections[connection]
        if not known.connections:
            del self._patterns[pattern]
            self._pattern_bytes -= len(pattern)
            self._fitting.clear()
        self._settle(connection, own)

    def forget(self, connection: Connection) -> None:
        """Remove all subscriptions of a connection that ended or was reset."""
        for channel in self.channels_of(connection):
            self.unsubscribe(connection, channel)
        for pattern in self.patterns_of(connection):
            self.unsubscribe_pattern(connection, pattern)

    def _subscriptions(self, connection: Connection) -> _Subscriptions:
        own = self._of.get(connection)
        if own is None:
            own = self._of[connection] = _Subscriptions()
        return own

    def _settle(self, connection: Connection, own: _Subscriptions) -> None:
        if not own.channels and not own.patterns:
            del self._of[connection]
        self._note()

    def _note(self) -> None:
        """Let the machine create messages only while there are subscribers."""
        self._context.machine.qless.heard = bool(self._of)

    # --- messages -------------------------------------------------------------------------------

    def image_loaded(self) -> None:
        """Adopt the machine of a snapshot; messages that it skipped are not delivered here."""
        self._note()

    def published(self, messages: list[Message]) -> None:
        """Deliver the messages of an entry, after the results of its commands.

        What is too much for one turn follows in the next ones, before later messages.
        """
        self._waiting += messages
        self._waiting_bytes += sum(map(_size, messages))
        is_late = len(self._waiting) > WAITING_MAX or self._waiting_bytes > WAITING_BYTES_MAX
        if is_late and self._of:
            most = max(map(self.count_of, self._of))
            for connection in [item for item in self._of if self.count_of(item) == most]:
                connection.abort()
        if not self._is_resting:
            self._deliver()

    def _deliver(self) -> None:
        self._is_resting = False
        self._left = DELIVERIES_PER_TURN_MAX
        while True:
            for _ in self._deliveries:
                if self._left <= 0:
                    break
            else:
                if not self._waiting:
                    self._fitting.clear()
                    return
                if self._left > 0:
                    self._begin(self._waiting.popleft())
                    continue
            self._is_resting = True
            self._context.host.call_soon(self._deliver)
            return

    def _begin(self, message: Message) -> None:
        size = _size(message)
        self._waiting_bytes -= size
        self._cost = 1 + size // BYTES_A_DELIVERY
        self._left -= 1  # also one that nobody gets takes time
        self._deliveries = self._deliveries_of(message)

    def _deliveries_of(self, message: Message) -> Iterator[None]:
        """Deliver a message to one more subscriber with each step."""
        name = CHANNEL_PREFIX + message[0]
        connections = self._channels.get(name, {})
        for connection in list(connections):
            if connection in connections:
                self._tell(connection, b"", name, message)
                yield
        for pattern, known in self._fitting_of(name):
            for connection in list(known.connections):
                if connection in known.connections:
                    self._tell(connection, pattern, name, message)
                    yield

    def _tell(self, connection: Connection, pattern: bytes, name: bytes, message: Message) -> None:
        self._left -= self._cost
        self.delivered_total += 1
        connection.published(pattern, name, message)

    def _fitting_of(self, name: bytes) -> list[tuple[bytes, _Known]]:
        """Return the patterns that match a channel, each with its subscribers.

        Several messages of an entry may be about one worker or job: each channel is matched once.
        """
        found = self._fitting.get(name)
        if found is None:
            self._left -= len(self._patterns) // PATTERNS_A_DELIVERY
            text = Text(name) if self._patterns else None
            found = [
                (pattern, known)
                for pattern, known in self._patterns.items()
                if text is not None and known.pattern.fits(text)
            ]
            if len(self._fitting) >= FITTING_MAX:
                self._fitting.clear()
            self._fitting[name] = found
        return found


def _size(message: Message) -> int:
    """Return the bytes of the texts of a message."""
    what = message[1]
    if isinstance(what, bytes):
        return len(what)
    return sum([len(value) for _, value in what if value])
