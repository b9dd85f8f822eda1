"""Wait for a snapshot of this node, for the calls that need one.

The replica makes snapshots, in slices.
"""

import asyncio
from typing import Final

import grpc

from beanpoled.rpc.server import Context, fail
from beanpoled.view import NodeView

# A million jobs of 100 bytes take two seconds beside the queue's work.
SNAPSHOT_TIMEOUT_S: Final = 60.0
SNAPSHOT_POLL_S: Final = 0.05


async def snapshot_up_to(view: NodeView, wanted: int, context: Context) -> None:
    """Wait until the newest snapshot covers the log up to an index, or end the call."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SNAPSHOT_TIMEOUT_S
    if view.snapshot_index < wanted and (words := view.snapshot_lacks()):
        # At once, so that the caller can ask another node.
        message = f"no snapshot can be made: {words}"
        await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "NO_ROOM")
    while view.snapshot_index < wanted:
        if loop.time() > until:
            await fail(
                context,
                grpc.StatusCode.DEADLINE_EXCEEDED,
                f"no snapshot up to index {wanted} in {SNAPSHOT_TIMEOUT_S:.0f} s; it goes on",
            )
        # The snapshot in progress may be older than the wanted index.
        view.take_snapshot()
        await asyncio.sleep(SNAPSHOT_POLL_S)
