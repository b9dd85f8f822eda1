"""The right that each call of gRPC needs, and in which queues: one table, one interceptor.

The rights of a user are in `beanpole.core.users`, the identity of a caller in `caller`. The machine
checks calls that change queues or jobs again, in the order of the log; this check covers calls that
only read, and refuses before anything is done.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio
from google.protobuf.message import Message

from beanpole.addresses import host_of_peer
from beanpole.constants import DEFAULT_TUBE
from beanpole.core.jobs import display_names
from beanpole.core.machine import Machine
from beanpole.core.users import ADMIN, ANONYMOUS, ANY_RIGHT, EVENTS, PUT, RIGHT_NAMES, User
from beanpoled.frontends.clients import NO_RIGHT, NO_TOKEN, UNKNOWN_TOKEN
from beanpoled.rpc.caller import CALLER, NAMES_KEY, Caller, read
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.door import Door
from beanpoled.rpc.server import STILL_ALLOWED, Behavior, Context, around, fail
from beanpoled.turn.node import Node

_PREFIX: Final = "/beanpole.v1."
# gRPC's key for the certificate of a caller.
_CERTIFICATE_KEY: Final = "x509_pem_cert"


class Row(NamedTuple):
    """The rights that a method needs.

    Attributes:
        rights: one of these is sufficient.
        queues: the queues of a request, by name; an empty name means every queue.
        jobs: the jobs of a request, whose queues are checked, too.
    """

    rights: int
    queues: Callable[[Any], Iterable[str]] | None = None
    jobs: Callable[[Any], Iterable[int]] | None = None


def _of_filter(request: Any) -> list[str]:
    """Return the queue of a filter, and the target of a move; named jobs have their own."""
    named = getattr(request, "job_ids", ())
    found = [] if named else [request.filter.queue]
    to = getattr(request, "to_queue", "")
    return [*found, *([to] if to else [])]


_DEFAULT: Final = DEFAULT_TUBE.decode()
_EVERYWHERE: Final = Row(ADMIN)
GUARDED: Final[dict[str, Row]] = {
    "Admin/TransferLeader": _EVERYWHERE,
    "Admin/TakeSnapshot": _EVERYWHERE,
    "Admin/Finalize": _EVERYWHERE,
    "Admin/ListConnections": _EVERYWHERE,
    "Admin/CloseConnection": _EVERYWHERE,
    "Backup/Take": _EVERYWHERE,
    "Events/EventRange": Row(EVENTS),
    "Events/ReadEvents": Row(EVENTS),
    "JobAdmin/ListQueues": Row(ADMIN, lambda request: [request.queue]),
    "JobAdmin/PauseQueue": Row(ADMIN, lambda request: [request.queue]),
    "JobAdmin/ListJobs": Row(ADMIN, _of_filter),
    "JobAdmin/GetJob": Row(ADMIN, lambda request: (), lambda request: [request.id]),
    "JobAdmin/Change": Row(ADMIN, _of_filter, lambda request: request.job_ids),
    "Live/Read": Row(ANY_RIGHT),
    "NodeAdmin/ReadAudit": _EVERYWHERE,
    "NodeAdmin/ListSettings": _EVERYWHERE,
    "NodeAdmin/Examine": _EVERYWHERE,
    "NodeAdmin/Reload": _EVERYWHERE,
    "Policies/Set": _EVERYWHERE,
    "Policies/Drop": _EVERYWHERE,
    "Policies/List": Row(ANY_RIGHT, lambda request: [request.queue]),
    # `edge` has bounded the number of jobs before: this is for callers without a right, too.
    "Queue/Put": Row(PUT, lambda request: {job.tube or _DEFAULT for job in request.jobs}),
    "Queue/Kick": Row(ADMIN, lambda request: (), lambda request: request.job_ids),
    "Queue/SetAlias": _EVERYWHERE,
    "Queue/ListAliases": Row(ANY_RIGHT),
    "Users/Set": _EVERYWHERE,
    "Users/Drop": _EVERYWHERE,
    "Users/List": _EVERYWHERE,
    "Users/AddToken": _EVERYWHERE,
    "Users/DropToken": _EVERYWHERE,
    "Users/SetRules": _EVERYWHERE,
    "Users/ListRules": _EVERYWHERE,
}
# The reason why a method needs no right.
_OF_MEMBERS: Final = "its callers prove that they are members"
FREE: Final = {
    "Admin/Status": "tools look for a leader; it names no queue that the caller may not see",
    "Peer/Challenge": "it is the first half of such a proof",
    "Peer/NodeInfo": _OF_MEMBERS,
    "Peer/FetchSnapshot": _OF_MEMBERS,
    "Users/WhoAmI": "it tells a caller of itself",
}
# Methods that also work while a node may not know all users. Two show the reason why it does not
# serve: they only read, and tell of nodes, not of jobs, clients or settings. The others are between
# nodes.
ALWAYS: Final = frozenset(
    {
        *("Admin/Status", "NodeAdmin/Examine"),
        *("Peer/Challenge", "Peer/NodeInfo", "Peer/FetchSnapshot"),
    }
)


class Guard(grpc.aio.ServerInterceptor):
    """Refuses calls whose callers lack the right. Without users, it only identifies callers."""

    def __init__(self, node: Node, callers: Callers, door: Door | None = None) -> None:
        """Create the guard; before a refusal it looks again after a `recheck` of `callers`."""
        self._node = node
        self._callers = callers
        self._door = door or Door()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """See `ServerInterceptor`."""
        handler = await continuation(handler_call_details)
        full_name: str = handler_call_details.method
        if handler is None or not full_name.startswith(_PREFIX):
            return handler  # health and reflection
        method = full_name.removeprefix(_PREFIX)
        metadata = handler_call_details.invocation_metadata or ()
        return around(handler, lambda behavior: self._guarded(behavior, method, metadata))

    def _guarded(self, behavior: Behavior, method: str, metadata: Any) -> Behavior:
        row = GUARDED.get(method)

        async def guarded(request: Message, context: Context) -> Any:
            shown = context.auth_context()
            names = shown.get(NAMES_KEY, ())
            caller = read(host_of_peer(context.peer()), names, metadata)
            CALLER.set(caller)
            if shown.get(_CERTIFICATE_KEY):  # TLS has checked that it is of the nodes' CA
                self._door.prove(context)
            if method not in ALWAYS:
                await self._check_knows(context)
            if row is not None:
                await self._check(row, caller, request, context)
                if row.queues is None:  # others are short, and change the jobs that they name
                    STILL_ALLOWED.set(lambda: self._check_again(row, caller, request, context))
            elif method not in FREE:
                await fail(context, grpc.StatusCode.PERMISSION_DENIED, "nobody may call this")
            else:
                self._prove(caller.user(self._machine.users), context)
            CALLER.set(CALLER.get()._replace(passed=True))
            return await behavior(request, context)

        return guarded

    @property
    def _machine(self) -> Machine:
        return self._node.context.machine

    async def _check_knows(self, context: Context) -> None:
        """Refuse a call before all is applied that was committed before the start of this process.

        Until then, a machine without a state has no users, and a snapshot may be older than they
        are. The disk has the events and the audit log from before the start.
        """
        if not self._node.lifecycle.has_gone_up:
            message = f"{self._node.context.name} has not caught up with the cluster since its "
            message += "start, and may not know all users yet: see `beanpole status`"
            await fail(context, grpc.StatusCode.UNAVAILABLE, message, "NOT_SERVING")

    async def _check(self, row: Row, caller: Caller, request: Any, context: Context) -> None:
        user = await self._user_of(caller, context)
        name = user.name.decode()
        CALLER.set(caller._replace(name=name))
        self._prove(user, context)
        where = _closed(row, user, request, self._machine)
        if where is not None and self._node.serving:
            # A right or a job that another node has just changed may not be known here yet.
            await self._callers.recheck(context)
            user = await self._user_of(caller, context)
            where = _closed(row, user, request, self._machine)
        if where is None:
            return
        words = " or ".join(word for right, word in RIGHT_NAMES.items() if right & row.rights)
        if _has_name(user):
            self._node.clients.refused_client(NO_RIGHT)
            where = _with_queue(where, self._machine)
            message = f"{name} lacks the right {words} in {where}"
            await fail(context, grpc.StatusCode.PERMISSION_DENIED, message, "NO_RIGHT")
        self._node.clients.refused_client(NO_TOKEN)
        message = f"a token is needed: callers without one lack the right {words} in {where}"
        await fail(context, grpc.StatusCode.UNAUTHENTICATED, message, "NO_TOKEN")

    async def _check_again(self, row: Row, caller: Caller, request: Any, context: Context) -> None:
        user = caller.user(self._machine.users)
        if user is None or _closed(row, user, request, self._machine) is not None:
            await self._check(row, caller, request, context)

    def _prove(self, user: User | None, context: Context) -> None:
        """Mark the connection of a caller with a name as proved; without users, any caller's."""
        if user is None or not self._node.lifecycle.has_gone_up:
            return
        if _has_name(user) or not self._machine.users.rows:
            self._door.prove(context)

    async def _user_of(self, caller: Caller, context: Context) -> User:
        users = self._machine.users
        user = caller.user(users)
        if user is None and self._node.serving:
            await self._callers.recheck(context)  # it may have been added at another node
            user = caller.user(self._machine.users)
        if user is None and not (users.rows or self._node.lifecycle.has_gone_up):
            return users.anonymous  # a method of `ALWAYS`: the user may be newer than the state
        if user is None:
            self._node.clients.refused_client(UNKNOWN_TOKEN)
            message = "no user has this token"
            await fail(context, grpc.StatusCode.UNAUTHENTICATED, message, "UNKNOWN_TOKEN")
        return user


def _has_name(user: User) -> bool:
    return user.name not in (b"", ANONYMOUS)


def _with_queue(text: str, machine: Machine) -> str:
    """Return a name with the queue that it denotes if it is an alias: a right belongs to that one.

    This is for callers that are users; to others it would reveal a queue.
    """
    try:
        queue = machine.queue.aliases.queues.get(display_names.parsed(text))
    except ValueError:
        return text
    return text if queue is None else f"{display_names.queue(queue)}, of which {text} is an alias"


def _closed(row: Row, user: User, request: Any, machine: Machine) -> str | None:
    """Return a name of where the user lacks the rights; None if it has one everywhere."""
    if user.everywhere & row.rights:
        return None
    if row.queues is None:
        return "all:*"
    queue_of = machine.queue.aliases.queue_of
    for text in row.queues(request):
        if not text:
            return "all:*"
        try:
            name = display_names.parsed(text)
        except ValueError:
            return text
        if not user.on(queue_of(name)) & row.rights:
            return text
    for job_id in () if row.jobs is None else row.jobs(request):
        job = machine.queue.jobs.get(job_id)
        # A missing job is refused alike: its absence must not be revealed, and it may exist by the
        # time of the call.
        if job is None or not user.on(job.tube.name) & row.rights:
            return f"the queue of job {job_id}"
    return None
