"""The gRPC service `Backup`: a consistent image of the cluster for a program.

This file streams an image from this node's snapshot to the caller. A snapshot is made in slices
beside the queue's work, and read from the disk by a thread, so that neither a large image nor a
slow caller blocks the node. `beanpoled.cli.backup` is the client.
"""

import asyncio
from typing import Final

import grpc
import grpc.aio
from crc32c import crc32c

from beanpole.pb import backup_pb2, backup_pb2_grpc
from beanpoled.rpc.callers import Callers
from beanpoled.rpc.server import Context, fail, write
from beanpoled.rpc.snapshots import REST_PER_CHUNK, next_chunk, open_snapshot, snapshot_up_to
from beanpoled.view import NodeView, SnapshotStream

SERVICE: Final = backup_pb2.DESCRIPTOR.services_by_name["Backup"].full_name
# Each holds an open file, whose space is not freed before the backup ends, and a chunk of 4 MiB.
BACKUPS_MAX: Final = 2
# A caller may write through a pipe to a tape or a bucket; a caller that reads nothing for this long
# is considered gone.
TAKE_TIMEOUT_S: Final = 300.0


class BackupServicer(backup_pb2_grpc.BackupServicer):
    """Serves images of the cluster as this node has applied it."""

    def __init__(self, view: NodeView, callers: Callers) -> None:
        self._view = view
        self._callers = callers
        self._backups = 0

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        backup_pb2_grpc.add_BackupServicer_to_server(self, server)
        return SERVICE

    async def Take(self, request: backup_pb2.TakeRequest, context: Context) -> None:
        if self._backups >= BACKUPS_MAX:
            message = f"{BACKUPS_MAX} backups are under way here; ask another node, or later"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "TOO_MANY_BACKUPS")
        self._backups += 1
        try:
            await self._callers.barrier(context, elsewhere=True)
            await snapshot_up_to(self._view, self._view.applied_index, context)
            source = await open_snapshot(self._view, context)
            assert source is not None, "a snapshot was waited for"
            await self._send(source, context)
        finally:
            self._backups -= 1

    async def _send(self, source: SnapshotStream, context: Context) -> None:
        view = self._view
        about = backup_pb2.BackupAbout(
            cluster=view.cluster,
            node=view.node_id,
            birth=view.birth,
            members=view.members,
            index=source.index,
            term=source.term,
            version=view.version,
            bytes=source.file_bytes,
        )
        await write(context, backup_pb2.TakeReply(about=about), TAKE_TIMEOUT_S)
        time_s = asyncio.get_running_loop().time
        count = check = 0
        await next_chunk(source, context)  # the replica's own header, which repeats `about`
        while True:
            begun_s = time_s()
            chunk = await next_chunk(source, context)
            if chunk is None:
                break
            count, check = count + 1, crc32c(chunk, check)
            message = backup_pb2.TakeReply(data=chunk, crc32c=crc32c(chunk))
            spent_s = time_s() - begun_s
            await write(context, message, TAKE_TIMEOUT_S)
            await asyncio.sleep(REST_PER_CHUNK * spent_s)
        end = backup_pb2.BackupEnd(chunks=count, crc32c=check)
        await write(context, backup_pb2.TakeReply(end=end), TAKE_TIMEOUT_S)
