"""The call that makes a snapshot: what it waits for, and when it refuses."""

import grpc
import grpc.aio
import pytest

from beanpole.client.rpc import words_of
from beanpole.pb import admin_pb2, admin_pb2_grpc
from tests.unit.beanpoled.fakes import FakeView
from tests.unit.beanpoled.test_admin import Cluster, run


def test_a_snapshot_covers_what_was_applied_when_it_was_asked_for() -> None:
    async def test() -> None:
        view = FakeView()
        async with Cluster([view]).running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            reply = await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
            assert (reply.index, view.snapshots_begun) == (8, 2)
            reply = await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
            assert (reply.index, view.snapshots_begun) == (8, 2), "nothing came since the last"
            status = await stub.Status(admin_pb2.StatusRequest(local=True), timeout=60)
            assert status.nodes[0].snapshot_index == 8

    run(test)


def test_a_snapshot_without_room_is_refused_at_once() -> None:
    async def test() -> None:
        view = FakeView()
        view.lacks = "5 bytes are free on its disk, and 9 are needed"
        async with Cluster([view]).running() as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
            words = f"RESOURCE_EXHAUSTED: no snapshot can be made: {view.lacks}"
            assert words_of(caught.value) == words
            assert view.snapshots_begun == 0
            view.snapshot_index = view.applied_index
            reply = await stub.TakeSnapshot(admin_pb2.TakeSnapshotRequest(), timeout=60)
            assert (reply.index, view.snapshots_begun) == (8, 0), "none has to be made"

    run(test)
