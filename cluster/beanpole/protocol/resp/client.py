"""The client side of RESP2: encode requests, parse replies. Does no I/O."""

from collections.abc import Sequence
from typing import Final

from beanpole.errors import ProtocolError
from beanpole.protocol.resp.values import Error

# The default limit of a bulk string in Redis.
BULK_MAX_BYTES: Final = 512 * 1024 * 1024
# A line is a number, a status, or an error with its text.
LINE_MAX_BYTES: Final = 64 * 1024
# Members of one list or set, and the depth of nested lists; no request here has a deeper reply.
ITEMS_MAX: Final = 16 * 1024 * 1024
DEPTH_MAX: Final = 8

# bytes are a bulk string or a simple string.
Reply = bytes | int | Error | None | list["Reply"]


def encode(words: Sequence[bytes]) -> bytes:
    """Encode a request."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


class _List:
    """An incomplete list; `left` items are missing."""

    __slots__ = ("items", "left")

    def __init__(self, left: int) -> None:
        self.left = left
        self.items: list[Reply] = []


class ReplyParser:
    """Parses the bytes of a server into replies."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._offset = 0
        self._bulk = -1  # the length of the incomplete bulk string; -1 if there is none
        self._open: list[_List] = []

    def feed(self, data: bytes) -> None:
        """Add bytes received from the server."""
        del self._data[: self._offset]
        self._offset = 0
        self._data += data

    def next(self) -> tuple[Reply] | None:
        """Return the next reply, in a tuple because it may be None; None if it is incomplete.

        Raises:
            ProtocolError: this is no reply. The connection must be closed, because the beginning of
                the next reply is unknown.
        """
        while True:
            found = self._take_bulk() if self._bulk >= 0 else self._take_line()
            if found is None:
                return None
            if not found:
                continue
            value: Reply = found[0]
            while self._open:
                inner = self._open[-1]
                inner.items.append(value)
                inner.left -= 1
                if inner.left:
                    break
                value = self._open.pop().items
            else:
                return (value,)

    def _take_bulk(self) -> "tuple[Reply] | None":
        end = self._offset + self._bulk
        if len(self._data) < end + 2:
            return None
        if self._data[end : end + 2] != b"\r\n":
            raise ProtocolError(f"a string of the reply does not end after {self._bulk} bytes")
        value = bytes(self._data[self._offset : end])
        self._offset = end + 2
        self._bulk = -1
        return (value,)

    def _take_line(self) -> "tuple[Reply] | tuple[()] | None":
        """Return the value of a line; () if the line begins a value; None if it is incomplete."""
        end = self._data.find(b"\r\n", self._offset, self._offset + LINE_MAX_BYTES)
        if end < 0:
            if len(self._data) - self._offset >= LINE_MAX_BYTES:
                raise ProtocolError("a line of the reply is too long")
            return None
        kind = self._data[self._offset : self._offset + 1]
        text = bytes(self._data[self._offset + 1 : end])
        self._offset = end + 2
        if kind == b"+":
            return (text,)
        if kind == b"-":
            return (Error(text),)
        if kind == b":":
            return (_number(text),)
        if kind == b"$":
            return self._begin_bulk(_number(text))
        if kind == b"*":
            return self._begin_list(_number(text))
        raise ProtocolError(f"no reply of a Redis: {bytes(kind) + text[:40]!r}")

    def _begin_bulk(self, size: int) -> "tuple[Reply] | tuple[()]":
        if size < 0:
            return (None,)
        if size > BULK_MAX_BYTES:
            raise ProtocolError(f"a string of {size} bytes; at most {BULK_MAX_BYTES}")
        self._bulk = size
        return ()

    def _begin_list(self, count: int) -> "tuple[Reply] | tuple[()]":
        if count < 0:
            return (None,)
        if count > ITEMS_MAX or len(self._open) >= DEPTH_MAX:
            raise ProtocolError(f"a list of {count} items; at most {ITEMS_MAX}, {DEPTH_MAX} deep")
        if count == 0:
            return ([],)
        self._open.append(_List(count))
        return ()


def _number(text: bytes) -> int:
    digits = text.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 20:
        raise ProtocolError(f"a number is missing in the reply: {text[:40]!r}")
    return int(text)
