"""Calls of gRPC within which a right, a token or the room for sessions ends, over a real socket.

Programs take most reasons for "nothing was done"; what ends within a call is told apart from them.
"""

import asyncio
from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.jobs.job import BURIED
from beanpole.pb import jobs_pb2
from beanpoled.rpc import jobs
from tests.unit.beanpoled.fakes import until
from tests.unit.beanpoled.test_jobs_rpc import Admin
from tests.unit.beanpoled.test_jobs_rpc import run as run_admin
from tests.unit.beanpoled.test_users_rpc import LEE, Guarded, bearer, digest, run

BURY = jobs_pb2.JOB_ACTION_BURY


async def awaited(call: Any) -> Any:
    return await call


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            (c.SET_USER, 1, b"lee", msgpack.packb([(b"other", 4)]), 0, 0, 0),
            "PERMISSION_DENIED RIGHT_ENDED",
        ),
        ((c.SET_TOKEN, 1, b"lee", digest(LEE), 0), "UNAUTHENTICATED TOKEN_ENDED"),
    ],
)
def test_what_ends_within_a_change_is_no_refusal_before_it(command: c.Command, reason: str) -> None:
    async def test(it: Guarded) -> None:
        it.put(b"a", tube=b"mail")
        it.lock(lee=4)
        request = jobs_pb2.ChangeRequest(action=BURY, job_ids=[1])
        stream = it.jobs_stub.Change(request, metadata=bearer(LEE))
        call = asyncio.ensure_future(awaited(stream.read()))
        calls = it.stage.node.clients.calls
        await until(lambda: calls)
        (barrier,) = calls
        await it.apply_next()
        await until(lambda: calls and barrier not in calls)
        it.apply(command)
        assert await it.reason(call) == reason

    run(test)


async def read_all(stream: Any) -> None:
    async for _ in stream:
        pass


@pytest.mark.parametrize(
    "chosen", [{"job_ids": [1, 2]}, {"filter": jobs_pb2.JobFilter(queue="work")}]
)
def test_a_lack_of_sessions_within_a_change_does_not_say_that_nothing_was_done(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "PART_JOBS", 1)

    async def test(admin: Admin) -> None:
        admin.put(b"a", b"b")
        machine = admin.stage.node.context.machine
        request = jobs_pb2.ChangeRequest(action=BURY, **chosen)
        call = asyncio.ensure_future(read_all(admin.stub.Change(request)))
        while machine.queue.jobs[1].state != BURIED:
            await admin.apply_next()
        machine.sessions_max = 0
        code, detail = await admin.refusal(admin.ask(call))
        assert (code, detail.reason) == ("RESOURCE_EXHAUSTED", "")
        assert machine.queue.jobs[2].state != BURIED

    run_admin(test)
