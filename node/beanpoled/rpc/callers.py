"""The common part of calls that change the queue: when a node accepts one, and how it ends.

The commands of a call are in `call`, the messages of calls in `queue` and `jobs`.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc

from beanpole import commands as c
from beanpole.addresses import host_of_peer
from beanpole.core.operations.table import since
from beanpoled.leading.versions import RAISE_PATIENCE_S
from beanpoled.rpc.call import NO_SESSION, NO_USER, Call
from beanpoled.rpc.caller import CALLER
from beanpoled.rpc.recheck import Rechecks
from beanpoled.rpc.server import Context, fail
from beanpoled.turn.node import Node

# At most this many wait for the cluster at once, each with up to 4 MiB of jobs and a session.
WAITING_MAX: Final = 64
RAISE_POLL_S: Final = 0.02


class Callers:
    """The calls of this node that wait for the cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting = 0
        self._rechecks = Rechecks(node)

    async def check_serving(self, context: Context) -> None:
        """Refuse a call that cannot be executed now: none of it takes effect."""
        await self._check_reaching(context)
        await self._check_room(context)

    async def _check_room(self, context: Context) -> None:
        """Refuse a call if as many as may wait for the cluster do so already."""
        if self._waiting >= WAITING_MAX:
            message = f"{WAITING_MAX} calls are under way at {self._node.context.name}"
            message += "; ask another node, or later"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "TOO_MANY_CALLS")

    async def _check_reaching(self, context: Context) -> None:
        """Refuse a call if this node can send no command to the cluster now."""
        node = self._node
        name = node.context.name
        if not node.serving:
            message = f"{name} is not serving now; ask another node"
            await fail(context, grpc.StatusCode.UNAVAILABLE, message, "NOT_SERVING")
        if node.clients.outbox_is_full:
            message = f"the outbox of {name} is full; try again in a moment"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "OUTBOX_FULL")

    async def check_known(self, operation: int, what: str, context: Context) -> None:
        """Also refuse an operation that the cluster supports only after its upgrade.

        A call in a new cluster waits until that is raised: before, this node does not serve.

        Args:
            operation: of the commands to be submitted.
            what: the feature, in words: "aliases".
            context: of the call.
        """
        if self._is_opening():
            await self._check_room(context)
        else:
            await self.check_serving(context)
            if self._node.origin.knows(operation):
                return
        self._waiting += 1
        try:
            is_known = await self._knows_soon(operation)
        finally:
            self._waiting -= 1
        await self.check_serving(context)
        if not is_known:
            version = self._node.context.machine.version
            message = f"the cluster works at a machine version without {what} (it is {version}, "
            message += f"{since(operation)} has them); `beanpole cluster finalize` ends an upgrade"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, message, "MACHINE_VERSION")

    def _is_opening(self) -> bool:
        """Whether this node waits only for the cluster to be raised before it serves."""
        lifecycle = self._node.lifecycle
        return lifecycle.is_opening and not (lifecycle.fenced or self._node.context.stopping)

    async def _knows_soon(self, operation: int) -> bool:
        """Wait for the cluster to raise its version; return whether it supports an operation."""
        node, is_opening = self._node, self._is_opening
        time_s = asyncio.get_running_loop().time
        until_s = time_s() + RAISE_PATIENCE_S
        while is_opening() or not node.origin.knows(operation):
            is_rising = is_opening() or node.leader.versions.coming() >= since(operation)
            if time_s() >= until_s or not is_rising:
                return False
            await asyncio.sleep(RAISE_POLL_S)
        return True

    async def do(
        self, context: Context, give: Callable[[Call], None], begun: bool = False
    ) -> list[Any]:
        """Return the results of the commands that `give` submits, once all are applied here.

        They run as the caller, with the rights of its user.

        Args:
            context: of the gRPC call.
            give: submits commands.
            begun: the gRPC call has changed something before, so that no refusal of these commands
                may say that nothing was done.
        """
        caller = CALLER.get()
        return await self._do(context, give, caller.names, caller.token, begun)

    async def _do(
        self,
        context: Context,
        give: Callable[[Call], None],
        names: tuple[bytes, ...] = (),
        token: bytes = b"",
        begun: bool = False,
        elsewhere: bool = False,
    ) -> list[Any]:
        done = asyncio.Event()
        self._waiting += 1
        host = host_of_peer(context.peer())
        call = Call(self._node.clients, host, done.set, names, token)
        try:
            give(call)
            await done.wait()
        finally:
            self._waiting -= 1
            call.end()  # also if the caller has gone
        await self._check_done(context, call.failure, begun, elsewhere)
        if self._node.context.machine.users.rows and c.DENIED in call.results:
            message = "a right ended a moment ago; the changes before that stay"
            await fail(context, grpc.StatusCode.PERMISSION_DENIED, message, "RIGHT_ENDED")
        return call.results

    async def barrier(self, context: Context, elsewhere: bool = False) -> None:
        """Wait until all that was acknowledged before the call is applied here.

        Args:
            context: of the call.
            elsewhere: a call whose barrier has no answer ends with UNAVAILABLE, as one that another
                node may answer, because nothing was done.
        """
        await self.check_serving(context)
        await self._do(context, Call.barrier, elsewhere=elsewhere)

    async def recheck(self, context: Context) -> None:
        """As `barrier`, for a caller without a known right: it shares one with others like it.

        It takes no place of the calls that do something, and may wait for its barrier to begin.
        """
        failure = await self._rechecks.wait(context, self._check_reaching)
        await self._check_done(context, failure)

    async def _check_done(
        self, context: Context, failure: int, begun: bool = False, elsewhere: bool = False
    ) -> None:
        """End a call whose commands failed, with the reason of their `Call`.

        NO_RIGHT and UNKNOWN_TOKEN are those of `guarding`, where nothing is changed: programs take
        them for that, so that the ends of rights and tokens within a change have other reasons.
        """
        if failure == NO_SESSION:
            message = "the cluster has as many sessions as sessions_max allows"
            if begun:
                message += "; the changes before that stay"
                await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message)
            message += "; nothing was done"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "TOO_MANY_SESSIONS")
        if failure == NO_USER:
            message = "no user has this token any more; the outcome is unknown"
            await fail(context, grpc.StatusCode.UNAUTHENTICATED, message, "TOKEN_ENDED")
        if failure:
            message = self._node.condition.unanswered()
            if elsewhere:
                await fail(context, grpc.StatusCode.UNAVAILABLE, message, "NOT_SERVING")
            message += "; the outcome is unknown"
            await fail(context, grpc.StatusCode.DEADLINE_EXCEEDED, message)
