"""The requests of Workq clients: their numbers and words, the layout of tuples, limits.

A request is a flat tuple whose first item is one of the numbers below. A job's id is the 16 bytes
of its UUID; names, payloads and results are bytes; all else is int. How the bytes of a client
become requests is in `parser` and `lines`.
"""

import re
from typing import Any, Final

Request = tuple[Any, ...]

# --- the requests whose use is counted -----------------------------------------------------------
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
# --- what is answered without asking the queue ---------------------------------------------------
BAD: Final = 15  # (BAD, reply, counted): `counted` is the request whose counter rises, or 0
CLOSE: Final = 16  # (CLOSE,): no request can be told from these bytes; none follows
# --- which the server does not know -------------------------------------------------------------
AUTH: Final = 17  # (AUTH, token): of a user

# A list of counters has an unused first item.
COUNTERS: Final = INSPECT_SCHEDULED + 1

# How clients write them, as far as one word goes, and how the metrics name them.
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

# A payload, or a result: the protocol's limit.
PAYLOAD_MAX_BYTES: Final = 1024 * 1024
# One command, with its line's end and its payload: the server's limit.
COMMAND_MAX_BYTES: Final = 10_000 + PAYLOAD_MAX_BYTES
NAME_MAX_BYTES: Final = 255
TOKEN_MAX_BYTES: Final = 128
# A day; of a wait, too.
TTR_MAX_MS: Final = 86_400_000
WAIT_MAX_MS: Final = 86_400_000
# 30 days.
TTL_MAX_MS: Final = 2_592_000_000
PRIORITY_MIN: Final = -(2**31)
PRIORITY_MAX: Final = 2**31 - 1
# Of max-attempts and max-fails, which are bytes in the server; 0 is no limit.
ATTEMPTS_MAX: Final = 255
# The most that `inspect` shows with one command.
LIMIT_MAX: Final = 100
# The names of one lease. A session watches no more queues; the server has no limit but the line's.
NAMES_MAX: Final = 1024
# Spaces of one line: a mebibyte of one-letter words would hold up the node for 100 ms.
SPACES_MAX: Final = 16_384
# Flags of `add` and `schedule`, and of `run`; whatever their names are.
FLAGS_MAX: Final = 3
RUN_FLAGS_MAX: Final = 1

ID_BYTES: Final = 16

_match_name = re.compile(rb"[A-Za-z0-9_.-]{1,%d}" % NAME_MAX_BYTES).fullmatch


def is_name(name: bytes) -> bool:
    """Tell whether these bytes may name a queue."""
    return _match_name(name) is not None
