"""The client side of the beanstalk protocol: encode requests, parse replies.

For Beanpole's own clients, tools and tests. Parsing is strict: a reply that no beanstalk server
sends raises. Connections, timeouts and failover do not belong here.
"""

import re
from collections.abc import Collection
from typing import Any, Final

from beanpole.constants import DEDUP_KEY_MAX_BYTES, DEFAULT_TUBE, U32_MAX
from beanpole.errors import ProtocolError
from beanpole.protocol.beanstalk.requests import KEY_PATTERN, LINE_MAX_BYTES

# (word, arguments, body): arguments are ints, except tube names, which are bytes. The size of the
# body is not among the arguments. The body is None if the reply has none.
Reply = tuple[bytes, tuple[Any, ...], bytes | None]

# The possible numbers of arguments of each reply.
_ARGUMENTS: Final[dict[bytes, tuple[int, ...]]] = {
    b"INSERTED": (1,),
    b"BURIED": (0, 1),
    b"EXPECTED_CRLF": (0,),
    b"JOB_TOO_BIG": (0,),
    b"DRAINING": (0,),
    b"USING": (1,),
    b"RESERVED": (2,),
    b"DEADLINE_SOON": (0,),
    b"TIMED_OUT": (0,),
    b"DELETED": (0,),
    b"NOT_FOUND": (0,),
    b"RELEASED": (0,),
    b"TOUCHED": (0,),
    b"WATCHING": (1,),
    b"NOT_IGNORED": (0,),
    b"FOUND": (2,),
    b"KICKED": (0, 1),
    b"OK": (1,),
    b"PAUSED": (0,),
    b"OUT_OF_MEMORY": (0,),
    b"INTERNAL_ERROR": (0,),
    b"BAD_FORMAT": (0,),
    b"UNKNOWN_COMMAND": (0,),
    b"EXISTS": (1,),
    b"KEPT": (0,),
    b"RESUMED": (1,),
    b"ACCEPTED": (0,),
    b"DENIED": (0,),
}
_match_key = re.compile(KEY_PATTERN).fullmatch
REPLY_WORDS: Final = frozenset(_ARGUMENTS)
# Replies whose last argument is the size of the body.
_WITH_BODY: Final = frozenset({b"RESERVED", b"FOUND", b"OK", b"RESUMED"})
# The largest payload is a list of all tubes: 100,000 names of 200 bytes are 20 MB. A larger size is
# taken for bytes of another protocol and rejected before memory is allocated.
REPLY_BODY_MAX_BYTES: Final = 64 * 1024 * 1024


def encode(word: bytes, *arguments: int | bytes) -> bytes:
    """Encode one request without a body, such as `encode(b"release", 7, 1024, 0)`.

    Raises:
        ValueError: an argument contains a CR or LF, which would begin a second request.
    """
    texts = [b"%d" % item if isinstance(item, int) else item for item in arguments]
    line = b" ".join([word, *texts])
    if b"\r" in line or b"\n" in line:
        raise ValueError(f"a request may not contain a line's end: {line!r}")
    return line + b"\r\n"


def encode_put(body: bytes, priority: int, delay_s: int, ttr_s: int) -> bytes:
    """Encode a put with its body.

    Raises:
        ValueError: a number is out of range. A server answers BAD_FORMAT to such a line and reads
            the body as commands, as beanstalkd does.
    """
    _check_numbers(priority, delay_s, ttr_s)
    return b"put %d %d %d %d\r\n%b\r\n" % (priority, delay_s, ttr_s, len(body), body)


def encode_put_unique(key: bytes, body: bytes, priority: int, delay_s: int, ttr_s: int) -> bytes:
    """Encode a put that is idempotent because of its key.

    Raises:
        ValueError: the key is malformed, or a number is out of range.
    """
    _check_numbers(priority, delay_s, ttr_s)
    if not _match_key(key):
        raise ValueError(f"a key has 1 to {DEDUP_KEY_MAX_BYTES} printable bytes: {key!r}")
    numbers = (key, priority, delay_s, ttr_s, len(body), body)
    return b"put-unique %b %d %d %d %d\r\n%b\r\n" % numbers


def encode_tubes(used: bytes, watched: Collection[bytes]) -> list[bytes]:
    """Encode the requests after which a new connection uses and watches these tubes."""
    requests = [encode(b"use", used)] if used != DEFAULT_TUBE else []
    requests += [encode(b"watch", tube) for tube in watched if tube != DEFAULT_TUBE]
    if DEFAULT_TUBE not in watched:
        requests.append(encode(b"ignore", DEFAULT_TUBE))
    return requests


def extensions_of(reply: Reply) -> frozenset[bytes]:
    """Return the names in the reply to `extensions`; none of a server that does not know it.

    Raises:
        ProtocolError: the reply tells nothing about extensions. A node with too many clients
            answers OUT_OF_MEMORY to the first command, whatever it is.
    """
    if reply[0] not in (b"OK", b"UNKNOWN_COMMAND"):
        raise ProtocolError(f"its extensions are not known: {reply[0].decode()}")
    lines = (reply[2] or b"").split(b"\n")
    return frozenset([line[2:] for line in lines if line.startswith(b"- ")])


def _check_numbers(priority: int, delay_s: int, ttr_s: int) -> None:
    for name, number in (("priority", priority), ("delay", delay_s), ("ttr", ttr_s)):
        if not 0 <= number <= U32_MAX:
            raise ValueError(f"{name} must be from 0 to {U32_MAX}, and is {number}")


class ReplyParser:
    """Parses the bytes of a server into replies."""

    __slots__ = ("_data", "_offset", "_wanted_bytes")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offset = 0
        # With fewer bytes after the offset than this, the next reply is certainly incomplete.
        self._wanted_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add bytes received from the server."""
        if self._offset:
            del self._data[: self._offset]
            self._offset = 0
        self._data += data

    @property
    def is_empty(self) -> bool:
        """Whether no byte is left after the last reply."""
        return len(self._data) == self._offset

    def next(self) -> Reply | None:
        """Return the next reply, or None if it is incomplete.

        Raises:
            ProtocolError: this is no reply of a beanstalk server. The connection must be closed,
                because the beginning of the next reply is unknown.
        """
        data = self._data
        start = self._offset
        if len(data) - start < self._wanted_bytes:
            return None
        end = data.find(b"\r\n", start, start + LINE_MAX_BYTES)
        if end < 0:
            if len(data) - start >= LINE_MAX_BYTES:
                raise ProtocolError(f"the reply is too long: {bytes(data[start : start + 40])!r}")
            return None
        word, arguments = _read_line(bytes(data[start:end]))
        end += 2
        body = None
        if word in _WITH_BODY:
            *arguments, size = arguments
            if size > REPLY_BODY_MAX_BYTES:
                raise ProtocolError(f"a reply with {size} bytes; at most {REPLY_BODY_MAX_BYTES}")
            if len(data) < end + size + 2:
                self._wanted_bytes = end + size + 2 - start
                return None
            body = bytes(data[end : end + size])
            end += size + 2
            if data[end - 2 : end] != b"\r\n":
                raise ProtocolError(f"the body of {word!r} does not end after {size} bytes")
        self._wanted_bytes = 0
        self._offset = end
        return (word, tuple(arguments), body)


def _read_line(line: bytes) -> tuple[bytes, list[Any]]:
    """Split and validate the first line of a reply."""
    word, *arguments = line.split(b" ")
    if len(arguments) not in _ARGUMENTS.get(word, ()):
        raise ProtocolError(f"no reply of a beanstalk server: {line!r}")
    if word == b"USING":
        return word, [arguments[0]]
    if not all(argument.isdigit() for argument in arguments):
        raise ProtocolError(f"a number is missing in the reply {line!r}")
    return word, [int(argument) for argument in arguments]
