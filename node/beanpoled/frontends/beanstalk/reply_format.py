"""Results of the machine as replies of the beanstalk protocol. Pure: values in, bytes out.

`stats` is not here: most of its values are the node's own (see `server_stats`).
"""

from collections.abc import Callable
from typing import Any, Final

from beanpole import commands as c
from beanpole.protocol.beanstalk import replies, stats
from beanpole.protocol.beanstalk import requests as r

Formatter = Callable[[Any], bytes]


def _put(result: int) -> bytes:
    if result > 0:
        return b"INSERTED %d\r\n" % result
    return replies.OUT_OF_MEMORY if result == c.OUT_OF_MEMORY else replies.INTERNAL_ERROR


def _done(reply: bytes) -> Formatter:
    def format_done(result: int) -> bytes:
        if result > 0:
            return reply
        return replies.NOT_FOUND if result == c.NOT_FOUND else replies.INTERNAL_ERROR

    return format_done


def _with_body(reply: Callable[[int, bytes], bytes]) -> Formatter:
    def format_with_body(result: tuple[int, bytes] | int) -> bytes:
        if type(result) is tuple:
            return reply(*result)
        return replies.NOT_FOUND if result == c.NOT_FOUND else replies.INTERNAL_ERROR

    return format_with_body


def _stats_job(result: tuple[Any, ...] | int) -> bytes:
    if type(result) is not tuple:
        return replies.NOT_FOUND
    return replies.ok(stats.format_stats_job(result))


# Not in the table: success also makes its client a worker.
format_reserve_job: Final = _with_body(replies.reserved)

FORMATTERS: Final[dict[int, Formatter]] = {
    r.PUT: _put,
    r.DELETE: _done(replies.DELETED),
    r.RELEASE: _done(replies.RELEASED),
    r.BURY: _done(replies.BURIED),
    r.TOUCH: _done(replies.TOUCHED),
    r.KICK_JOB: _done(replies.KICKED),
    r.PAUSE_TUBE: _done(replies.PAUSED),
    r.PEEK: _with_body(replies.found),
    r.PEEK_READY: _with_body(replies.found),
    r.PEEK_DELAYED: _with_body(replies.found),
    r.PEEK_BURIED: _with_body(replies.found),
    r.STATS_JOB: _stats_job,
}
