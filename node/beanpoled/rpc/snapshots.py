"""Wait for a snapshot of this node and read it, for the calls that need one.

The replica makes snapshots, in slices, and makes one again that a reader found to be unreadable.
"""

import asyncio
from typing import Final

import grpc

from beanpole.errors import BeanpoleError
from beanpoled.rpc.server import Context, fail
from beanpoled.view import NodeView, SnapshotStream

# A million jobs of 100 bytes take two seconds beside the queue's work.
SNAPSHOT_TIMEOUT_S: Final = 60.0
# Reading, checking and sending gets at most this share of the loop's time and of a core: the rest
# is for clients. A chunk of 512 KiB takes two milliseconds, which allows 25 to 60 MB a second.
REST_PER_CHUNK: Final = 4
# A call verifies what it reads within this time; then it must answer, whatever the size.
VERIFY_MAX_S: Final = 30.0
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


async def open_snapshot(view: NodeView, context: Context) -> SnapshotStream | None:
    """Return the newest snapshot, or end the call if it cannot be read."""
    try:
        return view.snapshot_source()
    except (BeanpoleError, OSError) as error:
        await fail(context, grpc.StatusCode.DATA_LOSS, str(error), "SNAPSHOT_DAMAGED")


async def next_chunk(source: SnapshotStream, context: Context) -> bytes | None:
    """Return the next chunk, None after the last, or end the call if it cannot be read."""
    try:
        return await asyncio.to_thread(next, source.chunks, None)
    except (BeanpoleError, OSError) as error:
        await fail(context, grpc.StatusCode.DATA_LOSS, str(error), "SNAPSHOT_DAMAGED")


async def verify_snapshot(view: NodeView, context: Context) -> None:
    """Read the newest snapshot for some time, or end the call if it cannot be read."""
    source = await open_snapshot(view, context)
    time_s = asyncio.get_running_loop().time
    until_s = time_s() + VERIFY_MAX_S
    while source is not None and (begun_s := time_s()) < until_s:
        if await next_chunk(source, context) is None:
            return
        await asyncio.sleep(REST_PER_CHUNK * (time_s() - begun_s))
