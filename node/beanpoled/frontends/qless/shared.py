"""State shared by the connections of one node: counters, scripts, the bytes of publications."""

from typing import Final

from beanpole.protocol.qless import answers
from beanpole.protocol.resp.values import Push, encode
from beanpole.qless import CALL_NAMES, REFUSALS, Message
from beanpoled.frontends.qless.scripts import Scripts

# Kinds of errors of requests that do not become a call. COMMAND is for those without a script.
NO_SCRIPT: Final = "no_script"
UNSUPPORTED_SCRIPT: Final = "unsupported_script"
ARGUMENTS: Final = "arguments"
COMMAND: Final = "command"
DRAINING: Final = "draining"
NO_MAJORITY: Final = "no_majority"
ERRORS: Final = (NO_SCRIPT, UNSUPPORTED_SCRIPT, ARGUMENTS, COMMAND, DRAINING, NO_MAJORITY)

# A text above this size is kept for one pattern at a time, in both versions of RESP: there may be a
# thousand patterns, and megabytes of text.
LARGE_BYTES: Final = 16 * 1024
VERSIONS: Final = 2


class Shared:
    """The shared state of one node.

    Attributes:
        counts: the number of requests of each command, by name.
        calls: the number of calls, by code.
        errors: the number of refused requests, by the kind of error.
        scripts: the scripts that clients have loaded.
        connections: the number of connections so far, which is the number of the newest.
        started_us: the loop time at which the node started.
    """

    def __init__(self, started_us: int) -> None:
        self.counts: dict[bytes, int] = {}
        self.calls = dict.fromkeys(CALL_NAMES, 0)
        self.errors = dict.fromkeys((*REFUSALS.values(), *ERRORS), 0)
        self.scripts = Scripts()
        self.connections = 0
        self.started_us = started_us
        self._message: Message | None = None
        self._text = b""  # of that message
        self._encoded: dict[tuple[int, bytes], bytes] = {}

    def published(self, version: int, pattern: bytes, channel: bytes, message: Message) -> bytes:
        """Return the bytes of a message, cached, as thousands of clients may be subscribed."""
        if message is not self._message:
            self._message = message
            self._text = answers.message(message[1])
            self._encoded.clear()
        known = self._encoded.get((version, pattern))
        if known is None:
            items = [b"pmessage", pattern, channel] if pattern else [b"message", channel]
            items.append(self._text)
            if len(self._text) > LARGE_BYTES and len(self._encoded) >= VERSIONS:
                self._encoded.clear()  # of the patterns before: one comes after the other
            known = self._encoded[version, pattern] = encode(Push(items), version)
        return known
