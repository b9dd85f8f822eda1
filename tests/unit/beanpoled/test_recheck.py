"""Callers without a known right share barriers, which are bounded; nobody is told old news."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import grpc
import pytest

from beanpole import commands as c
from beanpole.pb import backup_pb2, users_pb2
from beanpole.replication.consensus import DiskRoom
from beanpoled.frontends.client_rates import BURST_US
from beanpoled.node_view import LocalNodeView
from beanpoled.rpc import recheck
from beanpoled.rpc.backup import BackupServicer
from beanpoled.rpc.call import Call
from beanpoled.rpc.caller import Caller
from beanpoled.rpc.callers import WAITING_MAX, Callers
from beanpoled.rpc.guarding import GUARDED, Guard
from beanpoled.rpc.recheck import BARRIERS_PER_SECOND, RECHECKS_MAX
from tests.unit.beanpoled.fakes import trust_of, until
from tests.unit.beanpoled.test_users_rpc import LEE, Guarded, bearer, digest
from tests.unit.beanpoled.test_users_rpc import run as run_service

PERIOD_US = 1_000_000 // BARRIERS_PER_SECOND
NEW = "a-new-token"


class Refused(Exception):
    """A call was ended with a status."""


class Other:
    """The other end of a call."""

    def peer(self) -> str:
        """See gRPC."""
        return "ipv4:10.0.0.1:5"

    async def abort(self, code: grpc.StatusCode, message: str, trailing: Any) -> NoReturn:
        """See gRPC."""
        raise Refused(f"{code.name}: {message}")


class Scene(Guarded):
    """Callers of a node whose barriers a test answers."""

    def __init__(self) -> None:
        super().__init__()
        self.lock()
        self.callers = Callers(self.stage.node)
        self.guard = Guard(self.stage.node, self.callers)
        self.calls = self.stage.node.clients.calls

    async def rechecking(self, count: int = 1) -> list[asyncio.Task[None]]:
        """Begin calls that wait; each has come before the next statement of the test."""
        context: Any = Other()
        tasks = [asyncio.create_task(self.callers.recheck(context)) for _ in range(count)]
        await self.settled()
        return tasks

    async def settled(self) -> None:
        """Let all tasks go on as far as they can."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def using(self, token: str) -> asyncio.Task[None]:
        """Begin a put in `mail` with a token; only its rights are checked."""
        context: Any = Other()
        request = users_pb2.WhoAmIRequest()
        row = GUARDED["Queue/Put"]._replace(queues=lambda _: ["mail"])
        caller = Caller(token=digest(token))
        task = asyncio.create_task(self.guard._check(row, caller, request, context))
        await self.settled()
        return task

    async def answer(self) -> None:
        """Apply what the calls in progress have sent."""
        await self.apply_next()
        await self.settled()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """The barriers that have begun."""
    found: list[Call] = []

    def noted(*about: Any) -> Call:
        found.append(Call(*about))
        return found[-1]

    monkeypatch.setattr(recheck, "Call", noted)
    return found


def run(test: Callable[[Scene], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        await test(Scene())

    asyncio.run(asyncio.wait_for(main(), 60))


def test_calls_that_wait_at_once_share_a_barrier(begun: list[Call]) -> None:
    async def test(it: Scene) -> None:
        first = await it.rechecking()
        others = await it.rechecking(RECHECKS_MAX - 1)
        assert len(begun) == len(it.calls) == 1
        await it.answer()
        assert first[0].done() and not any(task.done() for task in others)
        assert len(begun) == 2 and len(it.calls) == 1
        await it.answer()
        assert all(task.done() for task in others)
        assert len(begun) == 2 and not it.calls

    run(test)


def test_a_caller_that_comes_during_a_barrier_is_judged_by_the_next_one() -> None:
    """Its user was made after the beginning of the barrier in progress, and not applied by it."""

    async def test(it: Scene) -> None:
        wrong = await it.using("wrong")
        newer = await it.using(NEW)
        await it.answer()
        with pytest.raises(Refused, match="no user has this token"):
            await wrong
        assert not newer.done()
        it.apply((c.SET_TOKEN, 1, b"lee", digest(NEW), 1))
        await it.answer()
        await newer

    run(test)


def test_barriers_have_a_rate(begun: list[Call]) -> None:
    async def test(it: Scene) -> None:
        for _ in range(BARRIERS_PER_SECOND):
            (task,) = await it.rechecking()
            await it.answer()
            await task
        assert len(begun) == BARRIERS_PER_SECOND
        tasks = await it.rechecking(3)
        it.stage.pass_us(PERIOD_US - 1_000)
        await it.settled()
        assert len(begun) == BARRIERS_PER_SECOND and not it.calls
        tasks += await it.rechecking(2)
        it.stage.pass_us(2_000)
        await it.settled()
        assert len(begun) == BARRIERS_PER_SECOND + 1
        await it.answer()
        assert all(task.done() for task in tasks)
        it.stage.pass_us(3 * BURST_US)
        for _ in range(BARRIERS_PER_SECOND):
            (task,) = await it.rechecking()
            await it.answer()
            await task

    run(test)


def test_callers_that_go_and_come_again_cause_no_more_barriers(begun: list[Call]) -> None:
    async def test(it: Scene) -> None:
        for _ in range(5):
            for task in await it.rechecking(RECHECKS_MAX):
                task.cancel()
            await it.settled()
        assert len(begun) == len(it.calls) == 1
        (last,) = await it.rechecking()
        await it.answer()
        assert len(begun) == 2 and not last.done()
        await it.answer()
        await last

    run(test)


def test_a_failed_barrier_fails_those_who_share_it(begun: list[Call]) -> None:
    async def test(it: Scene) -> None:
        first, *others = [*(await it.rechecking()), *(await it.rechecking(2))]
        it.stage.pass_us(5_300_000)
        await it.settled()
        with pytest.raises(Refused, match="DEADLINE_EXCEEDED: no answer of a majority"):
            await first
        assert len(begun) == 2
        it.stage.node.clients.drop_all()
        for other in others:
            with pytest.raises(Refused, match="DEADLINE_EXCEEDED"):
                await other

    run(test)


def test_a_call_that_a_full_disk_keeps_from_its_answer_names_the_disk() -> None:
    """A backup said that no majority answers, or that the node was cut off."""

    async def test(it: Scene) -> None:
        node, context = it.stage.node, Other()
        its: Any = (context,)
        backups = BackupServicer(LocalNodeView(node, trust_of()), it.callers)
        (call,) = await it.rechecking()
        backup = asyncio.create_task(backups.Take(backup_pb2.TakeRequest(), *its))
        await it.settled()
        it.stage.replica.space = DiskRoom(low=True, full=True)
        node.clients.drop_all()
        for task, code in ((call, "DEADLINE_EXCEEDED"), (backup, "UNAVAILABLE")):
            words = f"{code}: no answer of a majority: n0 is waiting for room on the full disk"
            with pytest.raises(Refused, match=words):
                await task

    run(test)


def test_a_backup_begins_only_where_its_barrier_has_room() -> None:
    async def test(it: Scene) -> None:
        node, context = it.stage.node, Other()
        its: Any = (context,)
        backups = BackupServicer(LocalNodeView(node, trust_of()), it.callers)
        node.origin.bytes = node.context.config.outbox_bytes_max + 1
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED: the outbox of n0 is full"):
            await backups.Take(backup_pb2.TakeRequest(), *its)
        assert not it.calls

    run(test)


def test_a_node_that_is_cut_off_begins_no_barrier(begun: list[Call]) -> None:
    async def test(it: Scene) -> None:
        tasks = [*(await it.rechecking()), *(await it.rechecking(2))]
        it.stage.node.lifecycle.fenced = True
        it.stage.node.clients.drop_all()
        await it.settled()
        for task, why in zip(tasks, ("DEADLINE_EXCEEDED", *2 * ["UNAVAILABLE"]), strict=True):
            with pytest.raises(Refused, match=why):
                await task
        assert len(begun) == 1

    run(test)


def test_wrong_tokens_take_no_place_of_calls_that_do_something(begun: list[Call]) -> None:
    assert RECHECKS_MAX < WAITING_MAX

    async def test(it: Guarded) -> None:
        it.lock()
        who, calls = users_pb2.WhoAmIRequest(), it.stage.node.clients.calls
        wrong = [it.put_in("mail", f"wrong-{number}") for number in range(WAITING_MAX)]
        wrong += [it.users.WhoAmI(who, metadata=bearer("wrong")), it.put_in("mail", "")]
        tasks = {asyncio.ensure_future(it.refusal(_awaited(call))) for call in wrong}
        beyond = len(wrong) - RECHECKS_MAX
        await until(lambda: sum(task.done() for task in tasks) == beyond)
        told = [task.result() for task in tasks if task.done()]
        assert {(code, detail.reason) for code, detail in told} == {
            ("RESOURCE_EXHAUSTED", "TOO_MANY_CHECKS")
        }
        assert len(calls) == 1
        assert (await it.ask(it.put_in("mail", LEE))).results[0].job_id == 1
        while waiting := [task for task in tasks if not task.done()]:
            await asyncio.sleep(0)
            if calls:
                await it.apply_next()
            assert len(waiting) <= RECHECKS_MAX
        reasons = [task.result()[1].reason for task in tasks]
        assert reasons.count("UNKNOWN_TOKEN") + reasons.count("NO_TOKEN") == RECHECKS_MAX
        assert len(begun) == 2

    run_service(test)


async def _awaited(call: Any) -> Any:
    return await call
