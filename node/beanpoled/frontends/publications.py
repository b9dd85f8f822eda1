"""Clients of this node that are subscribed to channels, or to patterns of channels.

The machine publishes the same messages on every node, in the order of the log; a node without
subscribers does not even create them. Delivery is at most once: a client misses the messages that
are published while it has no connection, or while its node loads a snapshot. The package of each
protocol formats the messages.
"""

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
        self._of: dict[Connection, _Subscriptions] = {}
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
        """Subscribe a client to a channel; return False if it has too many."""
        own = self._subscriptions(connection).channels
        if len(own) >= CHANNELS_MAX and channel not in own:
            return False
        own[channel] = None
        self._channels.setdefault(channel, {})[connection] = None
        self._note()
        return True

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
        known.connections[connection] = None
        self._note()
        return True

    def unsubscribe(self, connection: Connection, channel: bytes) -> None:
        """Unsubscribe a client from a channel, if it was subscribed."""
        own = self._of.get(connection)
        if own is None or channel not in own.channels:
            return
        del own.channels[channel]
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
        """Deliver the messages of an entry, after the results of its commands."""
        # By channel, as several messages of an entry may be about one worker or job.
        fitting: dict[bytes, list[tuple[bytes, _Known]]] = {}
        for message in messages:
            name = CHANNEL_PREFIX + message[0]
            for connection in list(self._channels.get(name, ())):
                self.delivered_total += 1
                connection.published(b"", name, message)
            if name not in fitting:
                fitting[name] = self._fitting(name)
            for pattern, known in fitting[name]:
                for connection in list(known.connections):
                    self.delivered_total += 1
                    connection.published(pattern, name, message)

    def _fitting(self, name: bytes) -> list[tuple[bytes, _Known]]:
        """Return the patterns that match a channel, each with its subscribers."""
        if not self._patterns:
            return []
        text = Text(name)
        return [(pattern, k) for pattern, k in self._patterns.items() if k.pattern.fits(text)]
