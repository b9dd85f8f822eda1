"""The toy protocol's codec: bytes of a client in, requests out. Pure, as every codec is.

    PUT QUEUE BODY     OK ID
    TAKE QUEUE         JOB ID BODY, when there is one
    TRY QUEUE          JOB ID BODY, or NO
    POLL QUEUE         READY, when there is a job; it is not reserved
    TELL ID WORD       OK, or NO
    DONE ID RESULT     OK, or NO
    LISTEN ID          OK, or NO; later, unasked, TOLD ID WORD, and RESULT ID RESULT or GONE ID

A line ends in LF; one that is none of these is answered HUH. Names of queues are lower-case letters
and digits; bodies, words and results hold no white space.
"""

import re
from typing import Final

PUT: Final = 1  # (PUT, queue, body)
TAKE: Final = 2  # (TAKE, queue)
TRY: Final = 3  # (TRY, queue)
POLL: Final = 4  # (POLL, queue)
TELL: Final = 5  # (TELL, job, word)
DONE: Final = 6  # (DONE, job, result)
LISTEN: Final = 7  # (LISTEN, job)
HUH: Final = 8  # (HUH,)
WORDS: Final = ("put", "take", "try", "poll", "tell", "done", "listen")

LINE_MAX_BYTES: Final = 1024

_match_put = re.compile(rb"PUT ([a-z0-9]{1,64}) (\S+)").fullmatch
_match_queue = re.compile(rb"(TAKE|TRY|POLL) ([a-z0-9]{1,64})").fullmatch
_match_job = re.compile(rb"(TELL|DONE) ([0-9]{1,15}) (\S+)").fullmatch
_match_listen = re.compile(rb"LISTEN ([0-9]{1,15})").fullmatch
_KINDS: Final = {b"TAKE": TAKE, b"TRY": TRY, b"POLL": POLL, b"TELL": TELL, b"DONE": DONE}

Request = (
    tuple[int, bytes, bytes]
    | tuple[int, int, bytes]
    | tuple[int, bytes]
    | tuple[int, int]
    | tuple[int]
)


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
        if found := _match_queue(line):
            return (_KINDS[found[1]], found[2])
        if found := _match_job(line):
            return (_KINDS[found[1]], int(found[2]), found[3])
        if found := _match_listen(line):
            return (LISTEN, int(found[1]))
        return (HUH,)
