"""The session of a Workq client, and whether it may make a job at this node now.

The requests are in `connection`; the life cycle of a connection is in `requests`.
"""

from collections.abc import Callable
from functools import partial

from beanpole.core.users import PUT
from beanpole.events import WORKQ
from beanpole.protocol.workq import replies
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.requests import RequestConnection
from beanpoled.frontends.workq.jobs import PREFIX


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
        self.is_producer = True
        clients = self._clients
        if clients.draining:
            self._replies.reply(replies.DRAINING)
            return False
        if clients.machine.puts_refused:
            # Refuse it at once: its payload would be logged on a disk that has no room for it.
            self._replies.reply(replies.OUT_OF_MEMORY)
            return False
        self._session()
        if clients.may(self, PUT, PREFIX + name):
            return True
        self._hold_put(len(payload), partial(put, request))
        return False

    def _refuse_put(self, is_denied: bool) -> None:
        self._replies.reply(replies.DENIED if is_denied else replies.NO_MAJORITY)
