"""Calls about one member: each node accepts them, and forwards them to the named member."""

from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio

from beanpole.client.rpc import detail_of
from beanpoled.rpc.caller import CALLER
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.server import Context, fail
from beanpoled.view import NodeView

# A member answers such a call from its memory.
MEMBER_TIMEOUT_S: Final = 2.0

Reply = TypeVar("Reply")


class Forwarder:
    """Forwards the calls of one service, whose requests have the fields `node` and `at_node`."""

    def __init__(self, view: NodeView, peers: PeerClient, stub: Any) -> None:
        """Create a forwarder; `stub` is the client class of the service."""
        self._view = view
        self._peers = peers
        self._stub = stub

    async def forwarded(
        self,
        method: str,
        request: Any,
        reply: type[Reply],
        context: Context,
        timeout_s: float = MEMBER_TIMEOUT_S,
    ) -> Reply | None:
        """Return the answer of the member that a call names; None if it is this node.

        Args:
            method: of the call.
            request: the same.
            reply: the class of the answer.
            context: of the call.
            timeout_s: for the answer.
        """
        view, member = self._view, request.node
        if member in ("", view.node_id):
            return None
        if member not in view.members:
            await fail_unknown(member, "node", view, context)
        if request.at_node:
            words = f"{view.node_id} is asked for {member}: the addresses of members are mixed up"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "NOT_THIS_NODE")
        request.at_node = True
        try:
            answer = await self._peers.ask(self._stub, member, method, request, timeout_s)
        except grpc.aio.AioRpcError as error:
            await fail_as(member, error, context)
        assert isinstance(answer, reply)
        return answer


async def fail_unknown(member: str, field: str, view: NodeView, context: Context) -> NoReturn:
    """Refuse a call that names an unknown member."""
    words = f"{field} = {member!r} is not one of the members: {', '.join(view.members)}"
    await fail(context, grpc.StatusCode.INVALID_ARGUMENT, words, "UNKNOWN_MEMBER", field=field)


async def fail_as(member: str, error: grpc.aio.AioRpcError, context: Context) -> NoReturn:
    """Refuse a call with the refusal of the member that it was forwarded to."""
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        words = f"the program of {member} is too old: it does not have this call"
        await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "TOO_OLD")
    detail = detail_of(error)
    words = f"{member}: {error.details()}"
    caller = CALLER.get()
    if detail.reason == "NO_TOKEN" and caller.name and not caller.metadata:
        words += f"; you are {caller.name} by a rule, and rules count at the node that is asked"
    await fail(
        context,
        error.code(),
        words,
        detail.reason,
        leader_id=detail.leader_id,
        leader_address=detail.leader_address,
    )
