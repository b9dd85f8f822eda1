"""Results of the machine as replies of the Workq protocol; when they go out is in `connection`."""

from typing import Any, Final

from beanpole import commands as c
from beanpole.protocol.workq import replies

# The cluster or the queue has as much as it may.
_NO_ROOM: Final = (c.OUT_OF_MEMORY, c.FULL)


def refusal(result: int) -> bytes:
    """The reply for what the cluster does not do."""
    if result == c.DENIED:
        return replies.DENIED
    return replies.OUT_OF_MEMORY if result in _NO_ROOM else replies.INTERNAL_ERROR


def added(result: Any) -> bytes:
    """The reply of a command that makes a job."""
    if not isinstance(result, int):
        return replies.OK
    return replies.DUPLICATE_JOB if result == c.EXISTS else refusal(result)


def finished(result: Any) -> bytes:
    """The reply of a command that ends a job."""
    if result == c.OK:
        return replies.OK
    if result == c.NOT_FOUND:
        return replies.NOT_FOUND
    return replies.DUPLICATE_RESULT if result == c.EXISTS else refusal(result)
