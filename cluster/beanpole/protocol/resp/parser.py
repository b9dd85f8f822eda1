"""The server's side of RESP: bytes of a client in, requests out.

A request is an array of bulk strings, or one line of words. No input makes the parser raise, and
how the bytes are cut into pieces never changes the requests. What cannot be understood has the
error of Redis, and nothing behind it is looked at. It decides nothing about commands.
"""

import re
from typing import Final

from beanpole.protocol.receive_buffer import ReceiveBuffer
from beanpole.protocol.resp.values import Error, encode

# One argument: twice as much as the data of a job may have, so that what is too large for a job is
# refused with its name, and any script.
BULK_MAX_BYTES: Final = 2 * 1024 * 1024
# All arguments of a request: the data of a job and a script, and room for names. What is submitted
# must fit into one batch.
REQUEST_MAX_BYTES: Final = 3 * 1024 * 1024
# A call names at most a thousand jobs, or things of a job.
ARGUMENTS_MAX: Final = 10_000
# The line that says how many arguments, or bytes, follow: 20 digits are above every limit.
COUNT_MAX_BYTES: Final = 64
# A request in one line, as people type it; Redis has the same limit.
LINE_MAX_BYTES: Final = 64 * 1024

# The arguments, of which there is at least one; or the reply after which the connection is closed.
Request = list[bytes] | bytes

_ARRAY: Final = ord("*")
_is_number = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch
_is_blank = re.compile(rb"[ \t\n\r\v\f\0]*").match
# A word of a line: pieces that are bare, in double or in single quotes.
_match_piece = re.compile(
    rb"""([^ \t\n\r\v\f\0"']+)|"((?:[^"\\]|\\.)*)"(?=[ \t\n\r\v\f\0]|\Z)"""
    rb"""|'((?:[^'\\]|\\.)*)'(?=[ \t\n\r\v\f\0]|\Z)""",
    re.DOTALL,
).match
_escapes = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def protocol_error(text: bytes) -> bytes:
    """The reply to what is no request."""
    return encode(Error(b"ERR Protocol error: " + text))


def _unescape(found: re.Match[bytes]) -> bytes:
    if found[1] is not None:
        return bytes((int(found[1], 16),))
    return _ESCAPED.get(found[2], found[2])


def split_line(line: bytes) -> list[bytes] | None:
    """The words of a line, with quotes as in Redis; None if they are not balanced."""
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
    """Turns the bytes of one connection into requests.

    It keeps what was fed and not yet asked for without a bound: its owner looks at
    `buffered_bytes` and stops reading. Of its own it keeps at most one request.
    """

    __slots__ = ("_arguments", "_broken", "_bytes", "_left")

    def __init__(self) -> None:
        """Start at the beginning of a request."""
        super().__init__()
        self._broken = False
        self._arguments: list[bytes] = []  # of the unfinished request
        self._left = 0  # how many are not here; 0: at the beginning of a request
        self._bytes = 0  # of all arguments of the request so far
        # Of the unfinished argument, with its CR and LF; -1 while its length is not known.
        self._missing_bytes = -1

    @property
    def buffered_bytes(self) -> int:
        """The bytes received behind the argument that is being read, which has its own limit."""
        return self.unparsed_bytes

    def next(self) -> Request | None:
        """Return the next request, or None if its bytes are not all here."""
        if self._broken:
            return None
        while not self._left:
            if self._offset == len(self._data) and not self._take_fed():
                return None
            if self._data[self._offset] == _ARRAY:
                wrong = self._begin_array()
                if wrong is None:
                    return None
                if wrong:
                    return self._break(wrong)
            else:
                line = self._next_line()
                if line is None or line:
                    return line
        return self._next_arguments()

    def _break(self, text: bytes) -> bytes:
        """Nothing that follows can be understood."""
        self._broken = True
        self._arguments = []
        self._body = bytearray()
        self._data = b""
        self._offset = 0
        self._fed = bytearray()
        return protocol_error(text)

    # --- lines of words -------------------------------------------------------------------------

    def _next_line(self) -> Request | None:
        """The words of a line, perhaps none; None if it has no end yet."""
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
        """A line with a kind and a number; None if it is not here; too long if it has no end."""
        while True:
            start = self._offset
            end = self._data.find(b"\r", start, start + COUNT_MAX_BYTES + 1)
            if end >= 0:
                if end + 1 < len(self._data):
                    self._offset = end + 2  # what stands behind CR counts as LF, as in Redis
                    return self._data[start:end]
            elif len(self._data) - start > COUNT_MAX_BYTES:
                return self._data[start : start + COUNT_MAX_BYTES + 1]
            if not self._take_fed():
                return None

    def _begin_array(self) -> bytes | None:
        """Read how many arguments follow. What is wrong, if anything; None if it is not here."""
        line = self._count_line()
        if line is None:
            return None
        if len(line) > COUNT_MAX_BYTES:
            return b"too big mbulk count string"
        count = int(line[1:]) if _is_number(line, 1) else ARGUMENTS_MAX + 1
        if count > ARGUMENTS_MAX:
            return b"invalid multibulk length"
        self._left = max(0, count)  # a request without arguments is none
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
        """Read the length of an argument; see `_begin_array`."""
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
        """Take what is here of an argument; whether that is all of it."""
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
