"""Conventions of all gRPC services: errors, and the description of a node.

The messages are documented in proto/README.md. No service is implemented here.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Any, Final, NoReturn

import grpc
import grpc.aio

from beanpole.client.rpc import ERROR_KEY
from beanpole.core.jobs import display_names
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import User
from beanpole.events import QLESS
from beanpole.pb import errors_pb2, node_pb2
from beanpoled.rpc.patience import ENDINGS
from beanpoled.view import ClientFigures, Metrics, NodeView, QlessFigures, SpaceFigures

# Queues of qless that a status lists: one page for people.
QLESS_QUEUES_SHOWN: Final = 10

_ROLES: Final = {
    "follower": node_pb2.ROLE_FOLLOWER,
    "candidate": node_pb2.ROLE_CANDIDATE,
    "leader": node_pb2.ROLE_LEADER,
}

Context = grpc.aio.ServicerContext[Any, Any]
# The behavior of a method's handler; its reply may also be a stream.
Behavior = Callable[[Any, Context], Awaitable[Any]]

# Of a call that needs a right: ends it if its caller has lost that meanwhile.
STILL_ALLOWED: Final[ContextVar[Callable[[], Awaitable[None]] | None]] = ContextVar(
    "still_allowed", default=None
)


class CallRefused(Exception):
    """An invalid request: a reason for programs, a message for people, and the field."""

    def __init__(self, reason: str, field: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.field = field


async def fail(
    context: Context, code: grpc.StatusCode, message: str, reason: str = "", **detail: str
) -> NoReturn:
    """End a call with a status, a message for people, and an ErrorDetail for programs."""
    packed = errors_pb2.ErrorDetail(reason=reason, **detail).SerializeToString()
    ENDINGS.begin()
    await context.abort(code, message, ((ERROR_KEY, packed),))
    raise AssertionError("abort always raises")


def around(handler: Any, wrap: Callable[[Behavior], Behavior]) -> Any:
    """Return a method's handler with its behavior wrapped; for interceptors.

    Args:
        handler: of a method with one request.
        wrap: returns the new behavior.
    """
    make, behavior = (
        (grpc.unary_stream_rpc_method_handler, handler.unary_stream)
        if handler.response_streaming
        else (grpc.unary_unary_rpc_method_handler, handler.unary_unary)
    )
    return make(wrap(behavior), handler.request_deserializer, handler.response_serializer)


async def refuse(context: Context, error: CallRefused) -> NoReturn:
    """End a call whose request is invalid."""
    code = grpc.StatusCode.INVALID_ARGUMENT
    await fail(context, code, str(error), error.reason, field=error.field)


async def write(context: Context, message: Any, timeout_s: float) -> None:
    """Send a message of a stream; end the call if the reader does not take it in time.

    A stream may last for hours, so that the right to it is looked at for each message.
    """
    if (check := STILL_ALLOWED.get()) is not None:
        await check()
    try:
        async with asyncio.timeout(timeout_s):
            await context.write(message)
    except TimeoutError:
        words = f"a message was not taken for {timeout_s:.0f} s"
        await fail(context, grpc.StatusCode.DEADLINE_EXCEEDED, words)


def describe(view: NodeView) -> node_pb2.Node:
    """Return the node's description of itself."""
    jobs = view.jobs()
    # Once: it counts many things. The figures of the largest queues are costly, and not shown.
    metrics = view.metrics(with_queues=False)
    digests = view.digests()
    return node_pb2.Node(
        id=view.node_id,
        reachable=True,
        role=_ROLES[view.role],
        leader=view.leader or "",
        term=view.term,
        commit_index=view.commit_index,
        applied_index=view.applied_index,
        last_index=view.last_index,
        serving=view.serving,
        draining=view.draining,
        rejoining=view.rejoining,
        state=view.state,
        waits=view.waits(),
        durability=view.durability,
        version=view.version,
        cluster=view.cluster,
        config_hash=view.config_hash,
        links=view.links(),
        jobs=node_pb2.Jobs(**jobs._asdict()),
        pid=os.getpid(),
        snapshot_index=view.snapshot_index,
        machine_version=view.machine_version,
        machine_version_known=view.machine_version_known,
        birth=view.birth,
        waiting_for=view.waiting_for(),
        upgrade_finalize=view.upgrade_finalize,
        protocols=_protocols(metrics),
        qless=_qless(metrics.qless),
        digests=node_pb2.Digests(**digests._asdict()),
    )


def _qless(its: QlessFigures) -> node_pb2.Qless:
    queues = [
        node_pb2.QlessQueue(
            name=display_names.text(queue.name),
            paused=queue.paused,
            jobs=node_pb2.QlessJobs(**queue.jobs._asdict()),
        )
        for queue in its.queues[:QLESS_QUEUES_SHOWN]
    ]
    return node_pb2.Qless(
        jobs=node_pb2.QlessJobs(**its.jobs._asdict()),
        failed=its.failed,
        complete=its.complete,
        workers=its.workers,
        throttles=its.throttles,
        locks_lost=its.locks_lost_total,
        queues=queues,
    )


def leave_out_hidden(node: node_pb2.Node, user: User | None) -> None:
    """Remove the names of queues that a caller may not see, with their figures; totals stay.

    Args:
        node: a description.
        user: of the caller; None if that is not known.
    """
    queues = node.qless.queues
    if not queues or (user is not None and user.everywhere):
        return
    prefix = SPACES[QLESS].prefix
    for at in reversed(range(len(queues))):
        if user is None or not user.on(prefix + display_names.bytes_of(queues[at].name)):
            del queues[at]


def _protocols(metrics: Metrics) -> Iterator[node_pb2.Protocol]:
    for name in dict.fromkeys((*metrics.clients, *metrics.spaces)):
        clients = metrics.clients.get(name, ClientFigures())
        space = metrics.spaces.get(name, SpaceFigures())
        jobs = node_pb2.Jobs(
            ready=space.ready, reserved=space.reserved, delayed=space.delayed, buried=space.buried
        )
        yield node_pb2.Protocol(
            name=name,
            connections=clients.connections,
            connections_total=clients.connections_total,
            waiting=clients.waiting,
            commands_total=sum(clients.commands_total.values()),
            jobs=jobs,
            kept=space.kept,
            queues=space.queues,
        )
