"""The tubes of a beanstalk client: those it uses and watches, and whether it may put or wait.

Other requests are in `connection`; the life cycle of a connection is in `requests`.
"""

from abc import abstractmethod
from functools import partial
from typing import Final

from beanpole import commands as c
from beanpole.constants import DEFAULT_TUBE, WATCHED_TUBES_MAX
from beanpole.core.operations.policy_puts import policy_of
from beanpole.core.sessions import Session
from beanpole.core.users import ANY_RIGHT, WORK
from beanpole.events import BEANSTALK
from beanpole.protocol.beanstalk import replies, stats
from beanpole.protocol.beanstalk import requests as r
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.requests import (
    PUT_ALLOWED,
    PUT_BEYOND_QUOTA,
    PUT_DENIED,
    PUT_DRAINING,
    PUT_NO_MAJORITY,
    PUT_NO_ROOM,
    RequestConnection,
)
from beanpoled.host.seam import ClientPort
from beanpoled.origin.batches import KIND_QUIET
from beanpoled.origin.heavy import LIGHT_MAX

_PUT_REFUSALS: Final = {
    PUT_DRAINING: replies.DRAINING,
    PUT_NO_ROOM: replies.OUT_OF_MEMORY,
    PUT_DENIED: replies.DENIED,
    PUT_BEYOND_QUOTA: replies.OUT_OF_MEMORY,
    PUT_NO_MAJORITY: replies.DRAINING,
}
_REFUSALS: Final = {c.OUT_OF_MEMORY: replies.OUT_OF_MEMORY, c.DENIED: replies.DENIED}


class TubesConnection(RequestConnection):
    """A connection with a session that uses and watches tubes."""

    __slots__ = ("_binding", "_used", "_watched")
    _speaks = BEANSTALK

    def __init__(self, clients: Clients, protocol: str, port: ClientPort) -> None:
        super().__init__(clients, protocol, port)
        self._used: bytes = DEFAULT_TUBE
        self._watched: dict[bytes, None] = {DEFAULT_TUBE: None}
        self._binding = b""  # the tube to be used or watched once it exists

    def watches(self, tube: bytes) -> bool:
        """See `Connection`."""
        return tube in self._watched

    def _submit(self, kind: int, command: c.Command) -> None:
        self._replies.expect(kind)
        self._clients.origin.submit(self, kind, command)

    def _submit_alone(self, kind: int, command: c.Command, weight: int = 0) -> None:
        """Submit a request that must be answered before those behind it are acted on.

        `weight` is the number of jobs, tubes or connections that it may visit.
        """
        self.blocked = True
        self._replies.expect(kind)
        self._submit_heavy(kind, command, weight)

    def _submit_heavy(self, kind: int, command: c.Command, weight: int) -> None:
        origin = self._clients.origin
        if weight > LIGHT_MAX:
            origin.heavy.submit(self, kind, command, self._clients.loop_us)
        else:
            origin.submit(self, kind, command)

    @abstractmethod
    def _put(self, request: r.Request) -> None:
        """Act on a put."""

    def _admit_put(self, request: r.Request) -> bool:
        """Let a put pass, or return False: it is refused, or `_put` gets it again later."""
        if not self._admit_any_put():
            return False
        size = len(request[4])
        why = self._why_not_put(self._used, size)
        if why == PUT_ALLOWED or (why == PUT_BEYOND_QUOTA and self._may_be_known(request)):
            return True
        self._hold_or_refuse_put(why, size, partial(self._put, request))
        return False

    def _may_be_known(self, request: r.Request) -> bool:
        """Whether a put may make no job, but be answered with an earlier one."""
        machine = self._clients.machine
        policy = policy_of(machine, self._used)
        if policy is not None and policy.unique_window_us:
            return True
        return request[0] == r.PUT_UNIQUE and machine.keys.find(request[5]) != 0

    def _refuse_put(self, reason: int) -> None:
        self._replies.reply(_PUT_REFUSALS[reason])

    def _use(self, request: r.Request) -> None:
        tube = request[1]
        session = self._session()
        if tube != self._used:
            if not self._bind(r.USE, (c.USE, session, tube)):
                return
            self._used = tube
        self._replies.reply(replies.using(tube))

    def _watch(self, request: r.Request) -> None:
        tube = request[1]
        session = self._session()
        if tube not in self._watched:
            if len(self._watched) >= WATCHED_TUBES_MAX:
                self._replies.reply(replies.OUT_OF_MEMORY)
                return
            if not self._bind(r.WATCH, (c.WATCH, session, tube)):
                return
            self._watched[tube] = None
        self._replies.reply(replies.watching(len(self._watched)))

    def _bind(self, kind: int, command: c.Command) -> bool:
        """Bind the session to a tube; False if the request is answered already, or will be later.

        A tube that exists is bound at once: the machine agrees, or this session ends. A tube that
        does not exist is created first: that must be committed before the client is answered.
        The machine also decides where this node finds no right: the machine may know more.
        """
        clients = self._clients
        tube = command[2]
        rights = ANY_RIGHT if kind == r.USE else WORK
        if tube in clients.machine.queue.tubes and clients.may(self, rights, tube):
            clients.origin.submit(self, KIND_QUIET, command)
            return True
        if clients.refuses_tube(tube):
            self._replies.reply(replies.OUT_OF_MEMORY)
        else:
            self._binding = tube
            self._submit_alone(kind, command)
        return False

    def _name_used(self, session: Session) -> bytes:
        """Return the name of the tube that a resumed session uses, perhaps by an alias.

        A queue whose alias is removed may have a name that is none of a tube: `default` then.
        """
        assert session.used is not None, "a session of beanstalk uses a tube"
        name = self._clients.machine.queue.bare_name(session.space, session.used)
        return name if r.is_tube_name(name) else DEFAULT_TUBE

    @property
    def _is_kept_out(self) -> bool:
        """Whether the client watches a tube that it may not work on, as far as this node knows.

        Clients watch the default tube without asking for it, so it does not count if they watch
        another one.
        """
        clients = self._clients
        if not clients.machine.users.rows:
            return False
        closed = [tube for tube in self._watched if not clients.may_take(self, tube)]
        return bool(closed) and (closed != [DEFAULT_TUBE] or len(self._watched) == 1)

    def _ignore(self, request: r.Request) -> None:
        tube = request[1]
        session = self._session()
        if tube in self._watched:
            if len(self._watched) == 1:
                self._replies.reply(replies.NOT_IGNORED)
                return
            del self._watched[tube]
            self._clients.origin.submit(self, KIND_QUIET, (c.IGNORE, session, tube))
        self._replies.reply(replies.watching(len(self._watched)))

    def _list_tube_used(self, request: r.Request) -> None:
        self._session()
        self._replies.reply(replies.using(self._used))

    def _list_tubes_watched(self, request: r.Request) -> None:
        self._session()
        reply = replies.ok(stats.format_list(self._watched))
        self._replies.owe(len(reply))
        self._replies.reply(reply)

    def _bound(self, kind: int, result: int) -> None:
        """Answer a `use` or `watch` whose tube had to be created."""
        if result != c.OK:
            self._answer_alone(refusal(result))
        elif kind == r.USE:
            self._used = self._binding
            self._answer_alone(replies.using(self._used))
        else:
            self._watched[self._binding] = None
            self._answer_alone(replies.watching(len(self._watched)))


def refusal(result: int) -> bytes:
    """Return the reply for a tube that cannot be used or watched."""
    return _REFUSALS.get(result, replies.INTERNAL_ERROR)
