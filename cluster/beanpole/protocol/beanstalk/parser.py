"""The server side of the beanstalk protocol: parse the bytes of a client into request tuples.

No input makes the parser raise, and the requests do not depend on how the bytes are split into
pieces. Belongs here: lines, bodies and limits. The execution of requests does not. Only replies
that need no queue, such as BAD_FORMAT, are decided here: they are (BAD, reply, counted).
"""

import re
from collections.abc import Callable
from typing import Final

from beanpole.constants import JOB_SIZE_MAX_BYTES, U32_MAX
from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpole.protocol.beanstalk.requests import Request
from beanpole.protocol.receive_buffer import ReceiveBuffer

# The states of the parser.
_LINE: Final = 0
_LONG_LINE: Final = 1  # discards a line above the limit
_BODY: Final = 2  # collects the body of a put
_BIG_BODY: Final = 3  # discards a body above the limit

_BAD_FORMAT: Final = (r.BAD, replies.BAD_FORMAT, 0)
_BAD_PUT: Final = (r.BAD, replies.BAD_FORMAT, r.PUT)
_UNKNOWN_COMMAND: Final = (r.BAD, replies.UNKNOWN_COMMAND, 0)
_EXPECTED_CRLF: Final = (r.BAD, replies.EXPECTED_CRLF, r.PUT)
_JOB_TOO_BIG: Final = (r.BAD, replies.JOB_TOO_BIG, r.PUT)
_QUIT: Final = (r.QUIT,)

# Only spaces may precede an argument: int() and split() would also accept tabs, signs and
# underscores, which beanstalkd refuses. The first space after the command is already removed.
_match_two = re.compile(rb" *([0-9]++) ++([0-9]++)").fullmatch
_match_three = re.compile(rb" *([0-9]++) ++([0-9]++) ++([0-9]++)").fullmatch
_match_put = re.compile(
    rb" *([0-9]++) ++([0-9]++) ++([0-9]++) ++([0-9]++)(.*)", re.DOTALL
).fullmatch
_match_pause = re.compile(rb" *(%b) ++([0-9]++)" % r.TUBE_NAME_PATTERN).fullmatch
_match_keyed = re.compile(rb" *(%b)( .*)" % r.KEY_PATTERN, re.DOTALL).fullmatch
_match_keep = re.compile(rb" *(%b) ++([0-9]++)" % r.TOKEN_PATTERN).fullmatch
_match_token = re.compile(rb" *(%b)" % r.TOKEN_PATTERN).fullmatch
_match_user_token = re.compile(rb" *(%b)" % r.USER_TOKEN_PATTERN).fullmatch
# The two commands with this expression ignore bytes after the number, as beanstalkd does.
_match_start = re.compile(rb" *([0-9]++)").match


def _job_reader(kind: int) -> Callable[[bytes], Request]:
    def read(arguments: bytes) -> Request:
        digits = arguments.lstrip(b" ")
        if not digits.isdigit():
            return _BAD_FORMAT
        job = int(digits)
        return (kind, job) if job <= r.U64_MAX else _BAD_FORMAT

    return read


def _tube_reader(kind: int) -> Callable[[bytes], Request]:
    def read(arguments: bytes) -> Request:
        return (kind, arguments) if r.is_tube_name(arguments) else _BAD_FORMAT

    return read


def _read_release(arguments: bytes) -> Request:
    found = _match_three(arguments)
    if found is None:
        return _BAD_FORMAT
    job, priority, delay_s = int(found[1]), int(found[2]), int(found[3])
    if job > r.U64_MAX or priority > U32_MAX or delay_s > U32_MAX:
        return _BAD_FORMAT
    return (r.RELEASE, job, priority, delay_s)


def _read_bury(arguments: bytes) -> Request:
    found = _match_two(arguments)
    if found is None:
        return _BAD_FORMAT
    job, priority = int(found[1]), int(found[2])
    if job > r.U64_MAX or priority > U32_MAX:
        return _BAD_FORMAT
    return (r.BURY, job, priority)


def _read_reserve_timeout(arguments: bytes) -> Request:
    found = _match_start(arguments)
    if found is None or b"\0" in arguments:
        return _BAD_FORMAT
    seconds = int(found[1])
    return (r.RESERVE_TIMEOUT, seconds) if seconds <= r.TIMEOUT_MAX_S else _BAD_FORMAT


def _read_kick(arguments: bytes) -> Request:
    found = _match_start(arguments)
    if found is None or b"\0" in arguments:
        return _BAD_FORMAT
    bound = int(found[1])
    # beanstalkd parses 64 bits and drops the upper 32. Here a larger bound kicks all jobs.
    return (r.KICK, min(bound, U32_MAX)) if bound <= r.U64_MAX else _BAD_FORMAT


def _read_pause_tube(arguments: bytes) -> Request:
    found = _match_pause(arguments)
    if found is None:
        return _BAD_FORMAT
    delay_s = int(found[2])
    return (r.PAUSE_TUBE, found[1], delay_s) if delay_s <= U32_MAX else _BAD_FORMAT


def _read_keep(arguments: bytes) -> Request:
    found = _match_keep(arguments)
    if found is None or not 0 < int(found[2]) <= r.KEEP_MAX_S:
        return _BAD_FORMAT
    return (r.KEEP, found[1], int(found[2]))


def _read_resume(arguments: bytes) -> Request:
    found = _match_token(arguments)
    return _BAD_FORMAT if found is None else (r.RESUME, found[1])


def _read_auth(arguments: bytes) -> Request:
    found = _match_user_token(arguments)
    return _BAD_FORMAT if found is None else (r.AUTH, found[1])


# Requests whose only argument is a job id, and requests whose only argument is a tube name.
_JOB_REQUESTS: Final = (r.DELETE, r.RESERVE_JOB, r.TOUCH, r.PEEK, r.KICK_JOB, r.STATS_JOB)
_TUBE_REQUESTS: Final = (r.USE, r.WATCH, r.IGNORE, r.STATS_TUBE)

# Requests without arguments: the whole line.
_PLAIN: Final[dict[bytes, Request]] = {
    r.WORDS[kind].encode(): (kind,)
    for kind in (
        r.RESERVE,
        r.PEEK_READY,
        r.PEEK_DELAYED,
        r.PEEK_BURIED,
        r.STATS,
        r.LIST_TUBES,
        r.LIST_TUBE_USED,
        r.LIST_TUBES_WATCHED,
        r.QUIT,
        r.EXTENSIONS,
    )
}
# Requests with arguments: the word before the first space, and the reader of the bytes after it.
_READERS: Final[dict[bytes, Callable[[bytes], Request]]] = {
    r.WORDS[kind].encode(): read
    for kind, read in (
        *[(kind, _job_reader(kind)) for kind in _JOB_REQUESTS],
        *[(kind, _tube_reader(kind)) for kind in _TUBE_REQUESTS],
        (r.RESERVE_TIMEOUT, _read_reserve_timeout),
        (r.RELEASE, _read_release),
        (r.BURY, _read_bury),
        (r.KICK, _read_kick),
        (r.PAUSE_TUBE, _read_pause_tube),
        (r.KEEP, _read_keep),
        (r.RESUME, _read_resume),
        (r.AUTH, _read_auth),
    )
}
# beanstalkd recognises these words by a prefix match and then rejects the line as malformed.
_PREFIXES: Final = tuple(
    [
        r.WORDS[kind].encode()
        for kind in (
            r.PEEK_READY,
            r.PEEK_DELAYED,
            r.PEEK_BURIED,
            r.RESERVE,
            r.STATS,
            r.LIST_TUBES,
            r.LIST_TUBE_USED,
            r.PAUSE_TUBE,
        )
    ]
)


def _read_other(line: bytes) -> Request:
    """Return the request of a line that neither is a command nor begins with one and a space."""
    if b"\0" in line or line.startswith(_PREFIXES):
        return _BAD_FORMAT
    return _QUIT if line.startswith(b"quit") else _UNKNOWN_COMMAND


class Parser(ReceiveBuffer):
    """Parses the bytes of one connection into requests."""

    __slots__ = ("_job_size_max", "_key", "_put", "_state")

    def __init__(self, job_size_max: int) -> None:
        """Start at the beginning of a line.

        Args:
            job_size_max: the maximum size of the body of a put, in bytes.
        """
        assert 0 < job_size_max <= JOB_SIZE_MAX_BYTES
        super().__init__()
        self._job_size_max = job_size_max
        self._state = _LINE
        # Priority, delay and TTR of the incomplete put. Its body is collected with the CRLF.
        self._put = (0, 0, 0)
        self._key = b""  # the key of the incomplete put; empty if it has none

    @property
    def buffered_bytes(self) -> int:
        """See `ReceiveBuffer`; includes the incomplete body."""
        return len(self._data) - self._offset + len(self._fed) + len(self._body)

    def next(self) -> Request | None:
        """Return the next request, or None if it is incomplete."""
        if self._state != _LINE:
            return self._next_unfinished()
        start = self._offset
        end = self._data.find(b"\r\n", start, start + r.LINE_MAX_BYTES)
        if end < 0:
            return self._next_without_line()
        self._offset = end + 2
        line = self._data[start:end]
        word, space, arguments = line.partition(b" ")
        if space:
            if word == b"put":
                return self._read_put(arguments)
            if word == b"put-unique":
                return self._read_keyed(arguments)
            read = _READERS.get(word)
            if read is not None:
                return read(arguments)
        request = _PLAIN.get(line)
        return _read_other(line) if request is None else request

    def _next_without_line(self) -> Request | None:
        """Continue when the piece has no end of a line, or none within the limit."""
        if len(self._data) - self._offset >= r.LINE_MAX_BYTES:
            self._state = _LONG_LINE
            return self._next_unfinished()
        return self.next() if self._take_fed() else None

    def _next_unfinished(self) -> Request | None:
        if self._state == _LONG_LINE:
            return self._next_after_long_line()
        if self._state == _BIG_BODY:
            return self._next_after_big_body()
        return self._next_with_body()

    def _next_after_long_line(self) -> Request | None:
        while True:
            end = self._data.find(b"\r\n", self._offset)
            if end >= 0:
                self._offset = end + 2
                self._state = _LINE
                return _BAD_FORMAT
            # A CR at the end may be the first half of a CRLF.
            self._offset = len(self._data) - self._data.endswith(b"\r")
            if not self._take_fed():
                return None

    def _next_after_big_body(self) -> Request | None:
        while True:
            step = min(self._missing_bytes, len(self._data) - self._offset)
            self._offset += step
            self._missing_bytes -= step
            if not self._missing_bytes:
                self._state = _LINE
                return _JOB_TOO_BIG
            if not self._take_fed():
                return None

    def _next_with_body(self) -> Request | None:
        if not self._collect_body():
            return None
        body = self._body
        self._body = bytearray()
        self._state = _LINE
        if not body.endswith(b"\r\n"):
            self._key = b""
            return _EXPECTED_CRLF
        del body[-2:]
        return self._complete(*self._put, bytes(body))

    def _complete(self, priority: int, delay_s: int, ttr_s: int, body: bytes) -> Request:
        """Return the put that is complete with this body."""
        key = self._key
        if not key:
            return (r.PUT, priority, delay_s, ttr_s, body)
        self._key = b""
        return (r.PUT_UNIQUE, priority, delay_s, ttr_s, body, key)

    def _read_keyed(self, arguments: bytes) -> Request | None:
        found = _match_keyed(arguments)
        if found is None:
            return _BAD_FORMAT
        self._key = found[1]
        request = self._read_put(found[2])
        if request is not None or self._state != _BODY:
            self._key = b""  # the put is complete or rejected
        return request

    def _read_put(self, arguments: bytes) -> Request | None:
        found = _match_put(arguments)
        if found is None:
            return _BAD_FORMAT
        # One call for all groups: a call for each would take as long as the match.
        digits, delay_digits, ttr_digits, size_digits, junk = found.groups()
        priority, delay_s, ttr_s = int(digits), int(delay_digits), int(ttr_digits)
        size = int(size_digits)
        if priority > U32_MAX or delay_s > U32_MAX or ttr_s > U32_MAX or size > U32_MAX:
            return _BAD_FORMAT
        if junk and b"\0" in junk:
            return _BAD_FORMAT
        if size > self._job_size_max:
            self._state = _BIG_BODY
            self._missing_bytes = size + 2
            return self._next_after_big_body()
        if junk:
            # beanstalkd counts this put, unlike other malformed lines.
            return _BAD_PUT
        start = self._offset
        end = start + size
        if len(self._data) < end + 2:
            self._state = _BODY
            self._put = (priority, delay_s, ttr_s)
            self._missing_bytes = size + 2
            return self._next_with_body()
        self._offset = end + 2
        if not self._data.startswith(b"\r\n", end):
            return _EXPECTED_CRLF
        return self._complete(priority, delay_s, ttr_s, self._data[start:end])
