"""Clients that do not send their requests or do not take their answers do not keep others out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from beanpole.client.rpc import detail_of
from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpoled.rpc import patience
from beanpoled.rpc.admin import CALLS_MAX, LEADER_HEALTH, RpcServer
from beanpoled.rpc.patience import Patience
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.server import fail
from beanpoled.rpc.streams import STREAMS_MAX
from tests.unit.beanpoled import raw_http2
from tests.unit.beanpoled.fakes import FakeView, trust_of
from tests.unit.beanpoled.raw_http2 import RawClient, connected

STATUS = "/beanpole.v1.Admin/Status"
WATCH = "/grpc.health.v1.Health/Watch"
LOCAL = admin_pb2.StatusRequest(local=True).SerializeToString()
# Far more than the server has calls, on connections that have less than a hundred each.
CONNECTIONS, CALLS_EACH = 6, 90
assert CONNECTIONS * CALLS_EACH > CALLS_MAX * 1.3


class Scene:
    """A server and a channel of a stock client."""

    def __init__(self) -> None:
        self.view = FakeView()
        self.channel: Any = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        peers = PeerClient({}, trust_of())
        self.server = RpcServer(self.view, peers, trust_of())
        self.port = await self.server.start("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as self.channel:
                yield
        finally:
            await self.server.stop(0)
            await peers.close()

    async def answered(self) -> None:
        """Wait until the server answers a stock client, which tries again when it is refused."""
        stub = admin_pb2_grpc.AdminStub(self.channel)
        while True:
            with suppress(grpc.aio.AioRpcError):
                assert await stub.Status(admin_pb2.StatusRequest(local=True), timeout=5)
                return


def run(test: Callable[[Scene], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running():
            await test(scene)

    asyncio.run(asyncio.wait_for(main(), 120))


@pytest.mark.parametrize("request_sent", [None, LOCAL], ids=["unsent", "untaken"])
def test_calls_that_wait_for_their_clients_keep_out_nobody(request_sent: bytes | None) -> None:
    async def occupied(client: RawClient) -> None:
        for _ in range(CALLS_EACH):
            last = client.call(STATUS, request_sent)
        if request_sent is not None:
            await client.frame(last, raw_http2.HEADERS)

    async def test(scene: Scene) -> None:
        clients = [connected(scene.port, window=0) for _ in range(CONNECTIONS)]
        for client in clients:
            await occupied(await client.__aenter__())
        await scene.answered()
        for client in clients:
            await client.__aexit__(None, None, None)

    run(test)


@pytest.mark.parametrize("window", [0, 65535], ids=["not read", "read"])
def test_watchers_of_one_address_keep_out_none_of_another(window: int) -> None:
    async def test(scene: Scene) -> None:
        async with connected(scene.port, window, "127.0.0.2") as strangers:
            streams = [strangers.call(WATCH, b"") for _ in range(STREAMS_MAX)]
            await strangers.frame(streams[-1], raw_http2.HEADERS)
            for first in streams[:2]:
                assert await scene.channel.unary_stream(WATCH)(b"").read()
                assert await strangers.frame(first, raw_http2.RESET)

    run(test)


def test_a_request_that_does_not_come_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        call = scene.channel.stream_unary(STATUS)()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call
        assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert detail_of(failed.value).reason == "REQUEST_SLOW"

    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    run(test)


def test_a_call_without_a_request_is_refused() -> None:
    async def test(scene: Scene) -> None:
        call = scene.channel.stream_unary(STATUS)()
        await call.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call
        assert detail_of(failed.value).reason == "NO_REQUEST"

    run(test)


def test_a_request_in_small_pieces_is_answered() -> None:
    async def test(scene: Scene) -> None:
        async with connected(scene.port) as client:
            stream = client.call(STATUS)
            for byte in raw_http2.message(LOCAL):
                client.send(stream, bytes((byte,)))
                await scene.answered()  # meanwhile
            client.send(stream, b"", is_end=True)
            assert b"n0" in await client.frame(stream, raw_http2.DATA)

    run(test)


def test_a_call_whose_answer_is_not_taken_is_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        async with connected(scene.port, window=0) as client:
            reset = asyncio.ensure_future(client.frame(client.call(STATUS, LOCAL), raw_http2.RESET))
            while not reset.done():
                await scene.answered()

    monkeypatch.setattr(patience, "PATIENCE_S", 0.05)
    run(test)


def test_a_status_that_is_not_taken_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unread:
        async def abort(self, *_: Any) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        call = asyncio.ensure_future(fail(cast(Any, Unread()), grpc.StatusCode.NOT_FOUND, ""))
        await asyncio.wait_for(asyncio.wait([call]), 60)
        assert call.cancelled()

    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    asyncio.run(main())


def test_a_watcher_that_takes_nothing_holds_up_nobody() -> None:
    async def test(scene: Scene) -> None:
        stub: Any = health_pb2_grpc.HealthStub(scene.channel)
        leading = health_pb2.HealthCheckRequest(service=LEADER_HEALTH)
        async with connected(scene.port, window=0) as client:
            await client.frame(client.call(WATCH, leading.SerializeToString()), raw_http2.HEADERS)
            watch = stub.Watch(leading)
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            scene.view.role = "leader"
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            await scene.server.stop(0)

    run(test)


def test_the_oldest_waits_end_first_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        ended: asyncio.Queue[int] = asyncio.Queue()
        waits = Patience()
        begun = [waits.begin(partial(ended.put_nowait, number)) for number in range(6)]
        assert [await ended.get() for _ in range(2)] == [0, 1]
        for wait in begun:
            waits.stop(wait)
        assert ended.empty()

    monkeypatch.setattr(patience, "WAITS_MAX", 4)
    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_wait_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that is over stays until its task runs; many calls may begin before that."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: list[str] = []
        over, later = asyncio.Event(), asyncio.Event()
        waits = Patience()

        def end() -> None:
            ended.append("first")
            over.set()

        waits.begin(end)
        await over.wait()
        monkeypatch.setattr(patience, "PATIENCE_S", 60.0)
        begun = [waits.begin(partial(ended.append, "other")) for _ in range(patience.WAITS_MAX)]
        # Behind any timer that these calls have set for a wait that is over.
        loop.call_at(loop.time() + patience.GRACE_S, later.set)
        await later.wait()
        assert ended == ["first"]
        for wait in begun:
            waits.stop(wait)

    monkeypatch.setattr(patience, "PATIENCE_S", 0.01)
    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_wait_that_ends_early_ends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        ended: list[int] = []
        later = asyncio.Event()
        waits = Patience()
        for number in range(8):  # the first 4 are chosen, and are over by their own time as well
            waits.begin(partial(ended.append, number))
        loop.call_at(loop.time() + 2 * patience.PATIENCE_S, later.set)
        await later.wait()
        assert sorted(ended) == list(range(8))

    monkeypatch.setattr(patience, "PATIENCE_S", 0.02)
    monkeypatch.setattr(patience, "GRACE_S", 0.01)
    monkeypatch.setattr(patience, "WAITS_MAX", 4)
    asyncio.run(asyncio.wait_for(main(), 60))
