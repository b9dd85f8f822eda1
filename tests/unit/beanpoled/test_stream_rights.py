"""A stream of gRPC ends with the right of its caller, over a real socket."""

import asyncio

import grpc
import grpc.aio
import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import EVENTS, EVERYWHERE
from beanpole.pb import events_pb2, events_pb2_grpc
from beanpoled.rpc.server import Context, write
from tests.unit.beanpoled.test_users_rpc import LEE, Guarded, bearer


class Reader(events_pb2_grpc.EventsServicer):
    """A stream whose second message waits."""

    def __init__(self) -> None:
        self.more = asyncio.Event()

    async def ReadEvents(self, request: events_pb2.ReadEventsRequest, context: Context) -> None:
        await write(context, events_pb2.EventBatch(rows=1), 60)
        await self.more.wait()
        await write(context, events_pb2.EventBatch(rows=2), 60)


class Streaming(Guarded):
    """The follower, with that stream."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = Reader()

    def add_to(self, server: grpc.aio.Server) -> None:
        events_pb2_grpc.add_EventsServicer_to_server(self.reader, server)

    def give(self, rights: list[tuple[bytes, int]]) -> None:
        self.apply((c.SET_USER, 1, b"lee", msgpack.packb(rights), 0, 0, 0))


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_stream_ends_with_the_right_to_it(is_kept: bool) -> None:
    async def test() -> None:
        it = Streaming()
        async with it.running(), grpc.aio.insecure_channel(f"127.0.0.1:{it.port}") as channel:
            it.lock()
            it.give([(EVERYWHERE, EVENTS)])
            stub = events_pb2_grpc.EventsStub(channel)
            call = stub.ReadEvents(events_pb2.ReadEventsRequest(), metadata=bearer(LEE))
            assert (await call.read()).rows == 1
            if not is_kept:
                it.give([])
            it.reader.more.set()
            if is_kept:
                assert (await call.read()).rows == 2
                return
            with pytest.raises(grpc.RpcError) as raised:
                await it.ask(call.read())
            assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED

    asyncio.run(asyncio.wait_for(test(), 60))
