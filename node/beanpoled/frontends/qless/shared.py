"""What the connections of one node share: counters, scripts, the bytes of what is published."""

from typing import Final

from beanpole.protocol.qless import answers
from beanpole.protocol.resp.values import Push, encode
from beanpole.qless import CALL_NAMES, REFUSALS, Message
from beanpoled.frontends.qless.scripts import Scripts

# Kinds of errors of requests that become no call. What is no call of a script is a command.
NO_SCRIPT: Final = "no_script"
UNSUPPORTED_SCRIPT: Final = "unsupported_script"
ARGUMENTS: Final = "arguments"
COMMAND: Final = "command"
DRAINING: Final = "draining"
NO_MAJORITY: Final = "no_majority"
ERRORS: Final = (NO_SCRIPT, UNSUPPORTED_SCRIPT, ARGUMENTS, COMMAND, DRAINING, NO_MAJORITY)


class Shared:
    """Of one node.

    Attributes:
        counts: how often each command came, by its name.
        calls: how often each call came, by its code.
        errors: how often a request was refused, by the kind of error.
        scripts: what clients have loaded.
        connections: how many there were; the last one's number.
        started_us: the wall time at which this began.
    """

    def __init__(self, started_us: int) -> None:
        self.counts: dict[bytes, int] = {}
        self.calls = dict.fromkeys(CALL_NAMES, 0)
        self.errors = dict.fromkeys((*REFUSALS.values(), *ERRORS), 0)
        self.scripts = Scripts()
        self.connections = 0
        self.started_us = started_us
        self._message: Message | None = None
        self._encoded: dict[tuple[int, bytes], bytes] = {}

    def published(self, version: int, pattern: bytes, channel: bytes, message: Message) -> bytes:
        """Write what is published. Thousands of clients that hear of it share its bytes."""
        if message is not self._message:
            self._message = message
            self._encoded.clear()
        known = self._encoded.get((version, pattern))
        if known is None:
            text = answers.message(message[1])
            items = (
                [b"pmessage", pattern, channel, text] if pattern else [b"message", channel, text]
            )
            known = self._encoded[version, pattern] = encode(Push(items), version)
        return known
