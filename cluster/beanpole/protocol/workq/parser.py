"""The server side of the Workq protocol: parse the bytes of a client into request tuples.

No input makes the parser raise, and the requests do not depend on how the bytes are split into
pieces. The stream is split into lines and payloads here; `lines` parses them.

A payload that does not have the size in its line is an error. The bytes after that size are parsed
as the next line, as in the original server, which usually causes a second error. A line that ends
with a bare LF, or a command above the limit, closes the connection.
"""

from typing import Final

from beanpole.protocol.workq import lines
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.requests import Request

_END: Final = b"\r\n"
_CLOSE: Final = (r.CLOSE,)


class Parser:
    """Parses the bytes of one connection into requests.

    The buffer of fed bytes is not bounded: the owner checks `buffered_bytes` and stops reading. An
    incomplete command is bounded by its own limit.
    """

    __slots__ = ("_closed", "_data", "_head", "_is_unfinished", "_line_bytes", "_offset", "_seen")

    def __init__(self) -> None:
        self._data = bytearray()
        self._offset = 0  # everything before it is parsed
        self._seen = 0  # up to here the incomplete line has no end
        self._head: lines.Head | None = None  # the line of an incomplete payload
        self._line_bytes = 0  # the size of that line, with its end
        self._is_unfinished = False
        self._closed = False

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes not parsed yet; 0 if they are one incomplete command."""
        return 0 if self._is_unfinished else len(self._data) - self._offset

    @property
    def unfinished_bytes(self) -> int:
        """The number of received bytes of a command whose end has not arrived."""
        return len(self._data) - self._offset if self._is_unfinished else 0

    def feed(self, data: bytes) -> None:
        """Add bytes received from the client; then call `next` until it returns None."""
        if self._closed:
            return
        if self._offset:
            del self._data[: self._offset]
            self._seen -= self._offset
            self._offset = 0
        self._data += data

    def next(self) -> Request | None:
        """Return the next request, or None if it is incomplete."""
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
        """Return the request of a line and its payload, or None if it is incomplete."""
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
