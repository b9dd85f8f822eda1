"""The subscriptions of a connection, and the delivery of messages to it.

The index of all subscriptions is in `publications`. A RESP2 client with subscriptions may do little
else, as in Redis: its messages could not be told from replies. A RESP3 client gets messages between
its replies.
"""

from typing import Final

from beanpole.protocol.resp.globs import PATTERN_MAX_BYTES
from beanpole.protocol.resp.values import RESP2, Error, Push
from beanpole.qless import NAME_MAX_BYTES, Message
from beanpoled.frontends.clients import NO_RIGHT
from beanpoled.frontends.publications import (
    CHANNEL_PREFIX,
    CHANNELS_MAX,
    NODE_CHANNEL_BYTES_MAX,
    NODE_PATTERN_BYTES_MAX,
    NODE_PATTERNS_MAX,
    PATTERNS_MAX,
)
from beanpoled.frontends.qless.calls import LONG_PATTERN, PREFIX
from beanpoled.frontends.qless.flushing import FlushSide

# The names of queues in a message: that of the job, and the one to which it goes.
_QUEUES: Final = (b"queue", b"to")
# `ql:w:` and the name of a worker.
CHANNEL_MAX_BYTES: Final = len(CHANNEL_PREFIX) + len(b"w:") + NAME_MAX_BYTES

LONG_CHANNEL: Final = Error(b"ERR a channel has %d bytes at most" % CHANNEL_MAX_BYTES)
TOO_MANY_CHANNELS: Final = Error(b"ERR a client has %d channels at most" % CHANNELS_MAX)
TOO_MANY_PATTERNS: Final = Error(b"ERR a client has %d patterns at most" % PATTERNS_MAX)
NODE_IS_FULL: Final = Error(
    b"ERR a node has %d different patterns, and %d bytes of them, at most"
    % (NODE_PATTERNS_MAX, NODE_PATTERN_BYTES_MAX)
)
NO_CHANNEL_ROOM: Final = Error(
    b"ERR the channels of all clients of a node take %d bytes at most" % NODE_CHANNEL_BYTES_MAX
)
NOT_PUBLISHED: Final = Error(b"ERR only the cluster publishes: nobody was told")


class SubscriberSide(FlushSide):
    """A connection that can subscribe to publications."""

    __slots__ = ()

    @property
    def is_restricted(self) -> bool:
        """Whether the client may only change its subscriptions, because it has some."""
        return self.version == RESP2 and self._clients.publications.count_of(self) > 0

    def subscribe(self, arguments: list[bytes]) -> None:
        """SUBSCRIBE channel..."""
        publications = self._clients.publications
        if not self._has_some_right():
            self.say(self._deny())
            return
        for channel in arguments[1:]:
            if len(channel) > CHANNEL_MAX_BYTES:
                self.say(LONG_CHANNEL)
            elif not publications.has_channel_room(self, channel):
                self.say(NO_CHANNEL_ROOM)
            elif publications.subscribe(self, channel):
                self._confirm(b"subscribe", channel)
            else:
                self.say(TOO_MANY_CHANNELS)

    def psubscribe(self, arguments: list[bytes]) -> None:
        """PSUBSCRIBE pattern..."""
        publications = self._clients.publications
        if not self._has_some_right():
            self.say(self._deny())
            return
        for pattern in arguments[1:]:
            if len(pattern) > PATTERN_MAX_BYTES:
                self.say(LONG_PATTERN)
            elif not publications.has_room(pattern):
                self.say(NODE_IS_FULL)
            elif publications.subscribe_pattern(self, pattern):
                self._confirm(b"psubscribe", pattern)
            else:
                self.say(TOO_MANY_PATTERNS)

    def rights_changed(self) -> int:
        """See `Connection`. A subscriber loses its connection, as in Redis."""
        if self._clients.publications.count_of(self) and not (
            self.closed or self._has_some_right()
        ):
            self._clients.refused_client(NO_RIGHT)
            self.drop()
        return 1

    def unsubscribe(self, arguments: list[bytes]) -> None:
        """UNSUBSCRIBE [channel...]; without any: all."""
        publications = self._clients.publications
        channels = arguments[1:] or publications.channels_of(self)
        for channel in channels:
            publications.unsubscribe(self, channel)
            self._confirm(b"unsubscribe", channel)
        if not channels:
            self._confirm(b"unsubscribe", None)

    def punsubscribe(self, arguments: list[bytes]) -> None:
        """PUNSUBSCRIBE [pattern...]; without any: all."""
        publications = self._clients.publications
        patterns = arguments[1:] or publications.patterns_of(self)
        for pattern in patterns:
            publications.unsubscribe_pattern(self, pattern)
            self._confirm(b"punsubscribe", pattern)
        if not patterns:
            self._confirm(b"punsubscribe", None)

    def publish(self, arguments: list[bytes]) -> None:
        """PUBLISH: refused, as publications follow from the log."""
        self.say(NOT_PUBLISHED)

    def published(self, pattern: bytes, channel: bytes, message: Message) -> None:
        """See `Connection`."""
        if not self.closed and self._may_hear_of(message[1]):
            self._push(self._shared.published(self.version, pattern, channel, message))

    def _may_hear_of(self, what: "bytes | tuple[tuple[bytes, bytes | None], ...]") -> bool:
        """Whether the user has a right in a queue of a message.

        A message that names no queue has that of its job. One about no job, or only with the jid of
        a job that is gone, is for everybody.
        """
        machine = self._clients.machine
        if not machine.users.rows:
            return True
        user = machine.users.of(self.user, self.token)
        if user.on_all_of(PREFIX):
            return True
        pairs = ((b"jid", what),) if isinstance(what, bytes) else what
        named = [name for key, name in pairs if name and key in _QUEUES]
        if not named:
            jid = dict(pairs).get(b"jid")
            job = machine.qless.jobs.get(jid) if jid else None
            if job is None:
                return not jid or isinstance(what, bytes)
            named = [job.queue or job.completed_in]
        return any(user.on(PREFIX + name) for name in named)

    def _confirm(self, what: bytes, name: bytes | None) -> None:
        self.say(Push([what, name, self._clients.publications.count_of(self)]))
