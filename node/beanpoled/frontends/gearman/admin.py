"""The administrator's side of a Gearman connection: lines of text.

A list shows the state of the cluster, after a barrier in the log: it includes every command that
was answered on any node before the request. The lists themselves are in `listings`.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from beanpole import commands as c
from beanpole.core.jobs.job import Tube
from beanpole.core.users import ADMIN, ANY_RIGHT, WORK
from beanpole.protocol.gearman import admin, replies
from beanpole.protocol.gearman.parser import TEXT, Request
from beanpoled.frontends.clients import NO_RIGHT, Clients
from beanpoled.frontends.gearman import listings
from beanpoled.frontends.gearman.client import ClientSide
from beanpoled.frontends.gearman.list_line import Listing
from beanpoled.frontends.gearman.session import Asked
from beanpoled.frontends.gearman.shared import PREFIX, Shared, knows
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import NOT_DONE

# Commands that are recorded in the audit log.
_CHANGES: Final = {
    admin.CANCEL_JOB: "cancel job",
    admin.CREATE_FUNCTION: "create function",
    admin.DROP_FUNCTION: "drop function",
    admin.MAX_QUEUE: "maxqueue",
    admin.SHUTDOWN: "shutdown",
}
# The outcome when the connection ends before the answer.
_UNANSWERED: Final = b"UNKNOWN"


class _Change(NamedTuple):
    """A change in progress, for the audit log, which has it once it has ended.

    Attributes:
        command: its name.
        line: as received.
        begun_us: when it was received.
        may_be_done: whether its user has the right, as far as this node knew; or its result will
            not be known. If not, the leader may still allow it: the right may be newer.
        is_begun: whether a part of it is done.
    """

    command: str
    line: bytes
    begun_us: int
    may_be_done: bool
    is_begun: bool = False


class AdminSide(ClientSide):
    """A connection that sends lines of text."""

    __slots__ = ("_change", "_listing")

    def __init__(self, clients: Clients, protocol: str, port: ClientPort, shared: Shared) -> None:
        super().__init__(clients, protocol, port, shared)
        self._listing: Listing | None = None  # the list in progress
        # One at a time: a change is answered before later input is acted on. It outlives the
        # connection until its result is known, if it may be one of those without effect.
        self._change: _Change | None = None

    def _text(self, request: Request) -> None:
        kind, arguments = admin.read(request[1][0])
        if kind in _CHANGES:
            self._session()  # a rule may make the client a user with that
            allowed = self._may_change(kind, arguments)
            now_us = self._clients.host.now_us()
            self._change = _Change(_CHANGES[kind], request[1][0], now_us, allowed)
        if kind == admin.WRONG:
            self._replies.reply(arguments[0])
        elif kind == admin.VERSION:
            self._replies.reply(admin.VERSION_REPLY)
        elif kind == admin.VERBOSE:
            self._replies.reply(admin.VERBOSE_REPLY)
        elif kind == admin.PID:
            self._replies.reply(b"OK %d\n" % self._clients.host.process().pid)
        elif kind == admin.SHUTDOWN:
            self._shut_down()
        elif kind == admin.AUTH:
            self._auth(arguments[0])
        elif kind == admin.CANCEL_JOB:
            self._cancel_job(arguments[0])
        elif kind in (admin.CREATE_FUNCTION, admin.DROP_FUNCTION, admin.MAX_QUEUE):
            self._change_function(kind, arguments)
        else:
            self._ask_alone(TEXT, (c.STATS, self._session()), (kind, b"", b""))

    def _answer_text(self, kind: int, result: Any, asked: Asked) -> None:
        what = asked[0]
        if what == admin.AUTH:
            self._authenticated(result, admin.OK, admin.BAD_TOKEN)
        elif result == c.DENIED:
            self._changed(admin.HALF_DENIED if self._is_begun else admin.DENIED)
        elif what == admin.CANCEL_JOB:
            self._changed(admin.OK if result == c.OK else self._why_not_cancelled(asked[1]))
        elif what == admin.DROP_FUNCTION:
            self._dropped(result, asked)
        elif what == admin.MAX_QUEUE:
            self._changed(admin.OK)  # also if there is no such function
        elif what == admin.CREATE_FUNCTION:
            no_room = admin.error(b"QUEUE_ERROR", b"A limit of the cluster is reached")
            self._changed(admin.OK if result == c.OK else no_room)
        elif self._sees_all:
            self._begin_list(self._list(what))
        else:
            self._clients.refused_client(NO_RIGHT)
            self._answer_alone(admin.DENIED)

    @property
    def _sees_all(self) -> bool:
        """Whether the user has a right in every function: a list shows all of them."""
        return self._clients.may_in_all_of(self, ANY_RIGHT, PREFIX)

    def _sees(self, tube: Tube) -> bool:
        """Whether the user has a right in a queue, which may belong to another protocol."""
        return self._clients.may(self, ANY_RIGHT, tube.name)

    def _auth(self, token: bytes) -> None:
        """Become a user; the requests behind it may depend on the user's rights."""
        if self._clients.origin.knows(c.AS_USER):
            self._session()
            self._asked.append((admin.AUTH, b"", b""))
            self._authenticate(TEXT, token)
        else:
            self._replies.reply(admin.unknown(b"auth"))

    # --- changes --------------------------------------------------------------------------------

    def _changed(self, reply: bytes) -> None:
        """Answer a command that waited for the cluster."""
        self._record(reply)
        self._answer_alone(reply)

    def _record(self, reply: bytes) -> None:
        """Record a change that has ended in the audit log, if there is one."""
        change, self._change = self._change, None
        if change is not None:
            outcome = "OK" if reply == admin.OK else reply.decode(errors="replace").strip()
            if change.is_begun and reply != admin.OK:
                outcome = "BEGUN, " + outcome
            # The right may have ended, or been given, since the command came.
            refused = reply == admin.DENIED or not (change.may_be_done or reply == admin.OK)
            self._clients.record(
                self, change.command, change.line, outcome, change.begun_us, refused
            )

    @property
    def _is_begun(self) -> bool:
        return self._change is not None and self._change.is_begun

    def _begun(self) -> None:
        """Note that a part of the change is done."""
        if self._change is not None:
            self._change = self._change._replace(may_be_done=True, is_begun=True)

    def _change_failed(self) -> None:
        """Answer a change that is not done, or only in part, and never will be."""
        text = b"No majority of the nodes answers; it is not done"
        if self._is_begun:
            text = b"No majority of the nodes answers; some jobs are deleted"
        self._changed(admin.error(b"QUEUE_ERROR", text))

    def _answered_late(self, result: Any) -> None:
        """Record the effect of a change whose client has gone."""
        if result == c.OK:
            self._record(admin.OK)
        elif result == c.AGAIN:
            self._begun()
            self._record(_UNANSWERED)
        self._change = None

    def _failed_late(self, why: int) -> None:
        """Record a change whose client has gone, unless it is certainly not done."""
        if why == NOT_DONE:
            self._change = None
        else:
            self.drop()

    def drop(self) -> None:
        """See `Connection`; the result of a change in progress may be lost with a snapshot."""
        if self._change is not None:
            self._change = self._change._replace(may_be_done=True)
        super().drop()
        self._record(_UNANSWERED)

    def _may_change(self, kind: int, arguments: tuple[bytes, ...]) -> bool:
        """Whether the user has the right for a change, as far as this node knows."""
        clients = self._clients
        if kind == admin.SHUTDOWN:
            return clients.may_everywhere(self, ADMIN)
        if kind != admin.CANCEL_JOB:
            return clients.may(self, ADMIN, PREFIX + arguments[0])
        job = clients.machine.queue.jobs.get(self._shared.job_of(arguments[0]))
        if job is None:
            return clients.may_in_all_of(self, WORK | ADMIN, PREFIX)
        return clients.may(self, WORK | ADMIN, job.tube.name)

    def _change_function(self, kind: int, arguments: tuple[bytes, ...]) -> None:
        session, name = self._session(), PREFIX + arguments[0]
        if kind == admin.CREATE_FUNCTION:
            command: c.Command = (c.CREATE_QUEUE, session, name)
        elif kind == admin.DROP_FUNCTION:
            command = (c.DROP_QUEUE, session, name)
        else:
            command = (c.LIMIT_QUEUE, session, name, *admin.limits(arguments[1:]))
        self._ask_alone(TEXT, command, (kind, name, b""))

    def _dropped(self, result: Any, asked: Asked) -> None:
        if result == c.AGAIN:
            self._begun()
            self._ask_again(TEXT, (c.DROP_QUEUE, self.number, asked[1]), asked)
        elif result == c.OK:
            self._changed(admin.OK)
        else:
            self._changed(admin.FUNCTION_BUSY if result == c.BUSY else admin.NO_FUNCTION)

    def _cancel_job(self, handle: bytes) -> None:
        job = self._shared.job_of(handle)
        if job:
            command: c.Command = (c.DELETE, self._session(), job)
            if job in self._clients.reserved_by(self.number) and job not in self._given_back:
                # DELETE would end a job of this very connection. The barrier shows whether the job
                # still exists: its end may be on its way.
                command = (c.STATS, self.number)
            self._ask_alone(TEXT, command, (admin.CANCEL_JOB, handle, b""))
        else:
            self._record(admin.NO_JOB)
            self._replies.reply(admin.NO_JOB)

    def _why_not_cancelled(self, handle: bytes) -> bytes:
        clients = self._clients
        job = clients.machine.queue.jobs.get(self._shared.job_of(handle))
        if job is None or not knows(clients.machine.queue, job):
            return admin.NO_JOB
        if not clients.may(self, WORK | ADMIN, job.tube.name):
            clients.refused_client(NO_RIGHT)
            return admin.DENIED
        # The job ran when its DELETE was refused, although it may be ready again: its worker may
        # have left in the same entry.
        return admin.JOB_RUNS

    def _shut_down(self) -> None:
        clients = self._clients
        if clients.config.gearman_shutdown == "on" and not self._may_change(admin.SHUTDOWN, ()):
            self._record(admin.DENIED)
            self._replies.reply(admin.DENIED)
        elif clients.config.gearman_shutdown == "on":
            self._record(admin.OK)
            self._replies.reply(admin.OK)
            self._clients.host.call_soon(self._clients.stop)
        else:
            reply = admin.unknown(b"shutdown")
            self._record(reply)
            self._replies.reply(reply)

    # --- lists ----------------------------------------------------------------------------------

    def _list(self, what: int) -> Iterator[bytes]:
        clients = self._clients
        machine = clients.machine
        if what == admin.STATUS:
            return listings.status(machine, self._sees)
        if what == admin.PRIORITY_STATUS:
            return listings.priority_status(machine, self._sees)
        if what == admin.SHOW_JOBS:
            return listings.show_jobs(machine, self._sees, self._shared)
        if what == admin.SHOW_UNIQUE_JOBS:
            return listings.show_unique_jobs(machine, self._sees)
        return listings.workers(clients.connections)

    def _answer_unique(self, kind: int, result: Any, asked: Asked) -> None:
        if self._sees_all:
            machine = self._clients.machine
            self._begin_list(listings.status_of_unique(machine, self._sees, asked[1]))
        else:
            self._clients.refused_client(NO_RIGHT)
            self._answer_alone(replies.DENIED)

    def _begin_list(self, pieces: Iterator[bytes]) -> None:
        end_unread = partial(self._clients.abort_slow, self)
        self._listing = Listing(pieces, self._list_on, end_unread)
        self._shared.lists.join(self._listing)

    def _list_on(self) -> bool:
        """Write the next piece; an empty reply ends the request."""
        listing = self._listing
        if listing is None or self.closed:
            return False
        if self._flow.held:
            self._shared.lists.pause(listing)
            return False
        if self._clients.large.has(self):
            return False  # its last piece is not written yet; `write` goes on
        piece = next(listing.pieces, None)
        if piece is None:
            self._listing = None
            self._answer_alone(b"")
            return False
        if piece:
            self._replies.push(piece)
        return True

    def write(self) -> None:
        """See `Connection`."""
        super().write()
        if self._listing is not None:
            self._shared.lists.join(self._listing)

    def unstall(self) -> None:
        """See `Connection`."""
        super().unstall()
        if self._listing is not None:
            self._shared.lists.join(self._listing)

    def _end(self, lost: bool) -> None:
        super()._end(lost)
        if self._listing is not None:
            self._shared.lists.leave(self._listing)
            self._listing = None
        change = self._change
        self._record(_UNANSWERED)
        if change is not None and not change.may_be_done:
            self._change = change  # it may have been left out, and the leader may still allow it
