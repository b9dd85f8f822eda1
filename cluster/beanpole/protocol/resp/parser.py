"""The server side of RESP: parse the bytes of a client into requests.

A request is an array of bulk strings, or one line of words. No input makes the parser raise, and
the requests do not depend on how the bytes are split into pieces. Malformed bytes get the error of
Redis, and the bytes after them are ignored. The meaning of commands does not belong here.
"""

import re
from typing import Final

from beanpole.protocol.receive_buffer import ReceiveBuffer
from beanpole.protocol.resp.values import Error, encode

# One argument: any script, and twice the maximum of a job's data, so that larger data gets an error
# that names it.
BULK_MAX_BYTES: Final = 2 * 1024 * 1024
# All arguments of a request: the data of a job, a script, and names. A command must fit into one
# batch.
REQUEST_MAX_BYTES: Final = 3 * 1024 * 1024
# A call names at most a thousand jobs, or items of a job.
ARGUMENTS_MAX: Final = 10_000
# The memory of an argument beside its bytes.
ARGUMENT_BYTES: Final = 48
# The line with the number of arguments or bytes that follow: 20 digits are above every limit.
COUNT_MAX_BYTES: Final = 64
# An inline request, as typed into a terminal; Redis has the same limit.
LINE_MAX_BYTES: Final = 64 * 1024

# The arguments, at least one; or the reply after which the connection is closed.
Request = list[bytes] | bytes

_ARRAY: Final = ord("*")
_is_number = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch
_is_blank = re.compile(rb"[ \t\n\r\v\f\0]*").match
# One piece of a word in a line: bare, in double quotes or in single quotes.
_match_piece = re.compile(
    rb"""([^ \t\n\r\v\f\0"']+)|"((?:[^"\\]|\\.)*)"(?=[ \t\n\r\v\f\0]|\Z)"""
    rb"""|'((?:[^'\\]|\\.)*)'(?=[ \t\n\r\v\f\0]|\Z)""",
    re.DOTALL,
).match
_escapes = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def protocol_error(text: bytes) -> bytes:
    """Return the reply to a malformed request."""
    return encode(Error(b"ERR Protocol error: " + text))


def _unescape(found: re.Match[bytes]) -> bytes:
    if found[1] is not None:
        return bytes((int(found[1], 16),))
    return _ESCAPED.get(found[2], found[2])


def split_line(line: bytes) -> list[bytes] | None:
    """Return the words of a line, with quotes as in Redis; None if the quotes are unbalanced."""
    words: list[bytes] = []
    start = _end_of_blank(line, 0)
    while start < len(line):
        word = b""
        end = start
        while end < len(line):
            piece = _match_piece(line, end)
            if piece is None:
                if _end_of_blank(line, end) == end:
                    return None
                break
            end = piece.end()
            if piece[1] is not None:
                word += piece[1]
            elif piece[2] is not None:
                word += _escapes.sub(_unescape, piece[2])
            else:
                word += piece[3].replace(b"\\'", b"'")
        words.append(word)
        start = _end_of_blank(line, end)
    return words


def _end_of_blank(line: bytes, start: int) -> int:
    found = _is_blank(line, start)
    return start if found is None else found.end()


class Parser(ReceiveBuffer):
    """Parses the bytes of one connection into requests."""

    __slots__ = ("_arguments", "_broken", "_bytes", "_left")

    def __init__(self) -> None:
        """Start at the beginning of a request."""
        super().__init__()
        self._broken = False
        self._arguments: list[bytes] = []  # of the incomplete request
        self._left = 0  # missing arguments; 0 at the beginning of a request
        self._bytes = 0  # of all arguments of the request so far
        # Of the incomplete argument, with its CRLF; -1 while its length is unknown.
        self._missing_bytes = -1

    @property
    def unfinished_bytes(self) -> int:
        """See `ReceiveBuffer`; includes the arguments that have arrived, with their objects."""
        if not self._left:
            return 0
        missing_bytes = max(0, self._missing_bytes - 2)
        return self._bytes - missing_bytes + len(self._arguments) * ARGUMENT_BYTES

    def next(self) -> Request | None:
        """Return the next request, or None if it is incomplete; an empty list is no request."""
        if self._broken:
            return None
        if not self._left:
            if self._offset == len(self._data) and not self._take_fed():
                return None
            if self._data[self._offset] != _ARRAY:
                return self._next_line()
            wrong = self._begin_array()
            if wrong is None:
                return None
            if wrong:
                return self._break(wrong)
        return self._next_arguments()

    def _break(self, text: bytes) -> bytes:
        """Discard the buffer, end the parsing, and return the error for the client."""
        self._broken = True
        self._arguments = []
        self._body = bytearray()
        self._data = b""
        self._offset = 0
        self._fed = bytearray()
        return protocol_error(text)

    # --- lines of words -------------------------------------------------------------------------

    def _next_line(self) -> Request | None:
        """Return the words of a line, possibly none; None if it has no end yet."""
        while True:
            start = self._offset
            end = self._data.find(b"\n", start, start + LINE_MAX_BYTES + 1)
            if end >= 0:
                self._offset = end + 1
                words = split_line(self._data[start:end])
                return self._break(b"unbalanced quotes in request") if words is None else words
            if len(self._data) - start > LINE_MAX_BYTES:
                return self._break(b"too big inline request")
            if not self._take_fed():
                return None

    # --- arrays of bulk strings -----------------------------------------------------------------

    def _count_line(self) -> bytes | None:
        """Return a line with a kind and a number; None if it is incomplete.

        A line without an end is returned as more than `COUNT_MAX_BYTES` bytes.
        """
        while True:
            start = self._offset
            end = self._data.find(b"\r", start, start + COUNT_MAX_BYTES + 1)
            if end >= 0:
                if end + 1 < len(self._data):
                    self._offset = end + 2  # any byte after CR counts as LF, as in Redis
                    return self._data[start:end]
            elif len(self._data) - start > COUNT_MAX_BYTES:
                return self._data[start : start + COUNT_MAX_BYTES + 1]
            if not self._take_fed():
                return None

    def _begin_array(self) -> bytes | None:
        """Parse the number of arguments; return the error or b""; None if it is incomplete."""
        line = self._count_line()
        if line is None:
            return None
        if len(line) > COUNT_MAX_BYTES:
            return b"too big mbulk count string"
        count = int(line[1:]) if _is_number(line, 1) else ARGUMENTS_MAX + 1
        if count > ARGUMENTS_MAX:
            return b"invalid multibulk length"
        self._left = max(0, count)  # a request without arguments is ignored
        self._arguments = []
        self._bytes = 0
        return b""

    def _next_arguments(self) -> Request | None:
        while self._left:
            if self._missing_bytes < 0:
                wrong = self._begin_argument()
                if wrong is None:
                    return None
                if wrong:
                    return self._break(wrong)
            if not self._take_argument():
                return None
        arguments, self._arguments = self._arguments, []
        return arguments

    def _begin_argument(self) -> bytes | None:
        """Parse the length of an argument; see `_begin_array` for the result."""
        line = self._count_line()
        if line is None:
            return None
        if len(line) > COUNT_MAX_BYTES:
            return b"too big bulk count string"
        if not line.startswith(b"$"):
            return b"expected '$', got '%b'" % (line[:1] or b"\r")
        size = int(line[1:]) if _is_number(line, 1) else -1
        if not 0 <= size <= BULK_MAX_BYTES:
            return b"invalid bulk length"
        self._bytes += size
        if self._bytes > REQUEST_MAX_BYTES:
            return b"too big request"
        self._missing_bytes = size + 2
        return b""

    def _take_argument(self) -> bool:
        """Read received bytes of an argument; return whether the argument is complete."""
        end = self._offset + self._missing_bytes
        if not self._body and end <= len(self._data):
            self._arguments.append(self._data[self._offset : end - 2])
            self._offset = end
        else:
            if not self._collect_body():
                return False
            self._arguments.append(bytes(memoryview(self._body)[:-2]))
            self._body = bytearray()
        self._missing_bytes = -1
        self._left -= 1
        return True
