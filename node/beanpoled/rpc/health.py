"""The health service, for load balancers and orchestrators.

gRPC's own has a lock for each service that a watcher holds while it writes: one that takes nothing
kept the state from all others, and the server from its end.
"""

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from beanpoled.rpc.server import Context, fail, write

# A watcher takes some 10 bytes for each change of a state; between them it may be silent for ever.
WATCHER_TIMEOUT_S: Final = 30.0

_Reply = health_pb2.HealthCheckResponse
Status = _Reply.ServingStatus


class HealthServicer(health_pb2_grpc.HealthServicer):
    """Tells the states of services; a watcher that is slow misses those between."""

    def __init__(self) -> None:
        self._states: dict[str, Status] = {}
        self._changed = asyncio.Event()
        self._final = False

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> _Reply:
        status = self._states.get(request.service)
        if status is None:
            await fail(context, grpc.StatusCode.NOT_FOUND, "there is no such service")
        return _Reply(status=status)

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Context) -> None:
        told = None
        while True:
            changed = self._changed
            status = self._states.get(request.service, _Reply.SERVICE_UNKNOWN)
            if status != told:
                await write(context, _Reply(status=status), WATCHER_TIMEOUT_S)
                told = status
            await changed.wait()

    def set(self, states: dict[str, Status]) -> None:
        """Set the states of services; without effect after `stop`."""
        if self._final or states == self._states:
            return
        self._states = states
        # Watchers wait for the event of the state that they have told.
        self._changed.set()
        self._changed = asyncio.Event()

    def stop(self) -> None:
        """Tell watchers that nothing serves, once and for all."""
        self.set(dict.fromkeys(self._states, _Reply.NOT_SERVING))
        self._final = True
