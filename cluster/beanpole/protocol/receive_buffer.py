"""The bytes of a client that nobody has parsed: what the parsers of several protocols stand on.

Each byte is copied a bounded number of times: parsing moves an offset over the piece that was
received, what is fed meanwhile waits beside it, and an unfinished body grows in its own buffer.
What the bytes mean is in each parser.
"""


class ReceiveBuffer:
    """The piece under work, what was fed behind it, and one body that is not all here.

    What was fed has no bound: the owner looks at `unparsed_bytes` and stops reading. The parser
    bounds the body before it sets `_missing_bytes`.
    """

    __slots__ = ("_body", "_data", "_fed", "_missing_bytes", "_offset")

    def __init__(self) -> None:
        """Begin empty."""
        self._data = b""
        self._offset = 0  # what stands before it is parsed
        self._fed = bytearray()
        self._body = bytearray()
        self._missing_bytes = 0  # of the body

    @property
    def unparsed_bytes(self) -> int:
        """The bytes received that no parser has taken."""
        return len(self._data) - self._offset + len(self._fed)

    def feed(self, data: bytes) -> None:
        """Take bytes from the client."""
        if self._fed or self._offset < len(self._data):
            self._fed += data
        else:
            self._data = data
            self._offset = 0

    def _take_fed(self) -> bool:
        """Make what was fed part of the piece under work; tell whether there was anything.

        What is left of the piece is copied: a parser calls it when that is less than a line.
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
        """Move what is here of the missing bytes to the body; tell whether it is complete."""
        while True:
            part = self._data[self._offset : self._offset + self._missing_bytes]
            self._offset += len(part)
            self._missing_bytes -= len(part)
            self._body += part
            if not self._missing_bytes:
                return True
            if not self._take_fed():
                return False
