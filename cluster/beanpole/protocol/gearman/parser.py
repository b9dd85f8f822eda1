"""The server side of the Gearman protocol: parse the bytes of a client into request tuples.

Binary packets and lines of text may follow each other in any order. No input makes the parser
raise, and the requests do not depend on how the bytes are split into pieces. Belongs here: packets,
lines, limits, and the replies that need no queue. The execution of requests does not.
"""

from typing import Final

from beanpole.constants import JOB_SIZE_MAX_BYTES, RESULT_MAX_BYTES
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.receive_buffer import ReceiveBuffer

# Kinds of requests in addition to the types of packets.
TEXT: Final = p.TYPE_MAX + 1  # (TEXT, line): for `admin`
BAD: Final = p.TYPE_MAX + 2  # (BAD, reply): the connection stays open
CLOSE: Final = p.TYPE_MAX + 3  # (CLOSE, reply): the following bytes cannot be parsed
KINDS: Final = p.TYPE_MAX + 4

# The kind, and the arguments of the packet or the value shown above.
Request = tuple[int, tuple[bytes, ...]]

# The states of the parser.
_START: Final = 0
_PACKET: Final = 1  # collects the arguments of a packet
_SKIPPED: Final = 2  # discards the rest of a packet
_LONG_LINE: Final = 3  # discards a line above the limit

_NOTHING: Final[Request] = (CLOSE, (b"",))
_TOO_LARGE: Final = replies.error(
    b"ARGUMENT_TOO_LARGE", b"A packet has %d bytes at most" % p.PACKET_MAX_BYTES
)
_FUNCTION_TOO_LARGE: Final = replies.error(
    b"ARGUMENT_TOO_LARGE", b"A function name has %d bytes at most" % p.FUNCTION_MAX_BYTES
)
_REDUCER_TOO_LARGE: Final = replies.error(
    b"ARGUMENT_TOO_LARGE", b"A reducer has %d bytes at most" % p.REDUCER_MAX_BYTES
)
_DATA_TOO_LARGE: Final = replies.error(
    b"ARGUMENT_TOO_LARGE", b"The data of a job has %d bytes at most" % JOB_SIZE_MAX_BYTES
)
_CLIENT_ID_TOO_LARGE: Final = replies.error(
    b"ARGUMENT_TOO_LARGE", b"A client id has %d bytes at most" % p.CLIENT_ID_MAX_BYTES
)
_LINE_TOO_LONG: Final = b"ERR INVALID_ARGUMENTS A+line+has+%d+bytes+at+most\r\n" % p.LINE_MAX_BYTES
# These packets end their jobs even if the result is too large to be delivered: the handle of such a
# packet is kept, and the result is replaced by one that is above the limit of results.
_ENDS: Final = (p.WORK_COMPLETE, p.WORK_EXCEPTION)
_HANDLE_MAX_BYTES: Final = 64
_NO_RESULT: Final = bytes(RESULT_MAX_BYTES + 1)
_REDUCERS: Final = (p.SUBMIT_REDUCE_JOB, p.SUBMIT_REDUCE_JOB_BACKGROUND)
_ABILITIES: Final = (p.CAN_DO, p.CANT_DO, p.CAN_DO_TIMEOUT)
# The only argument of these packets ends at a NUL, as in gearmand: some clients send one.
_C_STRINGS: Final = frozenset({p.WORK_FAIL, p.GET_STATUS, p.GET_STATUS_UNIQUE, p.SET_CLIENT_ID})


def read_packet(kind: int, body: bytes) -> Request:
    """Split the arguments of a request packet, and check their number and sizes."""
    count = p.REQUEST_ARGUMENTS[kind]
    if not count:
        return (kind, ())
    if kind in _C_STRINGS:
        body = body.partition(b"\0")[0]
    arguments = tuple(body.split(b"\0", count - 1))
    if len(arguments) < count:
        text = b"%b has %d arguments, %d came" % (
            p.NAMES[kind].encode(),
            count,
            len(arguments) if body else 0,
        )
        return (BAD, (replies.error(b"INVALID_ARGUMENTS", text),))
    wrong = _wrong_size(kind, arguments)
    return (kind, arguments) if wrong is None else (BAD, (wrong,))


def _wrong_size(kind: int, arguments: tuple[bytes, ...]) -> bytes | None:
    """Return the error of the first argument that is too large; None if none is."""
    if kind in p.SUBMITS:
        if len(arguments[0]) > p.FUNCTION_MAX_BYTES:
            return _FUNCTION_TOO_LARGE
        if len(arguments[1]) > p.UNIQUE_MAX_BYTES:
            return replies.UNIQUE_TOO_LARGE
        if kind in _REDUCERS and len(arguments[2]) > p.REDUCER_MAX_BYTES:
            return _REDUCER_TOO_LARGE
        if len(arguments[-1]) > JOB_SIZE_MAX_BYTES:
            return _DATA_TOO_LARGE
    elif kind in _ABILITIES:
        if len(arguments[0]) > p.FUNCTION_MAX_BYTES:
            return _FUNCTION_TOO_LARGE
    elif kind == p.SET_CLIENT_ID and len(arguments[0]) > p.CLIENT_ID_MAX_BYTES:
        return _CLIENT_ID_TOO_LARGE
    return None


class Parser(ReceiveBuffer):
    """Parses the bytes of one connection into requests."""

    __slots__ = ("_kind", "_reply", "_state")

    def __init__(self) -> None:
        """Start at the beginning of a packet or line."""
        super().__init__()
        self._state = _START
        # The type of the incomplete packet, whose arguments are in the body, and the reply if it is
        # discarded.
        self._kind = 0
        self._reply = b""

    def next(self) -> Request | None:
        """Return the next request, or None if it is incomplete."""
        if self._state != _START:
            return self._next_unfinished()
        if self._offset == len(self._data) and not self._take_fed():
            return None
        if self._data[self._offset]:
            return self._next_line()
        return self._next_packet()

    # --- packets --------------------------------------------------------------------------------

    def _next_packet(self) -> Request | None:
        start = self._offset
        if len(self._data) - start < p.HEADER_BYTES:
            if self._take_fed():
                return self._next_packet()
            magic = self._data[:4]
            ours = p.REQUEST_MAGIC.startswith(magic) or p.REPLY_MAGIC.startswith(magic)
            return None if ours else _NOTHING
        magic, kind, size = p.HEADER.unpack_from(self._data, start)
        if magic not in (p.REQUEST_MAGIC, p.REPLY_MAGIC) or not 0 < kind <= p.TYPE_MAX:
            return _NOTHING
        self._offset = start + p.HEADER_BYTES
        self._missing_bytes = size
        if size > p.PACKET_SKIPPED_MAX_BYTES:
            return (CLOSE, (_TOO_LARGE,))
        if size > p.PACKET_MAX_BYTES:
            ends = magic == p.REQUEST_MAGIC and kind in _ENDS
            return self._begin_skipped(_TOO_LARGE, kind if ends else 0)
        if magic == p.REPLY_MAGIC:
            return self._begin_skipped(replies.INVALID_MAGIC)
        if kind not in p.REQUEST_ARGUMENTS:
            return self._begin_skipped(replies.INVALID_COMMAND)
        end = self._offset + size
        if end <= len(self._data):
            body = self._data[self._offset : end]
            self._offset = end
            return read_packet(kind, body)
        self._kind = kind
        self._state = _PACKET
        return self._next_with_body()

    def _begin_skipped(self, reply: bytes, kind: int = 0) -> Request | None:
        self._reply = reply
        self._kind = kind
        self._state = _SKIPPED
        return self._next_after_skipped()

    def _next_unfinished(self) -> Request | None:
        if self._state == _PACKET:
            return self._next_with_body()
        if self._state == _SKIPPED:
            return self._next_after_skipped()
        return self._next_after_long_line()

    def _next_with_body(self) -> Request | None:
        if not self._collect_body():
            return None
        body = bytes(self._body)
        self._body = bytearray()
        self._state = _START
        return read_packet(self._kind, body)

    def _next_after_skipped(self) -> Request | None:
        while True:
            step = min(self._missing_bytes, len(self._data) - self._offset)
            if self._kind:
                kept = min(step, _HANDLE_MAX_BYTES + 1 - len(self._body))
                self._body += self._data[self._offset : self._offset + kept]
            self._offset += step
            self._missing_bytes -= step
            if not self._missing_bytes:
                self._state = _START
                handle, end, _ = bytes(self._body).partition(b"\0")
                self._body = bytearray()
                return (self._kind, (handle, _NO_RESULT)) if end else (BAD, (self._reply,))
            if not self._take_fed():
                return None

    # --- lines ----------------------------------------------------------------------------------

    def _next_line(self) -> Request | None:
        start = self._offset
        end = self._data.find(b"\n", start, start + p.LINE_MAX_BYTES)
        if end >= 0:
            self._offset = end + 1
            return (TEXT, (self._data[start:end].removesuffix(b"\r"),))
        if len(self._data) - start >= p.LINE_MAX_BYTES:
            self._state = _LONG_LINE
            return self._next_after_long_line()
        return self._next_line() if self._take_fed() else None

    def _next_after_long_line(self) -> Request | None:
        while True:
            end = self._data.find(b"\n", self._offset)
            if end >= 0:
                self._offset = end + 1
                self._state = _START
                return (BAD, (_LINE_TOO_LONG,))
            self._offset = len(self._data)
            if not self._take_fed():
                return None
