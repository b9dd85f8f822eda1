"""The bytes of every reply of the beanstalk protocol.

Replies without values are constants, replies with values are functions. The payloads of `OK` are in
`stats`. The choice of a reply does not belong here.
"""

from collections.abc import Iterable
from typing import Final

BURIED: Final[bytes] = b"BURIED\r\n"
EXPECTED_CRLF: Final[bytes] = b"EXPECTED_CRLF\r\n"
JOB_TOO_BIG: Final[bytes] = b"JOB_TOO_BIG\r\n"
DRAINING: Final[bytes] = b"DRAINING\r\n"
DEADLINE_SOON: Final[bytes] = b"DEADLINE_SOON\r\n"
TIMED_OUT: Final[bytes] = b"TIMED_OUT\r\n"
DELETED: Final[bytes] = b"DELETED\r\n"
NOT_FOUND: Final[bytes] = b"NOT_FOUND\r\n"
RELEASED: Final[bytes] = b"RELEASED\r\n"
TOUCHED: Final[bytes] = b"TOUCHED\r\n"
NOT_IGNORED: Final[bytes] = b"NOT_IGNORED\r\n"
KICKED: Final[bytes] = b"KICKED\r\n"  # of kick-job; `kick` answers with a count
PAUSED: Final[bytes] = b"PAUSED\r\n"
OUT_OF_MEMORY: Final[bytes] = b"OUT_OF_MEMORY\r\n"
INTERNAL_ERROR: Final[bytes] = b"INTERNAL_ERROR\r\n"
BAD_FORMAT: Final[bytes] = b"BAD_FORMAT\r\n"
UNKNOWN_COMMAND: Final[bytes] = b"UNKNOWN_COMMAND\r\n"
KEPT: Final[bytes] = b"KEPT\r\n"  # of `keep`, an extension
ACCEPTED: Final[bytes] = b"ACCEPTED\r\n"  # of `auth`, an extension
# An extension: the user lacks the right, or the token is unknown.
DENIED: Final[bytes] = b"DENIED\r\n"
# The replies that mean that a request was not done, with their words.
ERRORS: Final[dict[bytes, str]] = {
    reply: reply.decode().rstrip()
    for reply in (
        *(NOT_FOUND, NOT_IGNORED, TIMED_OUT, DEADLINE_SOON, DRAINING, OUT_OF_MEMORY),
        *(INTERNAL_ERROR, BAD_FORMAT, UNKNOWN_COMMAND, EXPECTED_CRLF, JOB_TOO_BIG, DENIED),
    )
}


def inserted(job: int) -> bytes:
    """Answer a put with the id of the job."""
    return b"INSERTED %d\r\n" % job


def reserved(job: int, body: bytes) -> bytes:
    """Answer a reserve with the job."""
    return b"RESERVED %d %d\r\n%b\r\n" % (job, len(body), body)


def found(job: int, body: bytes) -> bytes:
    """Answer a peek with the job."""
    return b"FOUND %d %d\r\n%b\r\n" % (job, len(body), body)


def using(tube: bytes) -> bytes:
    """Answer `use` and `list-tube-used`."""
    return b"USING %b\r\n" % tube


def watching(count: int) -> bytes:
    """Answer `watch` and `ignore` with the number of watched tubes."""
    return b"WATCHING %d\r\n" % count


def kicked(count: int) -> bytes:
    """Answer `kick` with the number of kicked jobs."""
    return b"KICKED %d\r\n" % count


def ok(payload: bytes) -> bytes:
    """Answer the `stats` and `list` requests with a YAML payload."""
    return b"OK %d\r\n%b\r\n" % (len(payload), payload)


def exists(job: int) -> bytes:
    """Answer a `put-unique` whose key was already used by the put of this job."""
    return b"EXISTS %d\r\n" % job


def resumed(jobs: Iterable[int]) -> bytes:
    """Answer `resume` with the jobs that the session has reserved."""
    payload = b" ".join([b"%d" % job for job in jobs])
    return b"RESUMED %d\r\n%b\r\n" % (len(payload), payload)
