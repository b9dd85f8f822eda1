"""Parse one line of a Workq client and its payload into a request or an error.

The checks have the order of the original server, because it decides which error a client gets for a
line with two mistakes. Splitting the stream into lines and payloads is in `parser`.
"""

from collections.abc import Callable
from typing import Final

from beanpole.constants import U32_MAX
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpole.protocol.workq.requests import Request
from beanpole.protocol.workq.values import (
    is_random_id,
    parse_id,
    parse_signed,
    parse_time,
    parse_unsigned,
)

_U64_MAX: Final = 2**64 - 1
_INT_MAX: Final = 2**63 - 1

Words = list[bytes]
Flags = dict[bytes, bytes]


class Head:
    """A parsed line that a payload follows."""

    __slots__ = ("arguments", "flags", "kind", "size")

    def __init__(self, kind: int, arguments: Words, flags: Flags, size: int) -> None:
        self.kind = kind
        self.arguments = arguments
        self.flags = flags
        self.size = size


# By word: the request and the number of its arguments; the last one is the size of the payload.
_WITH_PAYLOAD: Final = {
    b"add": (r.ADD, 5),
    b"schedule": (r.SCHEDULE, 6),
    b"run": (r.RUN, 5),
    b"complete": (r.COMPLETE, 2),
    b"fail": (r.FAIL, 2),
}


def bad_size(kind: int) -> Request:
    """Return the error for a payload that does not have the size in its line."""
    # `complete` has a result, too, but the original server's error names a payload.
    reply = replies.INVALID_RESULT_SIZE if kind == r.FAIL else replies.INVALID_PAYLOAD_SIZE
    return (r.BAD, reply, kind)


def read_line(line: bytes) -> Request | Head:
    """Parse a line without its end."""
    word, _, rest = line.partition(b" ")
    head = _WITH_PAYLOAD.get(word)
    read = _READERS.get(word)
    tokens = rest.split(b" ", r.SPACES_MAX)
    if len(tokens) > r.SPACES_MAX:
        known = head is not None or read is not None
        return (r.BAD, replies.INVALID_ARGS if known else replies.UNKNOWN_COMMAND, 0)
    arguments: Words = []
    flags: Flags = {}
    for token in tokens:
        if token.startswith(b"-") and b"=" in token:
            parts = token[1:].split(b"=", 2)
            # The text after a second "=" is dropped.
            if not parts[0] or not parts[1] or parts[0] in flags:
                return (r.BAD, replies.INVALID_FLAGS, 0)
            flags[parts[0]] = parts[1]
        elif token:
            arguments.append(token)
    if head is not None:
        return _read_head(head[0], head[1], arguments, flags)
    return (r.BAD, replies.UNKNOWN_COMMAND, 0) if read is None else read(arguments, flags)


def _read_head(kind: int, count: int, arguments: Words, flags: Flags) -> Request | Head:
    if len(arguments) != count:
        return (r.BAD, replies.INVALID_ARGS, kind)
    size = parse_signed(arguments[-1], 0, r.PAYLOAD_MAX_BYTES)
    return bad_size(kind) if size is None else Head(kind, arguments, flags, size)


def read_payload(head: Head, payload: bytes) -> Request:
    """Parse a line together with its payload."""
    if head.kind in (r.COMPLETE, r.FAIL):
        return _read_finish(head, payload)
    if len(head.flags) > (r.RUN_FLAGS_MAX if head.kind == r.RUN else r.FLAGS_MAX):
        return (r.BAD, replies.INVALID_ARGS, head.kind)
    if head.kind == r.RUN:
        return _read_run(head, payload)
    return _read_add(head, payload)


def _read_finish(head: Head, result: bytes) -> Request:
    if head.flags:
        return (r.BAD, replies.INVALID_ARGS, head.kind)
    job = parse_id(head.arguments[0])
    if job is None or not is_random_id(job):
        return (r.BAD, replies.INVALID_ID, head.kind)
    return (head.kind, job, result)


def _read_add(head: Head, payload: bytes) -> Request:
    """Parse `add` and `schedule`: first the syntax of all values, then their ranges."""
    kind, arguments, flags = head.kind, head.arguments, head.flags
    job = parse_id(arguments[0])
    name = arguments[1]
    ttr_ms = parse_unsigned(arguments[2], U32_MAX)
    ttl_ms = parse_unsigned(arguments[3], _U64_MAX)
    time_s = parse_time(arguments[4]) if kind == r.SCHEDULE else 0
    attempts_max = parse_unsigned(flags.get(b"max-attempts", b"0"), r.ATTEMPTS_MAX)
    fails_max = parse_unsigned(flags.get(b"max-fails", b"0"), r.ATTEMPTS_MAX)
    priority = parse_signed(flags.get(b"priority", b"0"), r.PRIORITY_MIN, r.PRIORITY_MAX)
    reply = b""
    if job is None:
        reply = replies.INVALID_ID
    elif ttr_ms is None:
        reply = replies.INVALID_TTR
    elif ttl_ms is None:
        reply = replies.INVALID_TTL
    elif time_s is None:
        reply = replies.INVALID_TIME
    elif attempts_max is None:
        reply = replies.INVALID_MAX_ATTEMPTS
    elif fails_max is None:
        reply = replies.INVALID_MAX_FAILS
    elif priority is None:
        reply = replies.INVALID_PRIORITY
    elif not is_random_id(job):
        reply = replies.INVALID_ID
    elif not r.is_name(name):
        reply = replies.INVALID_NAME
    elif not 0 < ttr_ms <= r.TTR_MAX_MS:
        reply = replies.INVALID_TTR
    elif not 0 < ttl_ms <= r.TTL_MAX_MS:
        reply = replies.INVALID_TTL
    if reply:
        return (r.BAD, reply, kind)
    limits = (priority, attempts_max, fails_max, payload)
    if kind == r.SCHEDULE:
        return (kind, job, name, ttr_ms, ttl_ms, time_s, *limits)
    return (kind, job, name, ttr_ms, ttl_ms, *limits)


def _read_run(head: Head, payload: bytes) -> Request:
    job = parse_id(head.arguments[0])
    name = head.arguments[1]
    ttr_ms = parse_unsigned(head.arguments[2], U32_MAX)
    wait_ms = parse_unsigned(head.arguments[3], U32_MAX)
    priority = parse_signed(head.flags.get(b"priority", b"0"), r.PRIORITY_MIN, r.PRIORITY_MAX)
    reply = b""
    if job is None:
        reply = replies.INVALID_ID
    elif ttr_ms is None:
        reply = replies.INVALID_TTR
    elif wait_ms is None:
        reply = replies.INVALID_WAIT
    elif priority is None:
        reply = replies.INVALID_PRIORITY
    elif not is_random_id(job):
        reply = replies.INVALID_ID
    elif not r.is_name(name):
        reply = replies.INVALID_NAME
    elif not 0 < ttr_ms <= r.TTR_MAX_MS:
        reply = replies.INVALID_TTR
    elif wait_ms > r.WAIT_MAX_MS:
        reply = replies.INVALID_WAIT
    if reply:
        return (r.BAD, reply, r.RUN)
    return (r.RUN, job, name, ttr_ms, wait_ms, priority, payload)


# --- lines without a payload ----------------------------------------------------------------------


def _read_result(arguments: Words, flags: Flags) -> Request:
    if len(arguments) != 2 or flags:
        return (r.BAD, replies.INVALID_ARGS, r.RESULT)
    job = parse_id(arguments[0])
    if job is None:
        return (r.BAD, replies.INVALID_ID, r.RESULT)
    wait_ms = parse_unsigned(arguments[1], r.WAIT_MAX_MS)
    if wait_ms is None:
        return (r.BAD, replies.INVALID_WAIT, r.RESULT)
    if not is_random_id(job):
        return (r.BAD, replies.INVALID_ID, r.RESULT)
    return (r.RESULT, job, wait_ms)


def _read_lease(arguments: Words, flags: Flags) -> Request:
    names = tuple(dict.fromkeys(arguments[:-1]))
    if not names or flags or len(names) > r.NAMES_MAX:
        return (r.BAD, replies.INVALID_ARGS, r.LEASE)
    for name in names:
        if not r.is_name(name):
            return (r.BAD, replies.INVALID_NAME, r.LEASE)
    wait_ms = parse_unsigned(arguments[-1], r.WAIT_MAX_MS)
    if wait_ms is None:
        return (r.BAD, replies.INVALID_WAIT, r.LEASE)
    return (r.LEASE, names, wait_ms)


def _read_delete(arguments: Words, flags: Flags) -> Request:
    if len(arguments) != 1 or flags:
        return (r.BAD, replies.INVALID_ARGS, r.DELETE)
    job = parse_id(arguments[0])
    if job is None:
        return (r.BAD, replies.INVALID_ID, r.DELETE)
    if not is_random_id(job):
        # The original server finds no job with such an id, and answers that it is deleted.
        return (r.BAD, replies.OK, r.DELETE)
    return (r.DELETE, job)


def _read_inspect(arguments: Words, flags: Flags) -> Request:
    if not arguments:
        return (r.BAD, replies.INVALID_ARGS, 0)
    read = _INSPECTORS.get(arguments[0])
    if read is None:
        return (r.BAD, replies.UNKNOWN_COMMAND, 0)
    return (r.BAD, replies.INVALID_ARGS, 0) if flags else read(arguments[1:])


def _inspect_server(arguments: Words) -> Request:
    if arguments:
        return (r.BAD, replies.INVALID_ARGS, r.INSPECT_SERVER)
    return (r.INSPECT_SERVER,)


def _inspect_queues(arguments: Words) -> Request:
    if len(arguments) != 2:
        return (r.BAD, replies.INVALID_ARGS, r.INSPECT_QUEUES)
    return _page((r.INSPECT_QUEUES,), arguments)


def _inspect_queue(arguments: Words) -> Request:
    if len(arguments) != 1:
        return (r.BAD, replies.INVALID_ARGS, r.INSPECT_QUEUE)
    if not r.is_name(arguments[0]):
        return (r.BAD, replies.INVALID_NAME, r.INSPECT_QUEUE)
    return (r.INSPECT_QUEUE, arguments[0])


def _inspect_job(arguments: Words) -> Request:
    if len(arguments) != 1:
        return (r.BAD, replies.INVALID_ARGS, r.INSPECT_JOB)
    job = parse_id(arguments[0])
    if job is None:
        return (r.BAD, replies.INVALID_ID, r.INSPECT_JOB)
    return (r.INSPECT_JOB, job)


def _inspect_jobs(arguments: Words) -> Request:
    return _page_of_queue(r.INSPECT_JOBS, arguments)


def _inspect_scheduled(arguments: Words) -> Request:
    return _page_of_queue(r.INSPECT_SCHEDULED, arguments)


def _page_of_queue(kind: int, arguments: Words) -> Request:
    if len(arguments) != 3:
        return (r.BAD, replies.INVALID_ARGS, kind)
    if not r.is_name(arguments[0]):
        return (r.BAD, replies.INVALID_NAME, kind)
    return _page((kind, arguments[0]), arguments[1:])


def _page(request: Request, arguments: Words) -> Request:
    """Append the offset and the limit to a request."""
    offset = parse_signed(arguments[0], 0, _INT_MAX)
    if offset is None:
        return (r.BAD, replies.INVALID_OFFSET, request[0])
    limit = parse_signed(arguments[1], 1, r.LIMIT_MAX)
    if limit is None:
        return (r.BAD, replies.INVALID_LIMIT, request[0])
    return (*request, offset, limit)


def _read_auth(arguments: Words, flags: Flags) -> Request:
    if len(arguments) != 1 or flags or len(arguments[0]) > r.TOKEN_MAX_BYTES:
        return (r.BAD, replies.INVALID_ARGS, 0)
    return (r.AUTH, arguments[0])


_READERS: Final[dict[bytes, Callable[[Words, Flags], Request]]] = {
    b"result": _read_result,
    b"lease": _read_lease,
    b"delete": _read_delete,
    b"inspect": _read_inspect,
    b"auth": _read_auth,
}
_INSPECTORS: Final[dict[bytes, Callable[[Words], Request]]] = {
    b"server": _inspect_server,
    b"queues": _inspect_queues,
    b"queue": _inspect_queue,
    b"job": _inspect_job,
    b"jobs": _inspect_jobs,
    b"scheduled-jobs": _inspect_scheduled,
}
