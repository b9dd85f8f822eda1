"""Gearman's packets as a client sees them, written from the protocol's table, not from our codec.

Belongs here: packing and parsing. The behaviour of clients is in `gearman`.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

CAN_DO: Final = 1
CANT_DO: Final = 2
PRE_SLEEP: Final = 4
NOOP: Final = 6
SUBMIT_JOB: Final = 7
JOB_CREATED: Final = 8
GRAB_JOB: Final = 9
NO_JOB: Final = 10
JOB_ASSIGN: Final = 11
WORK_STATUS: Final = 12
WORK_COMPLETE: Final = 13
WORK_FAIL: Final = 14
GET_STATUS: Final = 15
ECHO_REQ: Final = 16
ECHO_RES: Final = 17
SUBMIT_JOB_BG: Final = 18
ERROR: Final = 19
STATUS_RES: Final = 20
SUBMIT_JOB_HIGH: Final = 21
SET_CLIENT_ID: Final = 22
CAN_DO_TIMEOUT: Final = 23
WORK_EXCEPTION: Final = 25
OPTION_REQ: Final = 26
OPTION_RES: Final = 27
WORK_DATA: Final = 28
WORK_WARNING: Final = 29
GRAB_JOB_UNIQ: Final = 30
JOB_ASSIGN_UNIQ: Final = 31
SUBMIT_JOB_HIGH_BG: Final = 32
SUBMIT_JOB_LOW: Final = 33
SUBMIT_JOB_LOW_BG: Final = 34
SUBMIT_JOB_EPOCH: Final = 36
GRAB_JOB_ALL: Final = 39
JOB_ASSIGN_ALL: Final = 40
GET_STATUS_UNIQUE: Final = 41
STATUS_RES_UNIQUE: Final = 42

# The number of arguments of each response; the last argument takes the rest.
ARGUMENTS: Final = {
    NOOP: 0,
    JOB_CREATED: 1,
    NO_JOB: 0,
    JOB_ASSIGN: 3,
    WORK_STATUS: 3,
    WORK_COMPLETE: 2,
    WORK_FAIL: 1,
    ECHO_RES: 1,
    ERROR: 2,
    STATUS_RES: 5,
    WORK_EXCEPTION: 2,
    OPTION_RES: 1,
    WORK_DATA: 2,
    WORK_WARNING: 2,
    JOB_ASSIGN_UNIQ: 4,
    JOB_ASSIGN_ALL: 5,
    STATUS_RES_UNIQUE: 6,
}
# Packets for clients that are attached to a job; those in ENDS are its end.
ENDS: Final = frozenset({WORK_COMPLETE, WORK_FAIL, WORK_EXCEPTION})
TOLD: Final = ENDS | {WORK_STATUS, WORK_DATA, WORK_WARNING}

_HEAD: Final = Struct(">4sII")


class Packet(NamedTuple):
    """A response."""

    kind: int
    arguments: tuple[bytes, ...]


def pack(kind: int, *arguments: bytes) -> bytes:
    """Encode a request."""
    body = b"\0".join(arguments)
    return _HEAD.pack(b"\0REQ", kind, len(body)) + body


class Packets:
    """A parser of the responses in a stream of bytes."""

    def __init__(self) -> None:
        self._data = b""

    def feed(self, data: bytes) -> Iterator[Packet]:
        """Take bytes and yield whole packets; ValueError if they are not Gearman's."""
        self._data += data
        while (packet := self._next()) is not None:
            yield packet

    def feed_mixed(self, data: bytes) -> Iterator[Packet | bytes]:
        """Take bytes and yield whole packets and lines of text, the latter with their line ends."""
        self._data += data
        while self._data:
            found: Packet | bytes | None
            if self._data[:1] == b"\0":
                found = self._next()
            else:
                end = self._data.find(b"\n") + 1
                found = self._data[:end] or None
                self._data = self._data[end:]
            if found is None:
                return
            yield found

    def _next(self) -> Packet | None:
        if len(self._data) < _HEAD.size:
            return None
        magic, kind, size = _HEAD.unpack_from(self._data)
        if magic != b"\0RES" or kind not in ARGUMENTS:
            raise ValueError(f"no response of Gearman: {self._data[:40]!r}")
        end = _HEAD.size + size
        if len(self._data) < end:
            return None
        body, self._data = self._data[_HEAD.size : end], self._data[end:]
        count = ARGUMENTS[kind]
        arguments = tuple(body.split(b"\0", count - 1)) if count else ()
        if len(arguments) != count or (body and not count):
            raise ValueError(f"packet {kind} has not {count} arguments: {body!r}")
        return Packet(kind, arguments)
