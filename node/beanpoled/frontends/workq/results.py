"""Format results of the machine as Workq replies; `connection` sends them."""

from collections.abc import Callable
from typing import Any, Final

from beanpole import commands as c
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r

# A limit of the cluster or of the queue is reached.
_NO_ROOM: Final = (c.OUT_OF_MEMORY, c.FULL)


def refusal(result: int) -> bytes:
    """Return the reply to a refused command."""
    if result == c.DENIED:
        return replies.DENIED
    return replies.OUT_OF_MEMORY if result in _NO_ROOM else replies.INTERNAL_ERROR


def added(result: Any) -> bytes:
    """Return the reply to a command that makes a job."""
    if not isinstance(result, int):
        return replies.OK
    return replies.DUPLICATE_JOB if result == c.EXISTS else refusal(result)


def finished(result: Any) -> bytes:
    """Return the reply to a command that ends a job."""
    if result == c.OK:
        return replies.OK
    if result == c.NOT_FOUND:
        return replies.NOT_FOUND
    return replies.DUPLICATE_RESULT if result == c.EXISTS else refusal(result)


# By kind of the command, for those that are answered by their result alone.
FORMATTERS: Final[dict[int, Callable[[Any], bytes]]] = {
    r.ADD: added,
    r.SCHEDULE: added,
    r.COMPLETE: finished,
    r.FAIL: finished,
    r.DELETE: finished,
}
