"""The gRPC services of a simulated node: the product's own, in virtual time and without gRPC.

Belongs here: the part of an event loop that their coroutines need, and the caller's end of a call.
`overseers` and `stewards` decide which calls are made.
"""

import asyncio
from asyncio import events as asyncio_events
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context as Variables
from typing import Any, Final, NoReturn

from beanpole.addresses import host_of_peer
from beanpole.client.rpc import TOKEN_KEY
from beanpole.errors import BeanpoleError
from beanpoled.rpc import job_scan
from beanpoled.rpc.call import Call
from beanpoled.rpc.caller import CALLER, read
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.guarding import GUARDED, Guard
from beanpoled.rpc.jobs import JobAdminServicer
from beanpoled.rpc.policies import PoliciesServicer
from beanpoled.rpc.queue import QueueServicer
from beanpoled.rpc.users import UsersServicer
from tests.sim.host import SimHost

# A scan yields after a time of the real clock, but a seed must always give the same life.
vars(job_scan)["SLICE_S"] = float("inf")


# Coroutines that have not made a step yet. If their process dies before, nothing ever awaits
# them, and Python warns unless they are closed.
_UNBEGUN: Final[dict[Coroutine[Any, Any, Any], SimHost]] = {}


class CallEnded(BeanpoleError):
    """A service ended a call with a status."""


class Loop:
    """The part of an event loop of a simulated process that coroutines use."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._fault: BaseException | None = None
        self.itself: Any = self  # for functions that require a whole loop

    def time(self) -> float:
        """See `asyncio`."""
        return self._host.world.clock.now_s

    def get_debug(self) -> bool:
        """See `asyncio`."""
        return False

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio`."""
        return asyncio.Future(loop=self.itself)

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Variables | None = None
    ) -> asyncio.Handle:
        """See `asyncio`."""
        handle = asyncio.Handle(callback, args, self.itself, context)
        self._host.call_soon(lambda: self._run(handle))
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Variables | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`."""
        handle = asyncio.TimerHandle(when, callback, args, self.itself, context)
        self._host.world.clock.at(when, lambda: self._host.enter(lambda: self._run(handle)))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Variables | None = None,
    ) -> asyncio.TimerHandle:
        """See `asyncio`."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """See `asyncio`; the handle stays in the clock and does nothing."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio`."""
        self._fault = context.get("exception")

    def failed(self, error: BaseException) -> None:
        """Note that a coroutine ended with an unexpected error, which the process must see."""
        self._fault = error

    def _run(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        before = asyncio_events._get_running_loop()
        asyncio_events._set_running_loop(self.itself)
        try:
            handle._run()
        finally:
            asyncio_events._set_running_loop(before)
        fault, self._fault = self._fault, None
        if fault is not None:
            raise fault


class Caller:
    """The other end of one call, as `grpc.aio.ServicerContext`.

    Attributes:
        messages: the messages of a stream so far.
        sessions: the sessions of the commands that the service sent: origin, incarnation, number.
    """

    def __init__(self, client_host: bytes) -> None:
        self._peer = f"ipv4:{client_host.decode()}:1"
        self.messages: list[Any] = []
        self.sessions: list[tuple[int, int, int]] = []

    def peer(self) -> str:
        """See gRPC."""
        return self._peer

    async def write(self, message: Any) -> None:
        """See gRPC."""
        told = type(message)()
        told.CopyFrom(message)  # because the service reuses the message
        self.messages.append(told)

    async def abort(self, code: Any, message: str = "", trailing: Any = ()) -> NoReturn:
        """See gRPC."""
        raise CallEnded(f"{code.name}: {message}")


class NotedCallers(Callers):
    """The calls of a node; each records its sessions."""

    async def do(
        self, context: Any, give: Callable[[Call], None], begun: bool = False
    ) -> list[Any]:
        """See `Callers`."""
        origin = self._node.origin
        place = self._node.context.index

        def noted(call: Call) -> None:
            context.sessions.append((place, origin.incarnation, call.number))
            give(call)

        return await super().do(context, noted, begun)


class Services:
    """The services of one process."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self._loop = Loop(host)
        # Tasks of a dead process are kept: closing their coroutines would be an act of the process.
        self._tasks: Final[list[asyncio.Task[None]]] = []
        callers = NotedCallers(host.node)
        self.jobs = JobAdminServicer(host.node, callers)
        self.policies = PoliciesServicer(host.node, callers)
        self.queue = QueueServicer(host.node, callers)
        self.users = UsersServicer(host.node, callers)
        self._guard = Guard(host.node, callers)

    async def guarded(
        self,
        method: str,
        behavior: Callable[[Any, Any], Awaitable[Any]],
        request: Any,
        caller: Any,
        token: bytes,
    ) -> Any:
        """Answer a call as `Guard` does: with the rights of a token, of none if it is empty."""
        metadata = [(TOKEN_KEY, f"Bearer {token.decode()}")] if token else []
        found = read(host_of_peer(caller.peer()), (), metadata)
        CALLER.set(found)
        await self._guard._check_knows(caller)
        await self._guard._check(GUARDED[method], found, request, caller)
        return await behavior(request, caller)

    def begin(
        self, work: Coroutine[Any, Any, Any], done: Callable[[Any, CallEnded | None], None]
    ) -> None:
        """Answer a call; `done` takes the reply, or the error that ended the call."""

        async def answer() -> None:
            del _UNBEGUN[work], _UNBEGUN[answering]
            try:
                reply = await work
            except CallEnded as error:
                done(None, error)
            except GeneratorExit:
                raise
            except BaseException as error:
                self._loop.failed(error)
            else:
                done(reply, None)

        answering = answer()
        _end_unbegun(self._host)
        _UNBEGUN[work] = _UNBEGUN[answering] = self._host
        task = asyncio.Task(answering, loop=self._loop.itself)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)


def _end_unbegun(host: SimHost) -> None:
    """Close the unbegun coroutines of processes that are gone and of earlier lives."""
    for work, other in list(_UNBEGUN.items()):
        if not other.alive or other.world is not host.world:
            del _UNBEGUN[work]
            work.close()
