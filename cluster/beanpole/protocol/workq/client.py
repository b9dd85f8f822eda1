"""The client side of the Workq protocol: encode requests, parse replies.

For Beanpole's own clients, tools and tests. Parsing is strict: a reply that Beanpole does not send
raises. Connections, time-outs and failover do not belong here.

The format of a reply depends on the request, so the caller passes the expected shape to `next`.
"""

from typing import Final, NamedTuple

from beanpole.errors import ProtocolError
from beanpole.protocol.workq.requests import PAYLOAD_MAX_BYTES

# --- the shapes of a reply after +OK -------------------------------------------------------------
PLAIN: Final = 0  # nothing
SIZED: Final = 1  # of lease, run and result: a line whose last word is the size of the body
BLOCKS: Final = 2  # of inspect

# A line has at most a name, an id and some numbers; a longer one belongs to another protocol.
LINE_MAX_BYTES: Final = 1024
# Payloads and results have at most 1 MiB in Beanpole; other servers may allow more. A larger size
# is rejected before memory is allocated.
BODY_MAX_BYTES: Final = 16 * 1024 * 1024
_BODY_KEY: Final = b"payload"
_BODY_SIZE_KEY: Final = b"payload-size"
_ERRORS: Final = (b"CLIENT-ERROR", b"SERVER-ERROR", b"TIMEOUT", b"NOT-FOUND")


class Block(NamedTuple):
    """One item in the reply of an inspect."""

    title: bytes
    keys: dict[bytes, bytes]


class Reply(NamedTuple):
    """The reply of a server.

    Attributes:
        word: b"OK", or the word of an error.
        text: the text after the word of an error.
        line: the words of a SIZED reply, without the size.
        body: the body of a SIZED reply.
        blocks: the blocks of a reply with the shape BLOCKS.
    """

    word: bytes
    text: bytes = b""
    line: tuple[bytes, ...] = ()
    body: bytes = b""
    blocks: tuple[Block, ...] = ()


def encode(*words: int | bytes, flags: dict[bytes, int] | None = None) -> bytes:
    """Encode one request without a payload, such as `encode(b"lease", b"mail", 1000)`.

    Flags with the value 0 are omitted, because 0 is their default.

    Raises:
        ValueError: a word is empty, contains a space, CR or LF, which would split it, or is a flag.
    """
    texts = [b"%d" % word if isinstance(word, int) else word for word in words]
    for text in texts:
        if not text or set(text) & set(b" \r\n") or (text.startswith(b"-") and b"=" in text):
            raise ValueError(f"not a word of a request: {text!r}")
    texts += [b"-%b=%d" % item for item in (flags or {}).items() if item[1]]
    return b" ".join(texts) + b"\r\n"


def encode_with(
    payload: bytes, *words: int | bytes, flags: dict[bytes, int] | None = None
) -> bytes:
    """Encode one request with a payload, and append the size to the words.

    Raises:
        ValueError: see `encode`; or the payload is too large. A server that refuses the size parses
            the payload as a line and sends a second reply.
    """
    if len(payload) > PAYLOAD_MAX_BYTES:
        raise ValueError(f"a payload of {len(payload)} bytes; {PAYLOAD_MAX_BYTES} are allowed")
    return encode(*words, len(payload), flags=flags) + payload + b"\r\n"


class _Short(Exception):
    """The reply is incomplete."""


class _Cursor:
    """A position in the received bytes."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        self.place = 0

    def line(self) -> bytes:
        """Read a line and return it without its end."""
        start = self.place
        end = self._data.find(b"\r\n", start, start + LINE_MAX_BYTES)
        if end < 0:
            if len(self._data) - start >= LINE_MAX_BYTES:
                begin = bytes(self._data[start : start + 40])
                raise ProtocolError(f"a line of the reply is too long: {begin!r}")
            raise _Short
        self.place = end + 2
        return bytes(self._data[start:end])

    def skip(self, word: bytes) -> None:
        """Read exactly these bytes."""
        found = bytes(self._data[self.place : self.place + len(word)])
        if not word.startswith(found):
            raise ProtocolError(f"{word!r} is missing in the reply at {found!r}")
        if found != word:
            raise _Short
        self.place += len(word)

    def body(self, size: int) -> bytes:
        """Read a body of `size` bytes and the CRLF after it."""
        if size > BODY_MAX_BYTES:
            raise ProtocolError(f"a reply with {size} bytes; at most {BODY_MAX_BYTES}")
        end = self.place + size
        if len(self._data) < end + 2:
            raise _Short
        body = bytes(self._data[self.place : end])
        if self._data[end : end + 2] != b"\r\n":
            raise ProtocolError(f"a body of the reply does not end after {size} bytes")
        self.place = end + 2
        return body


class ReplyParser:
    """Parses the bytes of a server into replies."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes received from the server."""
        self._data += data

    def next(self, shape: int) -> Reply | None:
        """Return the reply to the oldest request, or None if it is incomplete.

        Args:
            shape: the shape of the expected reply: PLAIN, SIZED or BLOCKS.

        Raises:
            ProtocolError: this is no reply to such a request. The connection must be closed,
                because the beginning of the next reply is unknown.
        """
        cursor = _Cursor(self._data)
        try:
            reply = _read(cursor, shape)
        except _Short:
            return None
        del self._data[: cursor.place]
        return reply


def _read(cursor: _Cursor, shape: int) -> Reply:
    line = cursor.line()
    if line.startswith(b"-"):
        word, _, text = line[1:].partition(b" ")
        if word in _ERRORS:
            return Reply(word, text)
    elif shape == PLAIN:
        if line == b"+OK":
            return Reply(b"OK")
    elif line.startswith(b"+OK ") and line[4:].isdigit():
        count = int(line[4:])
        if shape == BLOCKS:
            return Reply(b"OK", blocks=tuple([_read_block(cursor) for _ in range(count)]))
        if count == 1:
            *words, size = cursor.line().split(b" ")
            return Reply(b"OK", line=tuple(words), body=cursor.body(_number(size)))
    raise ProtocolError(f"no reply of a Workq server: {line!r}")


def _read_block(cursor: _Cursor) -> Block:
    title, _, count = cursor.line().partition(b" ")
    keys: dict[bytes, bytes] = {}
    for _ in range(_number(count)):
        if _BODY_SIZE_KEY in keys and _BODY_KEY not in keys:
            # The payload may contain CRLF.
            cursor.skip(_BODY_KEY + b" ")
            keys[_BODY_KEY] = cursor.body(_number(keys[_BODY_SIZE_KEY]))
        else:
            key, _, value = cursor.line().partition(b" ")
            keys[key] = value
    return Block(title, keys)


def _number(digits: bytes) -> int:
    if not digits.isdigit() or len(digits) > LINE_MAX_BYTES:
        raise ProtocolError(f"a number is missing in the reply: {digits!r}")
    return int(digits)
