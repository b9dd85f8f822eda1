"""A node that has just started may not know all users, and tells strangers next to nothing."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from beanpole import commands as c
from beanpole.pb import jobs_pb2, users_pb2
from beanpoled.rpc.guarding import ALWAYS, FREE, GUARDED
from tests.unit.beanpoled.test_queue_rpc import Service
from tests.unit.beanpoled.test_users_rpc import LEE, ROOT, Guarded, bearer

LOCAL = jobs_pb2.ListJobsRequest(local=True)
NOT_SERVING = "UNAVAILABLE NOT_SERVING"


class Starting(Guarded):
    """A node whose machine is that of its snapshot: its NODE_UP is not applied yet."""

    def come_up(self) -> None:
        """Do not: a test calls `catch_up`."""

    def catch_up(self) -> None:
        """Apply the NODE_UP."""
        Service.come_up(self)


def run(test: Callable[[Starting], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        service = Starting()
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

    run(test)


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

    run(test)


def test_a_node_that_was_declared_down_decides_by_its_state() -> None:
    """It knew all users when it came up; a node that is cut off is used to look at it."""

    async def test(it: Starting) -> None:
        it.lock()
        it.catch_up()
        it.stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
        assert not it.stage.node.serving
        await it.ask(it.jobs_stub.ListJobs(LOCAL, metadata=bearer(ROOT)))
        assert await it.reason(it.jobs_stub.ListJobs(LOCAL)) == "UNAUTHENTICATED NO_TOKEN"

    run(test)


def test_all_that_needs_a_right_needs_the_users() -> None:
    assert GUARDED.keys() | FREE.keys() >= ALWAYS
    assert FREE.keys() - ALWAYS == {"Users/WhoAmI"}
