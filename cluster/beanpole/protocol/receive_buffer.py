"""The receive buffer of a connection, the base of the parsers of several protocols.

Each byte is copied a bounded number of times: parsing moves an offset over the received piece,
bytes fed meanwhile wait in a second buffer, and an unfinished body grows in a third. The meaning of
the bytes belongs into each parser.
"""


class ReceiveBuffer:
    """The piece being parsed, the bytes fed after it, and one incomplete body.

    The fed bytes are not bounded here: the owner checks `buffered_bytes` and stops reading. The
    parser bounds the body before it sets `_missing_bytes`, and every other incomplete request.
    """

    __slots__ = ("_body", "_data", "_fed", "_missing_bytes", "_offset")

    def __init__(self) -> None:
        """Begin empty."""
        self._data = b""
        self._offset = 0  # everything before it is parsed
        self._fed = bytearray()
        self._body = bytearray()
        self._missing_bytes = 0  # of the body

    @property
    def buffered_bytes(self) -> int:
        """The number of received bytes that are not parsed yet, without the incomplete body."""
        return len(self._data) - self._offset + len(self._fed)

    @property
    def unfinished_bytes(self) -> int:
        """The number of received bytes of a request whose end has not arrived."""
        return len(self._body)

    def feed(self, data: bytes) -> None:
        """Add bytes received from the client."""
        if self._fed or self._offset < len(self._data):
            self._fed += data
        else:
            self._data = data
            self._offset = 0

    def _take_fed(self) -> bool:
        """Append the fed bytes to the piece being parsed; return whether there were any.

        The rest of the piece is copied, so a parser calls this when the rest is less than a line.
        """
        rest = self._data[self._offset :]
        self._offset = 0
        if not self._fed:
            self._data = rest
            return False
        self._data = rest + self._fed
        self._fed = bytearray()
        return True

    def _collect_body(self) -> bool:
        """Move received bytes to the body; return whether the body is complete."""
        while True:
            part = self._data[self._offset : self._offset + self._missing_bytes]
            self._offset += len(part)
            self._missing_bytes -= len(part)
            self._body += part
            if not self._missing_bytes:
                return True
            if not self._take_fed():
                return False
