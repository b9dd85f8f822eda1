"""The server's side of the Workq protocol: bytes of a client in, request tuples out.

No input makes the parser raise, and how the bytes are cut into pieces never changes the requests.
What is cut here are lines, payloads and the end of what can be understood; what they say is read in
`lines`.

A payload that is longer or shorter than its line says is one error, and what stands behind the
bytes that the line asked for is read as the next line, as the server does: it is usually one error
more. A line that ends in a bare LF, and a command above the limit, close the connection.
"""

from typing import Final

from beanpole.protocol.workq import lines
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.requests import Request

_END: Final = b"\r\n"
_CLOSE: Final = (r.CLOSE,)


class Parser:
    """Turns the bytes of one connection into requests.

    It keeps what was fed and not yet asked for without a bound: its owner looks at
    `buffered_bytes` and stops reading. An unfinished command is bounded by itself.
    """

    __slots__ = ("_closed", "_data", "_head", "_is_unfinished", "_line_bytes", "_offset", "_seen")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offset = 0  # what stands before it is parsed
        self._seen = 0  # up to here the unfinished line has no end
        self._head: lines.Head | None = None  # a line whose payload is not all here
        self._line_bytes = 0  # of that line, with its end
        self._is_unfinished = False
        self._closed = False

    @property
    def buffered_bytes(self) -> int:
        """The bytes received that nobody asked for yet, but none of an unfinished command."""
        return 0 if self._is_unfinished else len(self._data) - self._offset

    def feed(self, data: bytes) -> None:
        """Take bytes from the client; ask `next` until it has no more requests."""
        if self._closed:
            return
        if self._offset:
            del self._data[: self._offset]
            self._seen -= self._offset
            self._offset = 0
        self._data += data

    def next(self) -> Request | None:
        """Return the next request, or None if its bytes are not all here."""
        self._is_unfinished = False
        if self._closed:
            return None
        head = self._head
        if head is None:
            start = self._offset
            end = self._data.find(b"\n", max(start, self._seen), start + r.COMMAND_MAX_BYTES)
            if end < 0:
                if len(self._data) - start >= r.COMMAND_MAX_BYTES:
                    return self._close()
                self._seen = len(self._data)
                self._is_unfinished = True
                return None
            if end == start or self._data[end - 1] != 13:
                return self._close()
            read = lines.read_line(bytes(self._data[start : end - 1]))
            self._line_bytes = end + 1 - start
            self._offset = self._seen = end + 1
            if not isinstance(read, lines.Head):
                return read
            head = read
        return self._next_with(head)

    def _next_with(self, head: lines.Head) -> Request | None:
        """The request of a line and the payload behind it."""
        size_bytes = head.size + len(_END)
        if self._line_bytes + size_bytes > r.COMMAND_MAX_BYTES:
            return self._close()
        start = self._offset
        end = start + head.size
        if len(self._data) - start < size_bytes:
            self._head = head
            self._is_unfinished = True
            return None
        self._head = None
        self._offset = self._seen = start + size_bytes
        if not self._data.startswith(_END, end):
            return lines.bad_size(head.kind)
        return lines.read_payload(head, bytes(self._data[start:end]))

    def _close(self) -> Request:
        self._closed = True
        self._data = bytearray()
        self._offset = self._seen = 0
        self._head = None
        return _CLOSE
