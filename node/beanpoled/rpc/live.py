"""The gRPC service `Live`: the current figures of queues. It only reads the node's view."""

import asyncio
from typing import Final

import grpc.aio

from beanpole.pb import live_pb2, live_pb2_grpc, node_pb2
from beanpoled.rpc.server import Context
from beanpoled.view import Lately, NodeView, Quantiles, QueueFigures

SERVICE: Final = live_pb2.DESCRIPTOR.services_by_name["Live"].full_name


class LiveServicer(live_pb2_grpc.LiveServicer):
    """Answers viewers of live figures."""

    def __init__(self, view: NodeView) -> None:
        self._view = view

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        live_pb2_grpc.add_LiveServicer_to_server(self, server)
        return SERVICE

    async def Read(self, request: live_pb2.LiveRequest, context: Context) -> live_pb2.LiveReply:
        view = self._view
        largest = view.metrics().queues
        # Yield to the loop: each of the two computes the quantiles of a hundred queues.
        await asyncio.sleep(0)
        found = {(queue.protocol, queue.name): queue for queue in (*largest, *view.busiest())}
        return live_pb2.LiveReply(
            node=view.node_id,
            lately_s=view.lately_s(),
            all=_lately(view.lately()),
            queues=map(_queue, found.values()),
        )


def _queue(queue: QueueFigures) -> live_pb2.LiveQueue:
    its = _lately(queue.lately)
    its.protocol, its.name = queue.protocol, queue.name
    its.jobs.CopyFrom(
        node_pb2.Jobs(
            ready=queue.ready,
            reserved=queue.reserved,
            delayed=queue.delayed,
            buried=queue.buried,
        )
    )
    its.kept, its.ready_age_s = queue.kept, queue.ready_s
    return its


def _lately(lately: Lately) -> live_pb2.LiveQueue:
    return live_pb2.LiveQueue(
        puts_per_s=lately.puts_per_s,
        reserved_per_s=lately.reserved_per_s,
        ended_per_s=lately.ended_per_s,
        wait=_durations(lately.wait),
        run=_durations(lately.run),
    )


def _durations(quantiles: Quantiles) -> live_pb2.Durations:
    return live_pb2.Durations(
        p50_s=quantiles.p50_s,
        p90_s=quantiles.p90_s,
        p99_s=quantiles.p99_s,
        count=quantiles.durations,
    )
