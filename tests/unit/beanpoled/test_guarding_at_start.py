"""A node that has just started may not know all users, and tells strangers next to nothing."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc.aio
import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import PUT
from beanpole.pb import (
    admin_pb2,
    admin_pb2_grpc,
    jobs_pb2,
    live_pb2,
    live_pb2_grpc,
    node_admin_pb2,
    node_admin_pb2_grpc,
    users_pb2,
)
from beanpoled.audit.alike import Alike
from beanpoled.audit.entry import Entry
from beanpoled.node_view import LocalNodeView
from beanpoled.rpc.admin import AdminServicer
from beanpoled.rpc.guarding import ALWAYS, FREE, GUARDED
from beanpoled.rpc.live import LiveServicer
from beanpoled.rpc.node_admin import NodeAdminServicer
from beanpoled.rpc.peer import PeerClient
from beanpoled.view import (
    Metrics,
    QlessCounts,
    QlessFigures,
    QlessQueueFigures,
    QueueFigures,
)
from tests.unit.beanpoled.fakes import FakeSettings, FakeView, trust_of
from tests.unit.beanpoled.test_doctor import found, well
from tests.unit.beanpoled.test_queue_rpc import Service
from tests.unit.beanpoled.test_users_rpc import LEE, ROOT, Guarded, bearer, digest

LOCAL = jobs_pb2.ListJobsRequest(local=True)
NOT_SERVING = "UNAVAILABLE NOT_SERVING"


class Starting(Guarded):
    """A node whose machine is that of its snapshot: its NODE_UP is not applied yet."""

    def come_up(self) -> None:
        """Do not: a test calls `catch_up`."""

    def catch_up(self) -> None:
        """Apply the NODE_UP."""
        Service.come_up(self)


class Operated(Starting):
    """Such a node with the services that concern the node itself."""

    def add_to(self, server: grpc.aio.Server) -> None:
        """See `Guarded`."""
        view, peers = FakeView(), PeerClient({}, trust_of())
        audit: Any = None
        self.settings = FakeSettings("n0")
        NodeAdminServicer(view, peers, audit, self.settings).add_to(server)
        LiveServicer(view).add_to(server)
        admin = AdminServicer(View(self.stage.node, trust_of()), peers)
        admin_pb2_grpc.add_AdminServicer_to_server(admin, server)


class View(LocalNodeView):
    """A node with two queues of qless."""

    def metrics(self, with_queues: bool = True) -> Metrics:
        """See `NodeView`."""
        names = (b"mail", "b\xfccher".encode())
        queues = [QlessQueueFigures(name, False, QlessCounts(waiting=5)) for name in names]
        return Metrics(qless=QlessFigures(QlessCounts(waiting=10), queues=queues, workers=2))


def run(test: Callable[[Any], Coroutine[None, None, None]], make: Callable[[], Starting]) -> None:
    async def main() -> None:
        service = make()
        async with service.running():
            await test(service)

    asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize("token", ["", "a token from before the start"])
def test_a_snapshot_that_is_older_than_the_users_opens_nothing(token: str) -> None:
    async def test(it: Starting) -> None:
        it.put(b"salary", tube=b"payroll")
        machine, sent = it.stage.node.context.machine, bearer(token)
        assert machine.index and not machine.users.rows
        users = users_pb2.ListUsersRequest(local=True)
        for call in (
            it.jobs_stub.ListJobs(LOCAL, metadata=sent),
            it.users.List(users, metadata=sent),
            it.users.WhoAmI(users_pb2.WhoAmIRequest(), metadata=sent),
        ):
            assert await it.reason(call) == NOT_SERVING
        assert it.door.proved == 0
        it.lock()
        it.catch_up()
        assert await it.reason(it.jobs_stub.ListJobs(LOCAL)) == "UNAUTHENTICATED NO_TOKEN"
        reply = await it.ask(it.jobs_stub.ListJobs(LOCAL, metadata=bearer(ROOT)))
        assert [job.body for job in reply.jobs] == [b""]

    run(test, Starting)


def test_users_of_a_snapshot_count_for_nothing_either() -> None:
    """They may have been dropped since."""

    async def test(it: Starting) -> None:
        it.lock()
        for token in (ROOT, LEE):
            call = it.jobs_stub.ListJobs(LOCAL, metadata=bearer(token))
            assert await it.reason(call) == NOT_SERVING
        assert it.stage.node.clients.auth_refused == {
            "unknown_token": 0,
            "no_token": 0,
            "no_right": 0,
        }

    run(test, Starting)


def test_a_node_that_was_declared_down_decides_by_its_state() -> None:
    """It knew all users when it came up; a node that is cut off is used to look at it."""

    async def test(it: Starting) -> None:
        it.lock()
        it.catch_up()
        it.stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
        assert not it.stage.node.serving
        await it.ask(it.jobs_stub.ListJobs(LOCAL, metadata=bearer(ROOT)))
        assert await it.reason(it.jobs_stub.ListJobs(LOCAL)) == "UNAUTHENTICATED NO_TOKEN"

    run(test, Starting)


def test_all_that_needs_a_right_needs_the_users() -> None:
    assert GUARDED.keys() | FREE.keys() >= ALWAYS
    assert GUARDED.keys() & ALWAYS == {"NodeAdmin/Examine"}
    assert FREE.keys() - ALWAYS == {"Users/WhoAmI"}


@pytest.mark.parametrize("token", ["", ROOT])
@pytest.mark.parametrize("knows_some", [False, True])
def test_a_starting_node_obeys_nobody_and_is_examined(token: str, knows_some: bool) -> None:
    """Operators look at a node that does not start; it takes any caller for one of them."""

    async def test(it: Operated) -> None:
        if knows_some:
            it.lock()
        channel, sent = it.channel, bearer(token)
        admin = node_admin_pb2_grpc.NodeAdminStub(channel)
        live = live_pb2_grpc.LiveStub(channel).Read(live_pb2.LiveRequest(), metadata=sent)
        assert await it.reason(live) == NOT_SERVING
        settings = admin.ListSettings(node_admin_pb2.ListSettingsRequest(), metadata=sent)
        assert await it.reason(settings) == NOT_SERVING
        assert await it.reason(admin.Reload(node_admin_pb2.ReloadRequest(), metadata=sent)) == (
            NOT_SERVING
        )
        assert it.settings.reloads == 0
        examine = admin.Examine(node_admin_pb2.ExamineRequest(), metadata=sent)
        if knows_some and not token:
            assert await it.reason(examine) == "UNAUTHENTICATED NO_TOKEN"
        else:
            assert (await it.ask(examine)).findings

    run(test, Operated)


def test_refused_calls_at_a_starting_node_do_not_fill_the_audit_log() -> None:
    async def test(it: Operated) -> None:
        admin = node_admin_pb2_grpc.NodeAdminStub(it.channel)
        kept: list[Entry] = []
        alike = Alike(kept.append)
        for _ in range(20):
            call = admin.Reload(node_admin_pb2.ReloadRequest())
            assert await it.reason(call) == NOT_SERVING
        for entry in it.told:
            alike.add(entry)
        assert len(it.told) == 20 and len(kept) == 1
        assert (kept[0].method, kept[0].outcome) == ("NodeAdmin/Reload", "UNAVAILABLE")

    run(test, Operated)


def test_a_status_names_the_queues_that_its_caller_may_see() -> None:
    async def test(it: Operated) -> None:
        async def names(token: str = "") -> list[str]:
            request = admin_pb2.StatusRequest(local=True)
            stub = admin_pb2_grpc.AdminStub(it.channel)
            (node,) = (await stub.Status(request, metadata=bearer(token))).nodes
            assert (node.qless.jobs.waiting, node.qless.workers) == (10, 2)
            return [queue.name for queue in node.qless.queues]

        assert await names() == [], "there may be users that this node does not know yet"
        it.catch_up()
        assert await names() == ["mail", "bücher"]
        it.lock()
        assert await names(ROOT) == ["mail", "bücher"]
        for token in ("", "wrong", LEE):  # LEE has a right in the tube `mail`
            assert await names(token) == []
        for pattern, seen in ((b"\x03b*", ["bücher"]), (b"\x03mail", ["mail"])):
            rights = msgpack.packb([(pattern, PUT)])
            it.apply((c.AS_USER, 1, b"", digest(ROOT)), (c.SET_USER, 1, b"lee", rights, 0, 0, 0))
            assert await names(LEE) == seen

    run(test, Operated)


def test_an_examined_node_tells_nothing_of_jobs_before() -> None:
    """They may be old, and it may not know the users that keep a caller from them."""
    view = well()
    view.numbers.queues = [QueueFigures("beanstalk", "payroll", 1, ready_s=9999.0)]
    view.job_counts = view.job_counts._replace(buried=3)
    about = {"ready jobs", "buried jobs", "failed jobs of qless"}
    assert found(view).keys() >= about
    view.caught_up = False
    assert not found(view).keys() & about
    assert "payroll" not in repr(found(view))
