"""The requests of Workq clients: their numbers and words, the layout of tuples, limits.

A request is a flat tuple whose first item is one of the numbers below. A job's id is the 16 bytes
of its UUID; names, payloads and results are bytes; all other items are ints. Parsing is in `parser`
and `lines`.
"""

import re
from typing import Any, Final

Request = tuple[Any, ...]

# --- requests that are counted -------------------------------------------------------------------
# (ADD, id, name, ttr_ms, ttl_ms, priority, attempts_max, fails_max, payload)
ADD: Final = 1
# (SCHEDULE, id, name, ttr_ms, ttl_ms, time_s, priority, attempts_max, fails_max, payload): the
# time is wall time, in seconds since 1970
SCHEDULE: Final = 2
RUN: Final = 3  # (RUN, id, name, ttr_ms, wait_ms, priority, payload)
RESULT: Final = 4  # (RESULT, id, wait_ms)
LEASE: Final = 5  # (LEASE, names, wait_ms): each name once, in the client's order
COMPLETE: Final = 6  # (COMPLETE, id, result)
FAIL: Final = 7  # (FAIL, id, result)
DELETE: Final = 8  # (DELETE, id)
INSPECT_SERVER: Final = 9  # (INSPECT_SERVER,)
INSPECT_QUEUES: Final = 10  # (INSPECT_QUEUES, offset, limit)
INSPECT_QUEUE: Final = 11  # (INSPECT_QUEUE, name)
INSPECT_JOB: Final = 12  # (INSPECT_JOB, id)
INSPECT_JOBS: Final = 13  # (INSPECT_JOBS, name, offset, limit)
INSPECT_SCHEDULED: Final = 14  # (INSPECT_SCHEDULED, name, offset, limit)
# --- lines that are answered without the queue ---------------------------------------------------
BAD: Final = 15  # (BAD, reply, counted): `counted` is the request whose counter rises, or 0
CLOSE: Final = 16  # (CLOSE,): the bytes cannot be parsed; no request follows
# --- an extension of this server -----------------------------------------------------------------
AUTH: Final = 17  # (AUTH, token): the token of a user

# A list of counters has an unused first item.
COUNTERS: Final = INSPECT_SCHEDULED + 1

# The names of the requests in metrics; those of one word are also the words of the protocol.
WORDS: Final = {
    ADD: "add",
    SCHEDULE: "schedule",
    RUN: "run",
    RESULT: "result",
    LEASE: "lease",
    COMPLETE: "complete",
    FAIL: "fail",
    DELETE: "delete",
    INSPECT_SERVER: "inspect-server",
    INSPECT_QUEUES: "inspect-queues",
    INSPECT_QUEUE: "inspect-queue",
    INSPECT_JOB: "inspect-job",
    INSPECT_JOBS: "inspect-jobs",
    INSPECT_SCHEDULED: "inspect-scheduled-jobs",
}
COUNTED_WORDS: Final = tuple([WORDS[kind] for kind in range(ADD, COUNTERS)])

# The protocol's limit of a payload or a result.
PAYLOAD_MAX_BYTES: Final = 1024 * 1024
# The original server's limit of one command, with the end of its line and its payload.
COMMAND_MAX_BYTES: Final = 10_000 + PAYLOAD_MAX_BYTES
NAME_MAX_BYTES: Final = 255
TOKEN_MAX_BYTES: Final = 128
# One day, also for a wait.
TTR_MAX_MS: Final = 86_400_000
WAIT_MAX_MS: Final = 86_400_000
# 30 days.
TTL_MAX_MS: Final = 2_592_000_000
PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1
# The limit of max-attempts and max-fails, which are bytes in the original server; 0 is no limit.
ATTEMPTS_MAX: Final = 255
# The maximum of items in one reply of `inspect`.
LIMIT_MAX: Final = 100
# The names of one lease: a session cannot watch more queues. The original server only limits the
# line.
NAMES_MAX: Final = 1024
# Spaces in one line: a mebibyte of one-letter words would block the node for 100 ms.
SPACES_MAX: Final = 16_384
# The number of flags of `add` and `schedule`, and of `run`, whatever their names are.
FLAGS_MAX: Final = 3
RUN_FLAGS_MAX: Final = 1

ID_BYTES: Final = 16

_match_name = re.compile(rb"[A-Za-z0-9_.-]{1,%d}" % NAME_MAX_BYTES).fullmatch


def is_name(name: bytes) -> bool:
    """Return whether these bytes may name a queue."""
    return _match_name(name) is not None
