"""Refusals of the gRPC server before a request is built or a stream opened, and their remains."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from beanpole.client.rpc import detail_of
from beanpole.constants import BATCH_COMMANDS_MAX, JOB_ID_MAX
from beanpole.pb import admin_pb2, admin_pb2_grpc, jobs_pb2, queue_pb2
from beanpoled.rpc import edge
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.edge import PUT_FIELDS_MAX, REQUEST_BYTES_MAX, has_more_fields
from beanpoled.rpc.peer import PeerClient
from beanpoled.rpc.queue import QueueServicer
from beanpoled.rpc.server import Behavior, Context, around
from beanpoled.rpc.streams import STREAMS_MAX
from tests.unit.beanpoled.fakes import FakeView, trust_of, until
from tests.unit.node.stage import Stage

PUT = "/beanpole.v1.Queue/Put"
KICK = "/beanpole.v1.Queue/Kick"
EMPTY_JOB = b"\x0a\x00"
LIST_SERVICES = b"\x3a\x01*"
MANY = EMPTY_JOB * 2_000_000


class Local:
    """Something in a frame of a call, as its request is."""


class Frames(grpc.aio.ServerInterceptor):
    """Follows what the frames of calls had."""

    def __init__(self) -> None:
        self.found: list[weakref.ref[Local]] = []

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """See `ServerInterceptor`."""
        handler = await continuation(handler_call_details)
        return handler if handler.request_streaming else around(handler, self._followed)

    def _followed(self, behavior: Behavior) -> Behavior:
        async def followed(request: Any, context: Context) -> Any:
            local = Local()
            self.found.append(weakref.ref(local))
            return await behavior(request, context)

        return followed

    def kept(self) -> int:
        """Return of how many calls the frames exist."""
        return sum(one() is not None for one in self.found)


class Scene:
    """A server with the service `Queue`, and a channel to it."""

    def __init__(self) -> None:
        self.frames = Frames()
        self.channel: Any = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        peers = PeerClient({}, trust_of())
        service = QueueServicer(Stage().node).add_to
        server = RpcServer(FakeView(), peers, trust_of(), [service], [self.frames])
        port = await server.start("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as self.channel:
                yield
        finally:
            await server.stop(0)
            await peers.close()

    async def refusal(self, method: str, data: bytes, **options: Any) -> tuple[str, str, str]:
        """Return the status, the reason and the message of a call that is refused."""
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await self.channel.unary_unary(method)(data, timeout=60, **options)
        error = failed.value
        return error.code().name, detail_of(error).reason, str(error.details())


def run(test: Callable[[Scene], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        scene = Scene()
        async with scene.running():
            await test(scene)

    asyncio.run(asyncio.wait_for(main(), 120))


def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return where the sizes of requests that pass the check are noted."""
    sizes: list[int] = []
    check = edge._check_put

    def noting(data: bytes) -> Any:
        refused = check(data)
        if refused is None:
            sizes.append(len(data))
        return refused

    monkeypatch.setattr(edge, "_check_put", noting)
    return sizes


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_compressed_calls_are_refused(how: grpc.Compression) -> None:
    async def test(scene: Scene) -> None:
        code, _, words = await scene.refusal(PUT, MANY, compression=how)
        assert code == "UNIMPLEMENTED" and "disabled" in words
        assert scene.frames.found == []

    run(test)


def test_too_many_jobs_are_refused_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(scene: Scene) -> None:
        refused = await scene.refusal(PUT, MANY)
        assert refused[:2] == ("INVALID_ARGUMENT", "TOO_MANY_JOBS")
        assert scene.frames.found == [] and sizes == []
        # Slightly too many are counted exactly, as before.
        *_, words = await scene.refusal(PUT, EMPTY_JOB * (BATCH_COMMANDS_MAX + 1))
        assert words == "4097 jobs; at most 4096 in one call"
        assert len(sizes) == 1

    sizes = built(monkeypatch)
    run(test)


def test_large_requests_of_other_methods_are_refused_before_they_are_built() -> None:
    async def test(scene: Scene) -> None:
        data = b"\x0a\x04" + b"\x01" * 4 + b"\x08\x01" * (REQUEST_BYTES_MAX // 2)
        assert (await scene.refusal(KICK, data))[:2] == ("INVALID_ARGUMENT", "TOO_LARGE")
        assert scene.frames.found == []
        assert (await scene.refusal(KICK, data[:900]))[1] == "NOT_SERVING"
        name = health_pb2.HealthCheckRequest(service="x" * REQUEST_BYTES_MAX)
        method = "/grpc.health.v1.Health/Check"
        assert (await scene.refusal(method, name.SerializeToString()))[1] == "TOO_LARGE"

    run(test)


def test_the_largest_lists_of_ids_are_not_too_large() -> None:
    ids = [JOB_ID_MAX] * BATCH_COMMANDS_MAX
    for request in (queue_pb2.KickRequest(job_ids=ids), jobs_pb2.ChangeRequest(job_ids=ids)):
        assert request.ByteSize() < REQUEST_BYTES_MAX / 2


@pytest.mark.usefixtures("uncollected")
def test_a_refused_call_leaves_nothing() -> None:
    async def test(scene: Scene) -> None:
        bad_tube = queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(tube="-")]).SerializeToString()
        assert (await scene.refusal(PUT, bad_tube))[1] == "BAD_TUBE"
        assert (await scene.refusal(PUT, b"\x0a\x03x"))[0] != "OK", "a malformed request"
        assert (await scene.refusal(KICK, b"\x08\x01"))[1] == "NOT_SERVING"
        assert (await scene.refusal("/grpc.health.v1.Health/Check", b"\x0a\x01x"))[0] == "NOT_FOUND"
        assert await scene.channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
        assert len(scene.frames.found) == 4
        async with asyncio.timeout(60):  # the last one may just be ending
            await until(lambda: not scene.frames.kept())

    run(test)


async def reflected(scene: Scene, request: bytes = LIST_SERVICES) -> tuple[Any, bytes]:
    """Open a stream of reflection; return it and its first answer."""
    method = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    stream = scene.channel.stream_stream(method)()
    await stream.write(request)
    return stream, await stream.read()


@pytest.mark.usefixtures("uncollected")
def test_the_error_of_a_refused_call_has_no_request() -> None:
    async def abort(request: Any, context: Any) -> None:
        try:
            raise ValueError("the reason")
        except ValueError:
            context.error = grpc.aio.AbortError()  # as gRPC keeps it
            raise context.error  # noqa: B904 - as gRPC raises it

    async def main() -> weakref.ref[Local]:
        request, context = Local(), Local()
        # A task of its own: this frame is in no traceback.
        call = asyncio.ensure_future(edge._checked(abort)(request, cast(Any, context)))
        await asyncio.wait([call])
        assert isinstance(call.exception(), grpc.aio.AbortError)
        return weakref.ref(request)

    assert asyncio.run(main())() is None


async def watching(scene: Scene) -> tuple[Any, Any]:
    """Open a watch; return it and its first answer."""
    stream = scene.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
    return stream, await stream.read()


async def opened_again(scene: Scene) -> None:
    """Open a watch and a reflection as soon as ended ones have made room."""
    for opened in (watching, reflected):
        while True:
            with suppress(grpc.aio.AioRpcError):
                await opened(scene)
                break


def test_streams_without_a_token_leave_room_for_all_other_calls() -> None:
    async def refused(opened: Coroutine[Any, Any, Any]) -> str:
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await opened
        assert failed.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        return str(failed.value.details())

    async def test(scene: Scene) -> None:
        streams = [await reflected(scene)]
        assert b"beanpole.v1.Queue" in streams[0][1]
        streams += [await watching(scene) for _ in range(STREAMS_MAX - 1)]
        assert f"{STREAMS_MAX} streams" in await refused(watching(scene))
        assert f"{STREAMS_MAX} streams" in await refused(reflected(scene))
        stub = admin_pb2_grpc.AdminStub(scene.channel)
        assert await stub.Status(admin_pb2.StatusRequest(local=True), timeout=60)
        assert await scene.channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
        for stream, _ in streams[:2]:
            stream.cancel()
        await opened_again(scene)

    run(test)


def test_a_large_request_of_a_stream_is_an_empty_one() -> None:
    async def test(scene: Scene) -> None:
        name = b"x" * REQUEST_BYTES_MAX
        large = b"\x1a" + bytes([0x80, 0x80, 8]) + name  # a file by its name
        _, reply = await reflected(scene, large)
        assert name not in reply and grpc.StatusCode.INVALID_ARGUMENT.value[1].encode() in reply

    run(test)


def job(body: bytes) -> bytes:
    return queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(body=body)]).SerializeToString()


@pytest.mark.parametrize(
    "field",
    [
        EMPTY_JOB,
        job(b"x"),
        job(b"x" * 300),
        job(b"x" * 20_000),
        b"\x8a\x00\x00",  # a tag, longer than needed
        b"\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x19" + b"x" * 8,
        b"\x1d" + b"x" * 4,
        b"\x1b\x1c",
    ],
)
def test_fields_of_all_kinds_are_counted(field: bytes) -> None:
    count = 2 if field == b"\x1b\x1c" else 1  # the begin and the end of a group
    queue_pb2.PutRequest.FromString(field * 3)
    assert not has_more_fields(field * 30, 30 * count)
    assert has_more_fields(field * 30 + EMPTY_JOB, 30 * count)


@pytest.mark.parametrize(
    "end", [b"\x0a", b"\x0a\xff", b"\x0a\xff\xff\xff", b"\x0e", b"\xff" * 11, b"\x0a\x7fx"]
)
def test_a_malformed_field_ends_the_count(end: bytes) -> None:
    data = EMPTY_JOB * 30 + end
    assert not has_more_fields(data, 31)
    assert not has_more_fields(data + EMPTY_JOB * 10, PUT_FIELDS_MAX)
    with pytest.raises(Exception, match="Error parsing"):
        queue_pb2.PutRequest.FromString(data)
