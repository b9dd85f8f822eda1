"""Kinds of requests: the operation and the reply of each, and sets of kinds with special handling.

`connection` handles them; their numbers, words and layouts are in `protocol.beanstalk.requests`.
"""

from typing import Final, NamedTuple

from beanpole import commands as c
from beanpole.protocol.beanstalk import replies
from beanpole.protocol.beanstalk import requests as r
from beanpoled.frontends.beanstalk.reply_format import (
    Formatter,
    done,
    inserted,
    inserted_once,
    job_stats,
    with_body,
)
from beanpoled.origin.batches import KIND_WAIT


class Row(NamedTuple):
    """A request that becomes one command.

    Attributes:
        request: its number.
        operation: of the command, whose fields are the session and the request's arguments.
        reply: formats the result; None if the result needs more than a reply.
    """

    request: int
    operation: int
    reply: Formatter | None


_FOUND: Final = with_body(b"FOUND", replies.found)

# About the job or tube that their arguments name.
_ABOUT_JOB_ROWS: Final = (
    Row(r.DELETE, c.DELETE, done(replies.DELETED)),
    Row(r.RELEASE, c.RELEASE, done(replies.RELEASED)),
    Row(r.BURY, c.BURY, done(replies.BURIED)),
    Row(r.TOUCH, c.TOUCH, done(replies.TOUCHED)),
    Row(r.PEEK, c.PEEK, _FOUND),
    Row(r.KICK_JOB, c.KICK_JOB, done(replies.KICKED)),
    Row(r.RESERVE_JOB, c.RESERVE_JOB, None),
    Row(r.STATS_JOB, c.STATS_JOB, job_stats),
    Row(r.PAUSE_TUBE, c.PAUSE_TUBE, done(replies.PAUSED)),
)
# About the tube that the client uses.
_ABOUT_USED_TUBE_ROWS: Final = (
    Row(r.PEEK_READY, c.PEEK_READY, _FOUND),
    Row(r.PEEK_DELAYED, c.PEEK_DELAYED, _FOUND),
    Row(r.PEEK_BURIED, c.PEEK_BURIED, _FOUND),
)
_ROWS: Final = (*_ABOUT_JOB_ROWS, *_ABOUT_USED_TUBE_ROWS)

ABOUT_JOBS: Final = tuple([row.request for row in _ABOUT_JOB_ROWS])
ABOUT_USED_TUBE: Final = tuple([row.request for row in _ABOUT_USED_TUBE_ROWS])
OPERATIONS: Final = {row.request: row.operation for row in _ROWS}
FORMATTERS: Final[dict[int, Formatter]] = {
    r.PUT: inserted,
    r.PUT_UNIQUE: inserted_once,
    r.KEEP: done(replies.KEPT),
    **{row.request: row.reply for row in _ROWS if row.reply is not None},
}

# Not a client's request: a barrier before a reserve, so that this node knows the users.
LOOK: Final = 64

# Requests that must be answered before those behind them are acted on.
ALONE: Final = frozenset(
    (
        *(KIND_WAIT, r.KICK, r.STATS, r.STATS_TUBE),
        *(r.LIST_TUBES, r.USE, r.WATCH, r.RESUME, r.AUTH, LOOK),
    )
)

# Requests whose replies contain a body.
WITH_BODY: Final = frozenset((r.PEEK, r.RESERVE_JOB))

RESERVES: Final = frozenset((r.RESERVE, r.RESERVE_TIMEOUT))
