"""Results of Workq: the requests that end a job, and whether their node can refuse them itself.

The other requests are in `connection`; the life cycle of a connection is in `requests`.
"""

from functools import partial

from beanpole import commands as c
from beanpole.core.jobs.job import DONE, FAILED
from beanpole.core.operations.checks import find_named
from beanpole.core.operations.extended import why_not_finished
from beanpole.core.users import WORK
from beanpole.events import WORKQ
from beanpole.protocol.workq import requests as r
from beanpoled.frontends.held_requests import HELD_BYTES_MIN
from beanpoled.frontends.workq.putting import PuttingConnection
from beanpoled.frontends.workq.results import finished


class EndingConnection(PuttingConnection):
    """A connection whose client may end jobs."""

    __slots__ = ()

    def _submit(self, kind: int, command: c.Command) -> None:
        self._replies.expect(kind)
        self._clients.origin.submit(self, kind, command)

    def _complete(self, request: r.Request) -> None:
        self._finish(request, DONE)

    def _fail(self, request: r.Request) -> None:
        self._finish(request, FAILED)

    def _finish(self, request: r.Request, state: int) -> None:
        """End a job. A large result that does not end it is kept out of the log."""
        kind, job, result = request
        command = (c.FINISH_NAMED, self._session(), job, state, result)
        why = c.OK
        if len(result) >= HELD_BYTES_MIN:
            why = self._why_not_finished(job, state, len(result))
        if why == c.OK:
            self._submit(kind, command)
        elif not self._hold_request(len(result), partial(self._finish, request, state)):
            self._replies.reply(finished(why))

    def _why_not_finished(self, external_id: bytes, state: int, size: int) -> int:
        """Return the result of FINISH_NAMED in the state that this node knows; OK if it ends."""
        clients = self._clients
        machine = clients.machine
        job = find_named(machine, machine.queue.spaces[WORKQ], external_id)
        if job is not None and not clients.may(self, WORK, job.tube.name):
            return c.DENIED
        return why_not_finished(machine, job, state, size)
