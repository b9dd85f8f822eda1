"""The session of a Workq client, and whether it may make a job at this node now.

The requests are in `connection`; the life cycle of a connection is in `requests`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from beanpole.events import WORKQ
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.requests import (
    PUT_ALLOWED,
    PUT_BEYOND_QUOTA,
    PUT_DENIED,
    PUT_DRAINING,
    PUT_NO_MAJORITY,
    PUT_NO_ROOM,
    RequestConnection,
)
from beanpoled.frontends.workq.jobs import PREFIX

_PUT_REFUSALS: Final = {
    PUT_DRAINING: replies.DRAINING,
    PUT_NO_ROOM: replies.OUT_OF_MEMORY,
    PUT_DENIED: replies.DENIED,
    PUT_BEYOND_QUOTA: replies.OUT_OF_MEMORY,
    PUT_NO_MAJORITY: replies.NO_MAJORITY,
}


class PuttingConnection(RequestConnection):
    """A connection with a session that may make jobs."""

    __slots__ = ()
    _speaks = WORKQ

    def _admit_put(
        self, name: bytes, payload: bytes, put: Callable[[r.Request], None], request: r.Request
    ) -> bool:
        """Let a put pass, or return False: it is refused, or `put` gets the request again later."""
        if not self._admit_any_put():
            return False
        self._session()
        size = len(payload)
        why = self._why_not_put(PREFIX + name, size)
        if why == PUT_ALLOWED:
            return True
        known = self._clients.machine.queue.spaces[WORKQ].external_ids
        if why == PUT_BEYOND_QUOTA and request[1] in known:
            return True
        self._hold_or_refuse_put(why, size, partial(put, request))
        return False

    def _refuse_put(self, reason: int) -> None:
        self._replies.reply(_PUT_REFUSALS[reason])
