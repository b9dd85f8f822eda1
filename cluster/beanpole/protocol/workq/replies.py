"""The bytes of every reply of the Workq protocol.

Replies without values are constants, replies with values are functions. The choice of a reply does
not belong here. The texts "Invalid Payload", "Invalid Result" and "Queue out of sync" of the
original server are omitted, because no request causes them.
"""

from collections.abc import Iterable
from typing import Final

from beanpole.protocol.workq.values import format_id

OK: Final[bytes] = b"+OK\r\n"
NOT_FOUND: Final[bytes] = b"-NOT-FOUND\r\n"
TIMEOUT: Final[bytes] = b"-TIMEOUT\r\n"

UNKNOWN_COMMAND: Final[bytes] = b"-CLIENT-ERROR Unknown command\r\n"
INVALID_ARGS: Final[bytes] = b"-CLIENT-ERROR Invalid command args\r\n"
INVALID_FLAGS: Final[bytes] = b"-CLIENT-ERROR Invalid command flags\r\n"
INVALID_PAYLOAD_SIZE: Final[bytes] = b"-CLIENT-ERROR Invalid payload size\r\n"
INVALID_RESULT_SIZE: Final[bytes] = b"-CLIENT-ERROR Invalid result size\r\n"
INVALID_ID: Final[bytes] = b"-CLIENT-ERROR Invalid ID\r\n"
INVALID_NAME: Final[bytes] = b"-CLIENT-ERROR Invalid Name\r\n"
INVALID_TTR: Final[bytes] = b"-CLIENT-ERROR Invalid TTR\r\n"
INVALID_TTL: Final[bytes] = b"-CLIENT-ERROR Invalid TTL\r\n"
INVALID_TIME: Final[bytes] = b"-CLIENT-ERROR Invalid Time\r\n"
INVALID_PRIORITY: Final[bytes] = b"-CLIENT-ERROR Invalid Priority\r\n"
INVALID_MAX_ATTEMPTS: Final[bytes] = b"-CLIENT-ERROR Invalid Max Attempts\r\n"
INVALID_MAX_FAILS: Final[bytes] = b"-CLIENT-ERROR Invalid Max Fails\r\n"
INVALID_WAIT: Final[bytes] = b"-CLIENT-ERROR Invalid wait timeout\r\n"
INVALID_OFFSET: Final[bytes] = b"-CLIENT-ERROR Invalid cursor offset\r\n"
INVALID_LIMIT: Final[bytes] = b"-CLIENT-ERROR Invalid limit\r\n"
DUPLICATE_JOB: Final[bytes] = b"-CLIENT-ERROR Duplicate job\r\n"
DUPLICATE_RESULT: Final[bytes] = b"-CLIENT-ERROR Duplicate result\r\n"
# The user lacks the right, or the token is unknown; the original server has no users.
DENIED: Final[bytes] = b"-CLIENT-ERROR Denied\r\n"

# Errors of the cluster; the original server has other texts after the same word.
NO_MAJORITY: Final[bytes] = b"-SERVER-ERROR No majority of the cluster answers\r\n"
OUT_OF_MEMORY: Final[bytes] = b"-SERVER-ERROR Out of memory\r\n"
DRAINING: Final[bytes] = b"-SERVER-ERROR Draining\r\n"
TOO_MANY_CLIENTS: Final[bytes] = b"-SERVER-ERROR Too many clients\r\n"
INTERNAL_ERROR: Final[bytes] = b"-SERVER-ERROR Internal error\r\n"

# The replies that mean that a request was not done, with their words.
ERRORS: Final[dict[bytes, str]] = {
    reply: reply[1:].decode().rstrip()
    for reply in (
        *(NOT_FOUND, TIMEOUT, UNKNOWN_COMMAND, INVALID_ARGS, INVALID_FLAGS, INVALID_PAYLOAD_SIZE),
        *(INVALID_RESULT_SIZE, INVALID_ID, INVALID_NAME, INVALID_TTR, INVALID_TTL, INVALID_TIME),
        *(INVALID_PRIORITY, INVALID_MAX_ATTEMPTS, INVALID_MAX_FAILS, INVALID_WAIT),
        *(INVALID_OFFSET, INVALID_LIMIT, DUPLICATE_JOB, DUPLICATE_RESULT, DENIED, NO_MAJORITY),
        *(OUT_OF_MEMORY, DRAINING, TOO_MANY_CLIENTS, INTERNAL_ERROR),
    )
}


def leased(job: bytes, name: bytes, ttr_ms: int, payload: bytes) -> bytes:
    """Answer a lease with the job."""
    head = (format_id(job), name, ttr_ms, len(payload), payload)
    return b"+OK 1\r\n%b %b %d %d\r\n%b\r\n" % head


def finished(job: bytes, success: bool, result: bytes) -> bytes:
    """Answer a run or a result with the result of the job."""
    return b"%b%b\r\n" % (finished_head(job, success, len(result)), result)


def finished_head(job: bytes, success: bool, size: int) -> bytes:
    """Return what is before a result of this size and its line end."""
    return b"+OK 1\r\n%b %d %d\r\n" % (format_id(job), success, size)


def inspected(blocks: Iterable[bytes]) -> bytes:
    """Answer an inspect with these blocks."""
    all_blocks = list(blocks)
    return b"+OK %d\r\n%b" % (len(all_blocks), b"".join(all_blocks))


def block(title: bytes, keys: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Encode one block of an inspect reply with its keys and values."""
    lines = [b"%b %b\r\n" % pair for pair in keys]
    return b"%b %d\r\n%b" % (title, len(lines), b"".join(lines))
