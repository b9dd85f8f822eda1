"""gRPC between nodes: descriptions of nodes, transfer of snapshots, calls to the leader.

Replicated entries and forwarded commands do not use gRPC but the peer link.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import grpc
import grpc.aio
from crc32c import crc32c

from beanpole.pb import admin_pb2, admin_pb2_grpc, node_pb2, peer_pb2, peer_pb2_grpc
from beanpole.replication.consensus import Sink
from beanpoled.rpc import credentials
from beanpoled.rpc.caller import CALLER
from beanpoled.rpc.door import Door
from beanpoled.rpc.proofs import ProofChecker, Unproved, answered
from beanpoled.rpc.server import Context, describe, fail, write
from beanpoled.rpc.snapshot_stream import SnapshotStream
from beanpoled.rpc.snapshots import next_chunk, open_snapshot
from beanpoled.trust.trust import Trust
from beanpoled.view import NodeView

# If a message of a snapshot is not taken for this long, its receiver is considered gone.
CHUNK_TIMEOUT_S: Final = 30.0
# If the disk lags behind the network by more than this, wait instead of filling the memory.
SINK_BACKLOG_BYTES_MAX: Final = 16 * 1024 * 1024
SINK_POLL_S: Final = 0.005


class PeerServicer(peer_pb2_grpc.PeerServicer):
    """Serves one node's information and snapshot to the other members."""

    def __init__(self, view: NodeView, trust: Trust, door: Door) -> None:
        self._view = view
        self._checker = ProofChecker(view, trust)
        self._door = door

    async def Challenge(
        self, request: peer_pb2.ChallengeRequest, context: Context
    ) -> peer_pb2.ChallengeReply:
        return self._checker.challenge(request)

    async def NodeInfo(self, request: peer_pb2.NodeInfoRequest, context: Context) -> node_pb2.Node:
        await self._checker.check(context)
        self._door.prove(context)
        return describe(self._view)

    async def FetchSnapshot(self, request: peer_pb2.FetchSnapshotRequest, context: Context) -> None:
        await self._checker.check(context)
        self._door.prove(context)
        source = await open_snapshot(self._view, context)
        if source is None or request.index not in (0, source.index):
            there = f"the newest is at {source.index}" if source else "there is none"
            await fail(
                context,
                grpc.StatusCode.FAILED_PRECONDITION,
                f"no snapshot at index {request.index}; {there}",
                "NO_SNAPSHOT",
            )
        header = peer_pb2.SnapshotChunk(index=source.index, term=source.term)
        await write(context, header, CHUNK_TIMEOUT_S)
        while (chunk := await next_chunk(source, context)) is not None:
            message = peer_pb2.SnapshotChunk(data=chunk, crc32c=crc32c(chunk))
            await write(context, message, CHUNK_TIMEOUT_S)


# Of these, gRPC tells no more than that there was no answer.
_SILENCE: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class PeerClient:
    """Calls the other members: `Peer`, and the calls of `Admin` that only the leader can do."""

    def __init__(self, addresses: Mapping[str, str], trust: Trust) -> None:
        """Dial `addresses` (by member id) when they are first needed."""
        self._addresses = addresses
        self._trust = trust
        self._channels: dict[str, _Lent] = {}
        self._generation = 0  # of the certificates that the channels show
        self._replaced: set[_Lent] = set()  # with calls in progress

    def address(self, peer: str) -> str:
        """Return the address of a member's gRPC server; empty if it is not a member."""
        return self._addresses.get(peer, "")

    async def node_info(self, peer: str, timeout_s: float) -> tuple[node_pb2.Node | None, str]:
        """Ask a member to describe itself.

        Returns:
            Its answer, or None and its refusal, in words; they are empty if it does not answer in
            time.
        """
        try:
            async with asyncio.timeout(timeout_s), self._channel(peer) as channel:
                stub = peer_pb2_grpc.PeerStub(channel)
                metadata = await answered(stub, peer, self._trust, timeout_s)
                reply: node_pb2.Node = await stub.NodeInfo(
                    peer_pb2.NodeInfoRequest(), timeout=timeout_s, metadata=metadata
                )
        except Unproved as error:
            return None, str(error)
        except grpc.aio.AioRpcError as error:
            return None, "" if error.code() in _SILENCE else error.details() or ""
        except TimeoutError:
            return None, ""
        # The address may lead to another node; only an answer of the member itself counts.
        return (reply, "") if reply.id == peer else (None, f"{reply.id} answers at its address")

    async def finalize(self, leader: str, to: int, timeout_s: float) -> admin_pb2.FinalizeReply:
        """Forward an operator's `Finalize` to the leader.

        Raises:
            grpc.aio.AioRpcError: the leader's refusal, or that it does not answer.
        """
        request = admin_pb2.FinalizeRequest(to=to, at_leader=True)
        metadata = CALLER.get().metadata
        async with self._channel(leader) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            reply: admin_pb2.FinalizeReply = await stub.Finalize(
                request, timeout=timeout_s, metadata=metadata
            )
        return reply

    async def transfer_leader(
        self, leader: str, to: str, timeout_s: float
    ) -> admin_pb2.TransferLeaderReply:
        """Forward an operator's `TransferLeader` to the leader.

        Raises:
            grpc.aio.AioRpcError: the leader's refusal, or that it does not answer.
        """
        request = admin_pb2.TransferLeaderRequest(to=to, at_leader=True)
        metadata = CALLER.get().metadata
        async with self._channel(leader) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            reply: admin_pb2.TransferLeaderReply = await stub.TransferLeader(
                request, timeout=timeout_s, metadata=metadata
            )
        return reply

    async def ask(self, stub: Any, peer: str, method: str, request: Any, timeout_s: float) -> Any:
        """Forward an operator's call to the member it names; `stub` is the service's class.

        Raises:
            grpc.aio.AioRpcError: the member's refusal, or that it does not answer.
        """
        async with self._channel(peer) as channel:
            ask = getattr(stub(channel), method)
            return await ask(request, timeout=timeout_s, metadata=CALLER.get().metadata)

    async def fetch_snapshot(self, peer: str, index: int, sink: Sink) -> str | None:
        """Write a peer's snapshot at exactly `index` into `sink`, as fast as its disk takes it.

        Returns:
            None when all of it was written, else the reason of the failure.
        """
        try:
            async with self._channel(peer) as channel:
                return await self._fetch(peer_pb2_grpc.PeerStub(channel), peer, index, sink)
        except Unproved as error:
            return str(error)
        except grpc.aio.AioRpcError as error:
            return f"{peer}: {error.code().name}: {error.details()}"
        except TimeoutError:
            return f"{peer} sent nothing for {CHUNK_TIMEOUT_S:.0f} s"

    async def _fetch(
        self, stub: peer_pb2_grpc.PeerStub, peer: str, index: int, sink: Sink
    ) -> str | None:
        """Do the work of `fetch_snapshot`; failures of the path leave it as exceptions.

        Raises:
            Unproved: see `answered`.
            grpc.aio.AioRpcError: the peer's refusal, or that it does not answer.
            TimeoutError: the peer sends nothing.
        """
        metadata = await answered(stub, peer, self._trust, CHUNK_TIMEOUT_S)
        call = stub.FetchSnapshot(peer_pb2.FetchSnapshotRequest(index=index), metadata=metadata)
        stream = SnapshotStream(peer, index, sink)
        try:
            while True:
                async with asyncio.timeout(CHUNK_TIMEOUT_S):
                    message = await call.read()
                if not await _has_room(sink):
                    return f"the disk took nothing for {CHUNK_TIMEOUT_S:.0f} s"
                if message is grpc.aio.EOF:
                    return stream.ended()
                wrong = stream.take(message.index, message.data, message.crc32c)
                if wrong is not None:
                    return wrong
        finally:
            call.cancel()

    async def close(self) -> None:
        """Close all channels; calls in flight fail."""
        for lent in (*self._channels.values(), *self._replaced):
            await lent.channel.close()
        self._channels.clear()
        self._replaced.clear()

    @asynccontextmanager
    async def _channel(self, peer: str) -> AsyncIterator[grpc.aio.Channel]:
        """Lend the channel to a member for a call.

        After a change of certificates new calls use new channels, which show the new certificate,
        and so does the next call after one that was not answered in time: TCP resends ever more
        rarely what was lost on a broken path, and may stay silent for two minutes after it is whole
        again. Calls in flight go on, and the last one closes its channel.
        """
        certificates = self._trust.of_peers
        unused: list[_Lent] = []
        if certificates is not None and certificates.generation != self._generation:
            self._generation = certificates.generation
            unused = [lent for lent in self._channels.values() if not lent.calls]
            self._replaced.update(lent for lent in self._channels.values() if lent.calls)
            self._channels.clear()
        lent = self._channels.get(peer)
        if lent is None:
            lent = _Lent(credentials.channel(self._trust, peer, self._addresses[peer]))
            self._channels[peer] = lent
        lent.calls += 1
        try:
            for one in unused:
                await one.channel.close()
            yield lent.channel
        except (grpc.aio.AioRpcError, TimeoutError, asyncio.CancelledError) as error:
            if self._channels.get(peer) is lent and _is_unanswered(error):
                self._replaced.add(self._channels.pop(peer))
            raise
        finally:
            lent.calls -= 1
            if lent in self._replaced and not lent.calls:
                self._replaced.discard(lent)
                await lent.channel.close()


async def _has_room(sink: Sink) -> bool:
    """Wait until the disk has caught up; return False if that takes too long."""
    try:
        async with asyncio.timeout(CHUNK_TIMEOUT_S):
            # The disk signals no event: its backlog can only be polled.
            while sink.backlog_bytes > SINK_BACKLOG_BYTES_MAX:  # noqa: ASYNC110
                await asyncio.sleep(SINK_POLL_S)
    except TimeoutError:
        return False
    return True


def _is_unanswered(error: BaseException) -> bool:
    """Whether a call ended because its time was over, or its caller's was, which cancels it."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    return True


class _Lent:
    """A channel, and the number of calls that use it."""

    __slots__ = ("calls", "channel")

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.calls = 0
