"""Answers of the calls that read a node's snapshot when the node cannot read it."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from beanpole.client.rpc import detail_of, words_of
from beanpole.errors import BeanpoleError, Damaged, WrongIdentity
from beanpole.pb import admin_pb2, admin_pb2_grpc
from beanpoled.view import SnapshotStream
from tests.unit.beanpoled.fakes import FakeSink, FakeView, broken_chunks, until
from tests.unit.beanpoled.test_admin import Cluster, run


class Unreadable(FakeView):
    """A node whose snapshot cannot even be opened."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def snapshot_source(self) -> SnapshotStream | None:
        raise self.error


def view_of(error: Exception, opens: bool) -> FakeView:
    """Return a node whose snapshot, of all that is applied, cannot be read."""
    view = FakeView() if opens else Unreadable(error)
    view.snapshot = SnapshotStream(8, 3, broken_chunks(error))
    view.snapshot_index = view.applied_index
    return view


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("kind", [Damaged, WrongIdentity, OSError])
def test_an_unreadable_snapshot_is_reported(
    opens: bool, kind: type[BeanpoleError] | type[OSError]
) -> None:
    """One that could not be opened ended the call without a reason, and a traceback was logged."""

    async def test() -> None:
        view = view_of(kind("8.snapshot: bad"), opens)
        cluster = Cluster([view])
        async with cluster.running() as channel:
            failed = await cluster.peers.fetch_snapshot("n0", 8, FakeSink())
            assert failed == "n0: DATA_LOSS: 8.snapshot: bad"
            view.snapshot = SnapshotStream(8, 3, broken_chunks(kind("8.snapshot: bad")))
            stub = admin_pb2_grpc.AdminStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
            assert words_of(caught.value) == "DATA_LOSS: 8.snapshot: bad"
            detail = detail_of(caught.value)
            assert detail is not None and detail.reason == "SNAPSHOT_DAMAGED"
            assert view.snapshots_begun == 0, "the replica makes it again by itself"

    run(test)


def test_a_snapshot_is_read_for_one_caller_at_a_time() -> None:
    """Each reader takes of the disk and of the core what clients need."""

    async def test() -> None:
        begun, go_on = threading.Event(), threading.Event()

        def chunks() -> Iterator[bytes]:
            begun.set()
            assert go_on.wait(60)
            yield b"one"

        view = FakeView()
        view.snapshot_index = view.applied_index
        view.snapshot = SnapshotStream(8, 3, chunks())
        async with Cluster([view]).running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            first = asyncio.ensure_future(take(stub))
            await until(begun.is_set)
            assert await take(stub) == 8
            assert not first.done()
            go_on.set()
            assert await first == 8

    run(test)


async def take(stub: admin_pb2_grpc.AdminStub) -> int:
    """Ask for a snapshot, and return its index."""
    call: Any = stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
    reply = await call
    return int(reply.index)


def test_an_old_snapshot_is_read_before_it_is_reported() -> None:
    async def test() -> None:
        view = FakeView()
        view.snapshot_index = view.applied_index
        chunks = iter([b"one", b"two"])
        view.snapshot = SnapshotStream(8, 3, chunks)
        async with Cluster([view]).running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            reply = await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
        assert (reply.index, view.snapshots_begun) == (8, 0)
        assert next(chunks, None) is None

    run(test)
