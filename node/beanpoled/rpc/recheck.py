"""One barrier for all callers whose right a node does not know: strangers cannot make one each.

A call is refused only after a barrier, because its user or its right may be newer than the state of
this node. Anybody can make such calls, at any rate. `guarding` decides which calls wait here;
`callers` has the calls that do something.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc

from beanpole.addresses import host_of_peer
from beanpoled.frontends.client_rates import BURST_US, Meter
from beanpoled.rpc.call import Call
from beanpoled.rpc.server import Context, fail
from beanpoled.turn.node import Node

# At most this many wait at once. Their places are not those of the calls that do something, which
# strangers must not take; `admin` has room for both. With the next constant, a node refuses 640
# calls in a second after a check, and others without one.
RECHECKS_MAX: Final = 32
# At most this many barriers begin in a second, and as many at once after a second without any. Each
# is a batch in the log of all nodes. A caller whose user was made a moment ago, while strangers
# use them up, waits some hundredths of a second longer.
BARRIERS_PER_SECOND: Final = 20


class _Barrier:
    """A barrier: its call once it has begun, and whether it has ended."""

    def __init__(self) -> None:
        self.call: Call | None = None
        self.has_ended = False


class Rechecks:
    """The callers of this node that wait for a barrier before they are refused."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting = 0
        # At most one is in progress. Callers that come meanwhile share the next one, because a user
        # that was made after the beginning of the one in progress may be missing at its end.
        self._current: _Barrier | None = None
        self._next = _Barrier()
        self._changed = asyncio.Event()  # a barrier has ended, or may begin now
        self._meter = Meter(BARRIERS_PER_SECOND)
        self._meter.paid_us = node.clients.host.now_us() - BURST_US
        self._timer: Any = None

    async def wait(
        self, context: Context, check_serving: Callable[[Context], Awaitable[None]]
    ) -> int:
        """Wait until all that was acknowledged before the call is applied here.

        Args:
            context: of the call.
            check_serving: refuses the call where a barrier could not be executed now.

        Returns:
            0, or the failure of the barrier, as `Call.failure`.
        """
        await check_serving(context)
        if self._waiting >= RECHECKS_MAX:
            message = f"{RECHECKS_MAX} calls without a known right are being checked"
            message += f" at {self._node.context.name}; ask another node, or later"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "TOO_MANY_CHECKS")
        barrier = self._next
        self._waiting += 1
        try:
            while not barrier.has_ended:
                if barrier is self._next and self._may_begin():
                    await check_serving(context)  # the node may have been cut off meanwhile
                    self._begin(host_of_peer(context.peer()))
                else:
                    await self._changed.wait()
        finally:
            self._waiting -= 1
        assert barrier.call is not None, "it has begun"
        return barrier.call.failure

    def _may_begin(self) -> bool:
        """Whether a barrier may begin now; if only its time has not come, a timer says when."""
        if self._current is not None or self._timer is not None:
            return False
        now_us = self._node.clients.host.now_us()
        if self._meter.saved(now_us):
            return True
        due_us = int(self._meter.paid_us) + 1_000_000 // BARRIERS_PER_SECOND + 1
        self._timer = self._node.clients.call_later(due_us - now_us, self._time_has_come)
        return False

    def _time_has_come(self) -> None:
        self._timer = None
        self._wake()

    def _begin(self, host: bytes) -> None:
        """Begin the next barrier, in a session for the address of one of its callers.

        It goes on if all its callers go: their going and coming must not cause more barriers.
        """
        barrier = self._current = self._next
        self._next = _Barrier()
        self._meter.spend(1, self._node.clients.host.now_us())

        def ended() -> None:
            barrier.has_ended = True
            self._current = None
            self._wake()  # the callers of the next one begin it: here the node may be closing calls

        barrier.call = Call(self._node.clients, host, ended)
        barrier.call.barrier()

    def _wake(self) -> None:
        self._changed.set()
        self._changed.clear()
