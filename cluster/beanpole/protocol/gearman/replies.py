"""Encode the packets of a Gearman server; the errors are constants.

Codes and texts are those of gearmand if it has the same error.
"""

from typing import Final

from beanpole.constants import (
    PROGRESS_MAX_BYTES,
    RESULT_MAX_BYTES,
    SUBMITS_OF_JOB_MAX,
    U32_MAX,
    WATCHED_TUBES_MAX,
)
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.admin import number

_pack_header = p.HEADER.pack


def reply(kind: int, *arguments: bytes) -> bytes:
    """Encode one packet of the server."""
    body = b"\0".join(arguments)
    header: bytes = _pack_header(p.REPLY_MAGIC, kind, len(body))
    return header + body


def error(code: bytes, text: bytes) -> bytes:
    """Encode an ERROR."""
    return reply(p.ERROR, code, text)


def u32(word: bytes) -> int:
    """Parse a number as gearmand does, with C's strtoul; text without a number is 0."""
    return number(word) & U32_MAX


def status(handle: bytes, known: bool, running: bool, progress: bytes) -> bytes:
    """Encode a STATUS_RES; the progress is a numerator, a NUL and a denominator, or empty."""
    return reply(p.STATUS_RES, handle, *_state(known, running, progress))


def status_unique(
    unique: bytes, known: bool, running: bool, progress: bytes, clients: int
) -> bytes:
    """Encode a STATUS_RES_UNIQUE; `clients` is the number of clients attached to the job."""
    state = _state(known, running, progress)
    return reply(p.STATUS_RES_UNIQUE, unique, *state, b"%d" % clients)


def _state(known: bool, running: bool, progress: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    numerator, _, denominator = progress.partition(b"\0")
    return (
        b"1" if known else b"0",
        b"1" if running else b"0",
        b"%d" % u32(numerator),
        b"%d" % u32(denominator),
    )


NOOP: Final = reply(p.NOOP)
NO_JOB: Final = reply(p.NO_JOB)

INVALID_MAGIC: Final = error(b"INVALID_MAGIC", b"Request magic expected")
INVALID_COMMAND: Final = error(b"INVALID_COMMAND", b"Command not expected")
UNKNOWN_OPTION: Final = error(b"UNKNOWN_OPTION", b"Server does not recognize given option")
UNIQUE_TOO_LARGE: Final = error(b"ARGUMENT_TOO_LARGE", b"Unique value too large")
RESULT_TOO_LARGE_TEXT: Final = b"The result has more than %d bytes" % RESULT_MAX_BYTES
DATA_TOO_LARGE: Final = error(
    b"ARGUMENT_TOO_LARGE", b"The data has more than %d bytes" % RESULT_MAX_BYTES
)
PROGRESS_TOO_LARGE: Final = error(
    b"ARGUMENT_TOO_LARGE",
    b"Numerator and denominator have more than %d bytes" % (PROGRESS_MAX_BYTES - 1),
)
TOO_MANY_FUNCTIONS: Final = error(
    b"QUEUE_ERROR", b"A worker has %d functions at most" % WATCHED_TUBES_MAX
)
TOO_MANY_SUBMITS: Final = error(
    b"QUEUE_ERROR", b"A connection waits %d times for one job at most" % SUBMITS_OF_JOB_MAX
)
BAD_TIME: Final = error(b"INVALID_ARGUMENTS", b"The time of a job is in seconds since 1970")
QUEUE_FULL: Final = error(b"QUEUE_ERROR", b"Job queue is full")
NO_ROOM: Final = error(b"QUEUE_ERROR", b"A limit of the cluster is reached")
DRAINING: Final = error(b"QUEUE_ERROR", b"This node is draining")
NO_MAJORITY: Final = error(b"QUEUE_ERROR", b"No majority of the nodes answers; it is not done")
DENIED: Final = error(b"ACCESS_DENIED", b"The user may not do this")
CROWDED: Final = error(b"QUEUE_ERROR", b"The node has as many connections as it may")
# The errors for a worker that does not hold the job, by the packet that it sent.
NO_JOB_OF_DATA: Final = error(b"JOB_NOT_FOUND", b"Job does not exist on server")
NO_JOB_OF_RESULT: Final = error(b"JOB_NOT_FOUND", b"Job given in work result not found")
NO_JOB_OF_EXCEPTION: Final = error(
    b"JOB_NOT_FOUND", b"An exception was received for a job that does not exist"
)


def error_code(error: bytes) -> str:
    """Return the code of an ERROR packet, or of an ERR line of a text command."""
    if error.startswith(b"ERR "):
        return error.split()[1].decode()
    return error[p.HEADER_BYTES :].partition(b"\0")[0].decode()


# The errors with constant texts, with their codes.
ERRORS: Final[dict[bytes, str]] = {
    packet: error_code(packet)
    for packet in (
        *(INVALID_MAGIC, INVALID_COMMAND, UNKNOWN_OPTION, UNIQUE_TOO_LARGE, DATA_TOO_LARGE),
        *(PROGRESS_TOO_LARGE, TOO_MANY_FUNCTIONS, TOO_MANY_SUBMITS, BAD_TIME, QUEUE_FULL),
        *(NO_ROOM, DRAINING),
        *(NO_MAJORITY, DENIED, CROWDED, NO_JOB_OF_DATA, NO_JOB_OF_RESULT, NO_JOB_OF_EXCEPTION),
    )
}
