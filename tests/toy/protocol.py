"""The toy protocol's codec: bytes of a client in, requests out. Pure, as every codec is.

    PUT QUEUE BODY     OK ID
    TAKE QUEUE         JOB ID BODY, when there is one
    DONE ID            OK, or NO

A line ends in LF; one that is none of these is answered HUH. Names of queues are lower-case letters
and digits, bodies hold no white space.
"""

import re
from typing import Final

PUT: Final = 1  # (PUT, queue, body)
TAKE: Final = 2  # (TAKE, queue)
DONE: Final = 3  # (DONE, job)
HUH: Final = 4  # (HUH,)
WORDS: Final = ("put", "take", "done")

LINE_MAX_BYTES: Final = 1024

_match_put = re.compile(rb"PUT ([a-z0-9]{1,64}) (\S+)").fullmatch
_match_take = re.compile(rb"TAKE ([a-z0-9]{1,64})").fullmatch
_match_done = re.compile(rb"DONE ([0-9]{1,15})").fullmatch

Request = tuple[int, bytes, bytes] | tuple[int, bytes] | tuple[int, int] | tuple[int]


class Parser:
    """Lines of a client."""

    def __init__(self) -> None:
        self._data = b""

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not parsed."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Take bytes of the client."""
        self._data += data

    def next(self) -> Request | None:
        """The next request, or None if more bytes are needed."""
        line, end, rest = self._data.partition(b"\n")
        if not end and len(line) <= LINE_MAX_BYTES:
            return None
        self._data = rest
        if found := _match_put(line):
            return (PUT, found[1], found[2])
        if found := _match_take(line):
            return (TAKE, found[1])
        if found := _match_done(line):
            return (DONE, int(found[1]))
        return (HUH,)
