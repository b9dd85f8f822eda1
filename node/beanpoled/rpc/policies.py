"""The gRPC service `Policies`: what becomes of jobs of some queues that come back too often.

Here are the words of a request and what is refused; the commands go the way of every client's
(`call`). What a policy does is in `beanpole.core.jobs.attempts`.
"""

from typing import Final, NoReturn

import grpc
import grpc.aio

from beanpole import commands as c
from beanpole.constants import U32_MAX
from beanpole.core.jobs.policies import ANY, POLICIES_MAX
from beanpole.core.jobs.policies import Policy as Row
from beanpole.pb import policies_pb2, policies_pb2_grpc
from beanpole.protocol.beanstalk.requests import is_tube_name
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.server import CallRefused, Context, fail
from beanpoled.turn.node import Node

SERVICE: Final = policies_pb2.DESCRIPTOR.services_by_name["Policies"].full_name
_NO_TUBE: Final = "is no name of a tube: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( )"


class PoliciesServicer(policies_pb2_grpc.PoliciesServicer):
    """Sets, drops and lists policies for callers of this node."""

    def __init__(self, node: Node, callers: Callers) -> None:
        self._node = node
        self._callers = callers

    def add_to(self, server: grpc.aio.Server) -> str:
        """Join a server; returns the service's full name."""
        policies_pb2_grpc.add_PoliciesServicer_to_server(self, server)
        return SERVICE

    async def Set(
        self, request: policies_pb2.SetPolicyRequest, context: Context
    ) -> policies_pb2.SetPolicyReply:
        policy = request.policy
        try:
            pattern, dead = read_pattern(policy.pattern), _read_dead(policy.dead)
            if not 1 <= policy.attempts_max <= U32_MAX:
                words = f"attempts_max = {policy.attempts_max} is not allowed: it must be 1 or more"
                raise CallRefused("BAD_ATTEMPTS", "policy.attempts_max", words)
        except CallRefused as error:
            await _refuse(context, error)
        result = await self._do(context, c.SET_POLICY, pattern, policy.attempts_max, dead)
        if result == c.OUT_OF_MEMORY:
            words = f"there are {POLICIES_MAX} policies already; drop one"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, words, "TOO_MANY_POLICIES")
        return policies_pb2.SetPolicyReply()

    async def Drop(
        self, request: policies_pb2.DropPolicyRequest, context: Context
    ) -> policies_pb2.DropPolicyReply:
        try:
            pattern = read_pattern(request.pattern)
        except CallRefused as error:
            await _refuse(context, error)
        if await self._do(context, c.DROP_POLICY, pattern) == c.NOT_FOUND:
            words = f"there is no policy of {request.pattern!r}"
            await fail(context, grpc.StatusCode.NOT_FOUND, words, "NO_POLICY")
        return policies_pb2.DropPolicyReply()

    async def List(
        self, request: policies_pb2.ListPoliciesRequest, context: Context
    ) -> policies_pb2.ListPoliciesReply:
        policies = self._node.context.machine.queue.policies
        rows = sorted(policies.rows.items())
        if request.queue:
            counts = policies.of(request.queue.encode(errors="replace"))
            rows = [row for row in rows if row[1] is counts]
        return policies_pb2.ListPoliciesReply(policies=[_policy(*row) for row in rows])

    async def _do(self, context: Context, operation: int, *fields: int | bytes) -> int:
        await self._callers.check_serving(context)
        if not self._node.origin.knows(operation):
            words = "the cluster works at a machine version without policies"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, words, "MACHINE_VERSION")
        results = await self._callers.do(context, lambda call: call.submit(operation, *fields))
        result: int = results[0]
        assert result != c.BAD_COMMAND, "what the machine refuses was refused before"
        return result


def read_pattern(text: str) -> bytes:
    """Return a pattern as the machine has it.

    Raises:
        CallRefused: it is none.
    """
    any_text = ANY.decode()
    name = text.removesuffix(any_text).encode(errors="replace")
    if text != any_text and not is_tube_name(name):
        words = f"{text!r} {_NO_TUBE}; perhaps with {any_text} at its end"
        raise CallRefused("BAD_PATTERN", "policy.pattern", words)
    return text.encode()


def _read_dead(text: str) -> bytes:
    name = text.encode(errors="replace")
    if text and not is_tube_name(name):
        raise CallRefused("BAD_TUBE", "policy.dead", f"dead: {text!r} {_NO_TUBE}")
    return name


def _policy(pattern: bytes, row: Row) -> policies_pb2.Policy:
    return policies_pb2.Policy(
        pattern=pattern.decode(), attempts_max=row.attempts_max, dead=row.dead.decode()
    )


async def _refuse(context: Context, error: CallRefused) -> NoReturn:
    code = grpc.StatusCode.INVALID_ARGUMENT
    await fail(context, code, str(error), error.reason, field=error.field)
