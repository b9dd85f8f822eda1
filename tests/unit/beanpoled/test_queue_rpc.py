"""The gRPC service `Queue` over a real socket, at a node with a scripted cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from beanpole import commands as c
from beanpole.client.rpc import detail_of
from beanpole.pb import errors_pb2, queue_pb2, queue_pb2_grpc
from beanpoled.links import frames
from beanpoled.rpc.callers import WAITING_MAX
from beanpoled.rpc.queue import (
    JOBS_MAX,
    PUT_BYTES_MAX,
    QueueServicer,
    read_puts,
)
from beanpoled.rpc.server import CallRefused
from tests.unit.beanpoled.fakes import until
from tests.unit.node.stage import Stage

BODY_MAX = 100


class Service:
    """A serving follower; a test decides when commands are applied."""

    def __init__(self) -> None:
        self.stage = Stage(max_job_size=BODY_MAX)
        self.stage.follow()
        # n2 runs an older program: the node does not wait for a RAISE before it serves.
        self.stage.node.peers.peers["n2"].knows = c.BASE_VERSION
        self.stage.node.lifecycle._begin_incarnation()
        self.stage.run()
        self.number = 0
        self.come_up()
        self.stub: Any = None
        self.port = 0

    def come_up(self) -> None:
        """Apply the node's NODE_UP."""
        self.stage.apply_sections((0, 1, 1, ()))
        self.stage.sent(frames.BATCH)
        self.number = 1

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = grpc.aio.server()
        assert QueueServicer(self.stage.node).add_to(server) == "beanpole.v1.Queue"
        port = self.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                self.stub = queue_pb2_grpc.QueueStub(channel)
                yield
        finally:
            await server.stop(0)

    async def apply_next(self) -> None:
        """Wait until the next call reaches the node, and apply its commands."""
        await until(lambda: self.stage.node.clients.calls)
        self.stage.run()
        for frame in self.stage.sent(frames.BATCH, "n1"):
            self.number += 1
            commands = c.unpack_commands(frames.decode_batch(frame)[6])
            self.stage.apply_sections((0, 1, self.number, commands))

    async def refusal(self, call: Coroutine[Any, Any, Any]) -> tuple[str, errors_pb2.ErrorDetail]:
        """Return the status and the detail of a call that fails."""
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call
        return failed.value.code().name, detail_of(failed.value)


def run(test: Callable[[Service], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        service = Service()
        async with service.running():
            await test(service)

    asyncio.run(asyncio.wait_for(main(), 60))


def put_request(*keys: bytes) -> queue_pb2.PutRequest:
    return queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(body=b"x", key=key) for key in keys])


def test_every_put_has_its_result() -> None:
    async def test(service: Service) -> None:
        call = asyncio.ensure_future(service.stub.Put(put_request(b"one", b"", b"one")))
        await service.apply_next()
        reply = await call
        inserted, duplicate = queue_pb2.PUT_OUTCOME_INSERTED, queue_pb2.PUT_OUTCOME_DUPLICATE
        results = [(result.job_id, result.outcome) for result in reply.results]
        assert results == [(1, inserted), (2, inserted), (1, duplicate)]

    run(test)


def test_a_full_cluster_says_so_for_each_job() -> None:
    async def test(service: Service) -> None:
        service.stage.node.context.machine.jobs_max = 1
        call = asyncio.ensure_future(service.stub.Put(put_request(b"one", b"two", b"")))
        await service.apply_next()
        refused = queue_pb2.PUT_OUTCOME_OUT_OF_MEMORY
        outcomes = [result.outcome for result in (await call).results]
        assert outcomes == [queue_pb2.PUT_OUTCOME_INSERTED, refused, refused]

    run(test)


def test_kicks_say_which_jobs_they_moved() -> None:
    async def test(service: Service) -> None:
        delayed = (c.PUT, 1, b"default", 0, 9, 60, b"")
        service.stage.apply_sections((1, 1, 1, ((c.OPEN, 1), delayed)))
        call = asyncio.ensure_future(service.stub.Kick(queue_pb2.KickRequest(job_ids=[7, 1, 1])))
        await service.apply_next()
        assert list((await call).kicked) == [False, True, False]

    run(test)


def test_nothing_is_done_at_once() -> None:
    async def test(service: Service) -> None:
        assert not (await service.stub.Put(queue_pb2.PutRequest())).results
        assert not (await service.stub.Kick(queue_pb2.KickRequest())).kicked
        assert not service.stage.node.clients.calls

    run(test)


def test_a_node_that_cannot_do_it_now_says_why_and_does_nothing() -> None:
    async def test(service: Service) -> None:
        stage, stub = service.stage, service.stub

        async def reason(call: Any) -> str:
            code, detail = await service.refusal(call)
            return f"{code} {detail.reason}"

        stage.node.context.draining = True
        assert await reason(stub.Put(put_request(b""))) == "UNAVAILABLE DRAINING"
        stage.node.context.draining = False
        stage.node.origin.bytes = stage.node.context.config.outbox_bytes_max + 1
        assert await reason(stub.Put(put_request(b""))) == "RESOURCE_EXHAUSTED OUTBOX_FULL"
        stage.node.origin.bytes = 0
        stage.node.lifecycle.fenced = True
        assert await reason(stub.Put(put_request(b""))) == "UNAVAILABLE NOT_SERVING"
        assert await reason(stub.Kick(queue_pb2.KickRequest())) == "UNAVAILABLE NOT_SERVING"
        stage.node.lifecycle.fenced = False
        stage.run()
        assert not stage.sent(frames.BATCH)
        stage.node.context.machine.sessions_max = 0
        call = asyncio.ensure_future(reason(stub.Put(put_request(b""))))
        await service.apply_next()
        assert await call == "RESOURCE_EXHAUSTED TOO_MANY_SESSIONS"

    run(test)


def test_calls_are_bounded_and_one_that_ends_makes_room() -> None:
    async def test(service: Service) -> None:
        stub, calls = service.stub, service.stage.node.clients.calls
        waiting = [stub.Put(put_request(b"")) for _ in range(WAITING_MAX)]
        await until(lambda: len(calls) == WAITING_MAX)
        for more in (stub.Put(put_request(b"")), stub.Kick(queue_pb2.KickRequest(job_ids=[1]))):
            code, detail = await service.refusal(more)
            assert (code, detail.reason) == ("RESOURCE_EXHAUSTED", "TOO_MANY_CALLS")
        waiting.pop().cancel()
        await until(lambda: len(calls) == WAITING_MAX - 1)
        waiting.append(stub.Put(put_request(b"")))
        await until(lambda: len(calls) == WAITING_MAX)
        await service.apply_next()
        for call in waiting:
            assert len((await call).results) == 1
        again = asyncio.ensure_future(stub.Put(put_request(b"")))
        await service.apply_next()
        assert len((await again).results) == 1

    run(test)


def test_no_answer_of_a_majority_is_an_unknown_outcome() -> None:
    async def test(service: Service) -> None:
        call = asyncio.ensure_future(service.refusal(service.stub.Put(put_request(b"one"))))
        await until(lambda: service.stage.node.clients.calls)
        service.stage.pass_us(5_300_000)
        code, detail = await call
        assert (code, detail.reason) == ("DEADLINE_EXCEEDED", "")

    run(test)


def test_a_caller_that_goes_leaves_nothing_behind() -> None:
    async def test(service: Service) -> None:
        call = service.stub.Put(put_request(b"one"))
        await until(lambda: service.stage.node.clients.calls)
        call.cancel()
        await until(lambda: not service.stage.node.clients.calls)
        service.stage.run()
        frame = service.stage.sent(frames.BATCH, "n1")[-1]
        assert c.unpack_commands(frames.decode_batch(frame)[6])[-1] == (c.CLOSE, 1, 0)

    run(test)


def job(**fields: Any) -> queue_pb2.PutRequest:
    """Return a request whose second job has these fields."""
    return queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(), queue_pb2.PutJob(**fields)])


@pytest.mark.parametrize(
    ("request_", "reason", "field"),
    [
        pytest.param(job(tube="a b"), "BAD_TUBE", "jobs[1].tube", id="a space"),
        pytest.param(job(tube="-a"), "BAD_TUBE", "jobs[1].tube", id="a hyphen first"),
        pytest.param(job(tube="ä"), "BAD_TUBE", "jobs[1].tube", id="not ASCII"),
        pytest.param(job(tube="a" * 201), "BAD_TUBE", "jobs[1].tube", id="too long"),
        pytest.param(job(body=bytes(BODY_MAX + 1)), "JOB_TOO_BIG", "jobs[1].body", id="body"),
        pytest.param(job(key=bytes(65)), "KEY_TOO_LONG", "jobs[1].key", id="key"),
        pytest.param(
            queue_pb2.PutRequest(jobs=[queue_pb2.PutJob()] * (JOBS_MAX + 1)),
            "TOO_MANY_JOBS",
            "jobs",
            id="too many",
        ),
        pytest.param(
            queue_pb2.PutRequest(jobs=[queue_pb2.PutJob(body=bytes(PUT_BYTES_MAX))]),
            "TOO_LARGE",
            "jobs",
            id="too large",
        ),
    ],
)
def test_a_wrong_request_names_what_is_wrong(
    request_: queue_pb2.PutRequest, reason: str, field: str
) -> None:
    with pytest.raises(CallRefused) as refused:
        read_puts(request_, BODY_MAX)
    assert (refused.value.reason, refused.value.field) == (reason, field)


def test_what_is_wrong_is_told_to_the_caller() -> None:
    async def test(service: Service) -> None:
        code, detail = await service.refusal(service.stub.Put(job(tube="a b")))
        assert (code, detail.reason, detail.field) == (
            "INVALID_ARGUMENT",
            "BAD_TUBE",
            "jobs[1].tube",
        )
        kicks = queue_pb2.KickRequest(job_ids=range(JOBS_MAX + 1))
        code, detail = await service.refusal(service.stub.Kick(kicks))
        assert (code, detail.reason, detail.field) == (
            "INVALID_ARGUMENT",
            "TOO_MANY_JOBS",
            "job_ids",
        )

    run(test)


def test_limits_themselves_are_allowed() -> None:
    request = queue_pb2.PutRequest(
        jobs=[queue_pb2.PutJob(tube="a" * 200, body=bytes(BODY_MAX), key=bytes(64), priority=7)]
    )
    assert read_puts(request, BODY_MAX) == [(b"a" * 200, 7, 0, 60, bytes(BODY_MAX), bytes(64))]
    assert len(read_puts(queue_pb2.PutRequest(jobs=[queue_pb2.PutJob()] * JOBS_MAX), 0)) == JOBS_MAX
