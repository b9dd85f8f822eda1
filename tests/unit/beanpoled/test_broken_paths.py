"""Calls between nodes on a path that loses everything for a while and keeps its connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpoled.rpc import peer
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.peer import PeerClient
from beanpoled.view import SnapshotStream
from tests.unit.beanpoled.fakes import FakeSink, FakeView, trust_of


class Path:
    """Carries bytes between clients and a server; a connection that was cut stays open.

    Attributes:
        connections: the number of those that there were.
    """

    def __init__(self, port: int) -> None:
        self.connections = 0
        self._port = port
        self._cut = 0  # how many of the first ones carry nothing any more

    def cut(self) -> None:
        """Lose everything on the connections that there are, as where TCP waits to resend."""
        self._cut = self.connections

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry bytes in both directions until both sides have closed."""
        self.connections += 1
        number = self.connections
        writers = [writer]
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
            writers.append(server_writer)
            await asyncio.gather(
                self._one_way(number, reader, server_writer),
                self._one_way(number, server_reader, writer),
            )
        finally:  # the end of the test cancels this
            for one in writers:
                one.close()

    async def _one_way(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if number > self._cut:
                    writer.write(data)
        writer.close()


@asynccontextmanager
async def node_behind_a_path(
    view: FakeView | None = None, secret: str = ""
) -> AsyncIterator[tuple[PeerClient, Path]]:
    """Run a node's server; yield a client of it, which has a connection, and the path between."""
    trust = trust_of("n0", secret)
    own = PeerClient({}, trust)
    server = RpcServer(view or FakeView(), own, trust)
    path = Path(await server.start("127.0.0.1:0"))
    listening = await asyncio.start_server(path.carry, "127.0.0.1", 0)
    address = "{}:{}".format(*listening.sockets[0].getsockname())
    peers = PeerClient({"n0": address}, trust_of("n1", secret))
    try:
        assert (await peers.node_info("n0", 60))[0] is not None
        yield peers, path
    finally:
        await peers.close()
        await own.close()
        listening.close()
        await server.stop(0)


@pytest.mark.parametrize("forwarded", [False, True], ids=["description", "operator's call"])
def test_the_next_call_uses_a_new_connection(forwarded: bool) -> None:
    async def test() -> None:
        async with node_behind_a_path() as (peers, path):
            path.cut()
            if forwarded:
                with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
                    request = admin_pb2.StatusRequest()
                    await peers.ask(admin_pb2_grpc.AdminStub, "n0", "Status", request, 0.1)
            else:
                assert (await peers.node_info("n0", 0.1))[0] is None
            assert path.connections == 1
            assert (await peers.node_info("n0", 60))[0] is not None
            assert path.connections == 2

    asyncio.run(asyncio.wait_for(test(), 120))


class FullSink(FakeSink):
    """Has a disk that takes nothing."""

    @property
    def backlog_bytes(self) -> int:
        return 1 << 30


@pytest.mark.parametrize("secret", ["", "a secret of 16 bytes"], ids=["snapshot", "challenge"])
def test_a_snapshot_is_asked_for_again_on_a_new_connection(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        view = FakeView()
        view.snapshot = SnapshotStream(7, 3, iter([b"all"]))
        async with node_behind_a_path(view, secret) as (peers, path):
            path.cut()
            with monkeypatch.context() as patch:
                patch.setattr(peer, "CHUNK_TIMEOUT_S", 0.1)
                failed = await peers.fetch_snapshot("n0", 7, FakeSink())
            assert failed is not None
            assert ("DEADLINE_EXCEEDED" if secret else "n0 sent nothing for") in failed
            assert path.connections == 1
            sink = FakeSink()
            assert await peers.fetch_snapshot("n0", 7, sink) is None
            assert sink.chunks == [b"all"]
            assert path.connections == 2

    asyncio.run(asyncio.wait_for(test(), 120))


def test_a_snapshot_that_the_own_disk_does_not_take_leaves_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        view = FakeView()
        view.snapshot = SnapshotStream(7, 3, iter([b"all"]))
        async with node_behind_a_path(view) as (peers, path):
            monkeypatch.setattr(peer, "CHUNK_TIMEOUT_S", 1.0)
            failed = await peers.fetch_snapshot("n0", 7, FullSink())
            assert failed == "the disk took nothing for 1 s"
            assert (await peers.node_info("n0", 60))[0] is not None
            assert path.connections == 1

    asyncio.run(asyncio.wait_for(test(), 120))


def test_a_call_that_still_waits_does_not_lend_its_connection() -> None:
    async def test() -> None:
        async with node_behind_a_path() as (peers, path):
            path.cut()
            waits = asyncio.create_task(peers.node_info("n0", 60))
            assert (await peers.node_info("n0", 0.1))[0] is None
            assert (await peers.node_info("n0", 60))[0] is not None
            assert not waits.done()
            waits.cancel()
            await asyncio.wait([waits])

    asyncio.run(asyncio.wait_for(test(), 120))
