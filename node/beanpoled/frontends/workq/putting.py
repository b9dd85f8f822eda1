"""The session of a Workq client, and whether it may make a job at this node now.

The requests are in `connection`; the life cycle of a connection is in `requests`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from beanpole.core.users import PUT
from beanpole.events import WORKQ
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.requests import (
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

    def _session(self) -> int:
        if not self.number:
            self._clients.origin.open_session(self, WORKQ)
        return self.number

    def _may_put(
        self, name: bytes, payload: bytes, put: Callable[[r.Request], None], request: r.Request
    ) -> bool:
        """Whether a job may be made at this node now.

        If not, the client is sent the reason, or `put` is called with the request again later.
        """
        if not self._takes_puts():
            return False
        self._session()
        clients, size = self._clients, len(payload)
        reason = PUT_DENIED
        if clients.may(self, PUT, PREFIX + name):
            spaces = clients.machine.queue.spaces
            if not clients.is_over_quota(self, size) or request[1] in spaces[WORKQ].external_ids:
                return True
            reason = PUT_BEYOND_QUOTA
        if not self._hold_request(size, partial(put, request)):
            self._refuse_put(reason)
        return False

    def _refuse_put(self, reason: int) -> None:
        self._replies.reply(_PUT_REFUSALS[reason])
