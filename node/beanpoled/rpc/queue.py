"""The gRPC service `Queue`: many jobs in one call, for programs such as the Spark pipeline.

This file has the limits and refusals of requests, and the status of each failure. The commands take
the path of every client's (`call`).
"""

from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio

from beanpole import commands as c
from beanpole.constants import (
    BATCH_COMMANDS_MAX,
    BATCH_MAX_BYTES,
    DEDUP_KEY_MAX_BYTES,
    DEFAULT_TUBE,
)
from beanpole.core.operations import policy_puts
from beanpole.pb import queue_pb2, queue_pb2_grpc
from beanpole.protocol.beanstalk.requests import is_tube_name
from beanpoled.rpc import aliases
from beanpoled.rpc.call import Call
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.queue_names import NO_TUBE
from beanpoled.rpc.server import CallRefused, Context, fail, refuse
from beanpoled.turn.node import Node

SERVICE: Final = queue_pb2.DESCRIPTOR.services_by_name["Queue"].full_name
# Both bound the time for which one call occupies the loop, and equal the limits of one batch.
JOBS_MAX: Final = BATCH_COMMANDS_MAX
PUT_BYTES_MAX: Final = BATCH_MAX_BYTES
# The usual choice of beanstalkd clients.
TTR_DEFAULT_S: Final = 60

# The arguments of `Call.put`: (tube, priority, delay s, TTR s, body, key).
Put = tuple[bytes, int, int, int, bytes, bytes]


class QueueServicer(queue_pb2_grpc.QueueServicer):
    """Puts and kicks jobs for callers of this node."""

    def __init__(self, node: Node, callers: Callers | None = None) -> None:
        self._node = node
        self._context = node.context
        self._callers = callers or Callers(node)

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        queue_pb2_grpc.add_QueueServicer_to_server(self, server)
        return SERVICE

    async def Put(self, request: queue_pb2.PutRequest, context: Context) -> queue_pb2.PutReply:
        try:
            has_policies = self._node.origin.knows(c.SET_POLICY)
            puts = read_puts(request, self._context.config.max_job_size, has_policies)
        except CallRefused as error:
            await refuse(context, error)
        if self._context.draining:
            message = f"{self._context.name} is draining and takes no puts; ask another node"
            await fail(context, grpc.StatusCode.UNAVAILABLE, message, "DRAINING")
        await self._callers.check_serving(context)
        if not puts:
            return queue_pb2.PutReply()
        if self._context.machine.puts_refused:
            return queue_pb2.PutReply(results=[_result(c.OUT_OF_MEMORY)] * len(puts))

        def give(call: Call) -> None:
            for put in puts:
                call.put(*put)

        results = await self._callers.do(context, give)
        return queue_pb2.PutReply(results=map(_result, results))

    async def Kick(self, request: queue_pb2.KickRequest, context: Context) -> queue_pb2.KickReply:
        try:
            _check_count("job_ids", request.job_ids)
        except CallRefused as error:
            await refuse(context, error)
        await self._callers.check_serving(context)
        if not request.job_ids:
            return queue_pb2.KickReply()

        def give(call: Call) -> None:
            for job_id in request.job_ids:
                call.submit(c.KICK_JOB, job_id)

        results = await self._callers.do(context, give)
        return queue_pb2.KickReply(kicked=[result > 0 for result in results])

    async def SetAlias(
        self, request: queue_pb2.SetAliasRequest, context: Context
    ) -> queue_pb2.SetAliasReply:
        try:
            alias, queue = aliases.read(request)
        except CallRefused as error:
            await refuse(context, error)
        await self._callers.check_known(c.SET_ALIAS, "aliases", context)
        refusal = aliases.refusal_as_dead(self._context.machine, alias, request)
        if refusal is not None:
            await fail(context, *refusal)
        results = await self._callers.do(
            context, lambda call: call.submit(c.SET_ALIAS, alias, queue)
        )
        refusal = aliases.refusal_of(results[0], request)
        if refusal is not None:
            await fail(context, *refusal)
        return queue_pb2.SetAliasReply()

    async def ListAliases(
        self, request: queue_pb2.ListAliasesRequest, context: Context
    ) -> queue_pb2.ListAliasesReply:
        if not request.local:
            await self._callers.barrier(context)
        return queue_pb2.ListAliasesReply(aliases=aliases.listed(self._context.machine))


def read_puts(
    request: queue_pb2.PutRequest, body_max: int, has_policies: bool = False
) -> list[Put]:
    """Check a request and return its puts.

    Args:
        request: of a caller.
        body_max: the largest body, in bytes.
        has_policies: whether the machine supplies a put's priority and TTR from its tube.

    Raises:
        CallRefused: it breaks a limit or a rule.
    """
    _check_count("jobs", request.jobs)
    if request.ByteSize() > PUT_BYTES_MAX:
        message = f"the jobs have {request.ByteSize()} bytes; at most {PUT_BYTES_MAX} in one call"
        raise CallRefused("TOO_LARGE", "jobs", message)
    return [_read_put(*one, body_max, has_policies) for one in enumerate(request.jobs)]


def _read_put(place: int, job: queue_pb2.PutJob, body_max: int, has_policies: bool) -> Put:
    tube = job.tube.encode() or DEFAULT_TUBE
    if not is_tube_name(tube):
        message = f"{job.tube!r} {NO_TUBE}"
        raise CallRefused("BAD_TUBE", f"jobs[{place}].tube", f"{message}, not beginning with -")
    if len(job.body) > body_max:
        message = f"a body of {len(job.body)} bytes; max_job_size is {body_max}"
        raise CallRefused("JOB_TOO_BIG", f"jobs[{place}].body", message)
    key = job.key
    if len(key) > DEDUP_KEY_MAX_BYTES:
        message = f"a key of {len(key)} bytes; at most {DEDUP_KEY_MAX_BYTES}"
        raise CallRefused("KEY_TOO_LONG", f"jobs[{place}].key", message)
    priority, ttr_s = job.priority, job.ttr_s or TTR_DEFAULT_S
    if has_policies:
        # The policy of the tube may set other values.
        if not job.HasField("priority"):
            priority = policy_puts.NO_PRIORITY
        if not job.ttr_s:
            ttr_s = -TTR_DEFAULT_S
    return tube, priority, job.delay_s, ttr_s, job.body, key


def _check_count(field: str, items: Sequence[Any]) -> None:
    if len(items) > JOBS_MAX:
        message = f"{len(items)} {field}; at most {JOBS_MAX} in one call"
        raise CallRefused("TOO_MANY_JOBS", field, message)


def _result(result: Any) -> queue_pb2.PutResult:
    """Convert the machine's result of a put: an id, (id, duplicate) or an error."""
    if type(result) is tuple:
        job_id, duplicate = result
        outcome = queue_pb2.PUT_OUTCOME_DUPLICATE if duplicate else queue_pb2.PUT_OUTCOME_INSERTED
        return queue_pb2.PutResult(job_id=job_id, outcome=outcome)
    if result > 0:
        return queue_pb2.PutResult(job_id=result, outcome=queue_pb2.PUT_OUTCOME_INSERTED)
    if result == c.FULL:
        return queue_pb2.PutResult(outcome=queue_pb2.PUT_OUTCOME_QUEUE_FULL)
    return queue_pb2.PutResult(outcome=queue_pb2.PUT_OUTCOME_OUT_OF_MEMORY)
