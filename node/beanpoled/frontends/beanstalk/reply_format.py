"""Format results of the machine as beanstalk replies. Pure: values in, bytes out.

`kinds` assigns the formatters to requests. `stats` is not here: most of its values are the node's
own (see `server_stats`).
"""

import json
from collections.abc import Callable
from typing import Any, Final

from beanpole import commands as c
from beanpole.core.jobs import display_names
from beanpole.core.jobs.spaces import PREFIX_END
from beanpole.protocol.beanstalk import replies, stats
from beanpoled.frontends.large_output import LARGE_BYTES
from beanpoled.frontends.replies import Parts

# A limit of the cluster or of the tube is reached.
_NO_ROOM: Final = (c.OUT_OF_MEMORY, c.FULL)
_TUBE: Final = stats.STATS_JOB_KEYS.index("tube")

Formatter = Callable[[Any], bytes | Parts]


def _refusal(result: object) -> bytes:
    if result == c.DENIED:
        return replies.DENIED
    return replies.NOT_FOUND if result == c.NOT_FOUND else replies.INTERNAL_ERROR


def not_shown(result: Any) -> bytes:
    """Return the reply to a request for statistics that is refused."""
    return replies.DENIED if result == c.DENIED else replies.NOT_FOUND


def inserted(result: tuple[int, int] | int) -> bytes:
    if isinstance(result, tuple):
        return replies.inserted(result[0])  # the job of an equal put, by the tube's policy
    if result > 0:
        return b"INSERTED %d\r\n" % result
    return replies.OUT_OF_MEMORY if result in _NO_ROOM else _refusal(result)


def inserted_once(result: tuple[int, int] | int) -> bytes:
    if isinstance(result, int):
        return inserted(result)
    job, known = result
    return replies.exists(job) if known else replies.inserted(job)


def done(reply: bytes) -> Formatter:
    def format_done(result: int) -> bytes:
        if result > 0:
            return reply
        return _refusal(result)

    return format_done


def with_body(word: bytes, reply: Callable[[int, bytes], bytes]) -> Formatter:
    """Return the formatter of a job with its body, for which any number of clients may ask."""

    def format_with_body(result: tuple[int, bytes] | int) -> bytes | Parts:
        if isinstance(result, int):
            return _refusal(result)
        job, body = result
        if len(body) > LARGE_BYTES:
            return (b"%b %d %d\r\n" % (word, job, len(body)), body, b"\r\n")
        return reply(job, body)

    return format_with_body


def job_stats(result: tuple[Any, ...] | int) -> bytes:
    if type(result) is not tuple:
        return not_shown(result)
    tube = result[_TUBE]
    if tube[0] < PREFIX_END:
        # The job of an alias that was removed stays in a queue that is no tube.
        result = (*result[:_TUBE], _escaped(display_names.queue(tube)), *result[_TUBE + 1 :])
    return replies.ok(stats.format_stats_job(result))


def _escaped(name: str) -> bytes:
    """Return a name as YAML has it between quotes, in ASCII: clients decode nothing else.

    JSON's escapes are YAML's, except for those of characters above U+FFFF.
    """
    text = json.dumps(name, ensure_ascii=False)[1:-1]
    return text.encode("ascii", "backslashreplace").replace(b"\x7f", rb"\x7f")


# For `reserve-job`, where success also makes the client a worker.
format_reserve_job: Final = with_body(b"RESERVED", replies.reserved)
