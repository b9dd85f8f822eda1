"""The gRPC service `JobAdmin` over a real socket, at a node with a scripted cluster."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest

from beanpole import commands as c
from beanpole.client.rpc import detail_of
from beanpole.core.jobs.job import Job
from beanpole.events import GEARMAN
from beanpole.pb import jobs_pb2, jobs_pb2_grpc
from beanpoled import cli
from beanpoled.rpc import job_changes, jobs
from beanpoled.rpc import oldest as oldest_jobs
from beanpoled.rpc.job_scan import TEXT_MAX_BYTES
from beanpoled.rpc.jobs import JobAdminServicer
from beanpoled.rpc.oldest import OldestJobs
from tests.unit.beanpoled.fakes import ended_by_hand
from tests.unit.beanpoled.test_queue_rpc import Service

READY, DELAYED, BURIED = (
    jobs_pb2.JOB_STATE_READY,
    jobs_pb2.JOB_STATE_DELAYED,
    jobs_pb2.JOB_STATE_BURIED,
)


class Admin(Service):
    """A serving follower; the session of another node puts jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.theirs = 0
        self.stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, 3), (c.RAISE, 4))))
        self.apply((c.OPEN, 1), (c.OPEN, 2), (c.SET_PROTOCOL, 2, GEARMAN))

    def apply(self, *commands: c.Command) -> None:
        self.theirs += 1
        self.stage.apply_sections((1, 1, self.theirs, commands))

    def put(self, *bodies: bytes, tube: bytes = b"work", delay_s: int = 0) -> None:
        self.apply(*((c.PUT, 1, tube, 9, delay_s, 60, body) for body in bodies))

    @asynccontextmanager
    async def running(self) -> Any:
        server = grpc.aio.server()
        assert JobAdminServicer(self.stage.node).add_to(server) == "beanpole.v1.JobAdmin"
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                self.stub = jobs_pb2_grpc.JobAdminStub(channel)
                yield
        finally:
            await server.stop(0)

    async def ask(self, call: Any) -> Any:
        """Return the reply of a call while the cluster applies its commands."""
        answer = asyncio.ensure_future(_awaited(call))
        while not answer.done():
            await asyncio.sleep(0)
            if self.stage.node.clients.calls:
                await self.apply_next()
        return answer.result()

    async def jobs(self, **fields: Any) -> list[jobs_pb2.AdminJob]:
        reply = await self.ask(self.stub.ListJobs(jobs_pb2.ListJobsRequest(**fields)))
        return list(reply.jobs)

    async def change(self, **fields: Any) -> list[jobs_pb2.ChangeProgress]:
        told = await self.ask(_all(self.stub.Change(jobs_pb2.ChangeRequest(**fields))))
        assert isinstance(told, list)
        return told

    async def reason(self, call: Any) -> str:
        code, detail = await self.refusal(self.ask(call))
        return f"{code} {detail.reason} {detail.field}".strip()


async def _awaited(call: Any) -> Any:
    return await call


async def _all(stream: Any) -> list[Any]:
    return [message async for message in stream]


def run(test: Callable[[Admin], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        service = Admin()
        running: AbstractAsyncContextManager[None] = service.running()
        async with running:
            await test(service)

    asyncio.run(asyncio.wait_for(main(), 60))


def ids(found: Iterable[Any]) -> list[int]:
    return [one.id for one in found]


def test_jobs_are_found_by_all_that_is_given() -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"red apple", b"green apple")
        admin.put(b"red pear", tube=b"other", delay_s=9)
        admin.apply((c.SUBMIT, 2, b"\x02turn", 1, 0, b"", 0, 0, b"", b"red"))
        wanted = jobs_pb2.JobFilter
        assert ids(await admin.jobs()) == [1, 2, 3, 4]
        assert ids(await admin.jobs(filter=wanted(queue="work"))) == [1, 2]
        assert ids(await admin.jobs(filter=wanted(queue="gearman:turn"))) == [4]
        assert ids(await admin.jobs(filter=wanted(protocol="gearman"))) == [4]
        assert ids(await admin.jobs(filter=wanted(states=[DELAYED, BURIED]))) == [3]
        assert ids(await admin.jobs(filter=wanted(body_contains=b"red"))) == [1, 3, 4]
        assert ids(await admin.jobs(filter=wanted(body_contains=b"red", queue="work"))) == [1]
        assert ids(await admin.jobs(filter=wanted(age_min_us=10**6))) == []
        assert ids(await admin.jobs(after_id=2)) == [3, 4]

    run(test)


def test_a_list_goes_on_where_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(admin: Admin) -> None:
        admin.put(*[b"%d" % number for number in range(300)])
        monkeypatch.setattr(jobs, "SCAN_MAX", 70)
        found: list[int] = []
        request = jobs_pb2.ListJobsRequest(limit=50, filter=jobs_pb2.JobFilter(body_contains=b"7"))
        pages = 0
        while True:
            reply = await admin.ask(admin.stub.ListJobs(request))
            found += ids(reply.jobs)
            pages += 1
            if reply.complete:
                break
            # Jobs added or deleted between pages are neither missed nor repeated.
            admin.apply((c.DELETE, 1, reply.next_after_id), (c.DELETE, 1, pages))
            admin.put(b"none")
            request.after_id = reply.next_after_id
        assert pages >= 5
        assert found == [number + 1 for number in range(300) if "7" in str(number)]

    run(test)


def test_bodies_come_along_as_far_as_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"x" * 90, b"y" * 90)
        first, _ = await admin.jobs(body_bytes=10)
        assert (first.body, first.body_bytes) == (b"x" * 10, 90)
        monkeypatch.setattr(jobs, "REPLY_BYTES_MAX", 50)
        assert ids(await admin.jobs(body_bytes=80)) == [1]
        whole = await admin.ask(admin.stub.GetJob(jobs_pb2.GetJobRequest(id=2)))
        assert whole.body == b"y" * 90

    run(test)


def test_a_reserved_job_names_its_holder() -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"x")
        admin.apply((c.RESERVE_JOB, 1, 1))
        job = await admin.ask(admin.stub.GetJob(jobs_pb2.GetJobRequest(id=1)))
        assert job.state == jobs_pb2.JOB_STATE_RESERVED
        assert (job.holder.node, job.holder.session) == ("n1", 1)
        assert 0 < job.left_us <= 60_000_000

    run(test)


def test_ids_have_their_outcomes() -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"1", b"2", b"3")
        admin.apply((c.RESERVE_JOB, 1, 2), (c.BURY, 1, 2, 9), (c.RESERVE_JOB, 1, 3))
        fields: dict[str, Any] = {
            "action": jobs_pb2.JOB_ACTION_MOVE,
            "job_ids": [1, 2, 3, 9],
            "to_queue": "dead",
        }
        for dry_run in (True, False):
            [told] = await admin.change(**fields, dry_run=dry_run)
            assert [one.outcome for one in told.results] == [1, 1, 3, 2]
            assert (told.matched, told.changed, told.complete) == (4, 2, True)
            moved = await admin.jobs(filter=jobs_pb2.JobFilter(queue="dead"))
            assert ids(moved) == ([] if dry_run else [1, 2])
        assert [one.state for one in moved] == [READY, READY]
        [told] = await admin.change(**fields)
        assert [one.outcome for one in told.results] == [4, 4, 3, 2]

    run(test)


def test_a_filter_changes_all_that_were_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(admin: Admin) -> None:
        monkeypatch.setattr(jobs, "PART_JOBS", 20)
        admin.put(*[b"x"] * 50)
        admin.apply((c.RESERVE_JOB, 1, 7))
        wanted = jobs_pb2.JobFilter(queue="work")
        fields: dict[str, Any] = {"action": jobs_pb2.JOB_ACTION_DELETE, "filter": wanted}
        dry = await admin.change(**fields, dry_run=True)
        assert (dry[-1].changed, len(admin.stage.node.context.machine.queue.jobs)) == (49, 50)
        some = await admin.change(**fields, count_max=30)
        assert some[-1].changed == 30
        # Continue after the middle message, as any node could.
        begun = (await admin.change(**fields, count_max=10))[0]
        admin.put(b"new")
        rest = await admin.change(**fields, after_id=begun.after_id, up_to_id=begun.up_to_id)
        assert [told.complete for told in rest] == [False] * (len(rest) - 1) + [True]
        left = await admin.jobs(filter=wanted)
        assert ids(left) == [7, 51]
        assert (await admin.change(**fields, reserved=True))[-1].changed == 2

    run(test)


@pytest.mark.constants
def test_a_long_change_ends_between_two_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's own limit would end it within a part, which would not be counted."""

    async def test(admin: Admin) -> None:
        monkeypatch.setattr(jobs, "PART_JOBS", 20)
        monkeypatch.setattr(jobs, "CHANGE_US", 0)
        admin.put(*[b"x"] * 50)
        fields: dict[str, Any] = {
            "action": jobs_pb2.JOB_ACTION_DELETE,
            "filter": jobs_pb2.JobFilter(queue="work"),
        }
        _, first = await admin.change(**fields)
        assert (first.changed, first.complete) == (20, False)
        place = {"after_id": first.after_id, "up_to_id": first.up_to_id}
        _, second = await admin.change(**fields, **place)
        assert (second.changed, second.complete) == (20, False)
        assert len(admin.stage.node.context.machine.queue.jobs) == 10

    run(test)


def test_a_full_queue_stops_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(admin: Admin) -> None:
        admin.put(*[b"x"] * 5)
        admin.stage.node.context.machine.tubes_max = 2
        told = await admin.change(
            action=jobs_pb2.JOB_ACTION_MOVE,
            filter=jobs_pb2.JobFilter(queue="work"),
            to_queue="more",
        )
        assert told[-1].stopped_by == jobs_pb2.JOB_OUTCOME_TOO_MANY_QUEUES
        assert (told[-1].changed, told[-1].complete) == (0, True)

    run(test)


def test_jobs_of_other_protocols_are_not_in_the_way_of_a_move() -> None:
    async def test(admin: Admin) -> None:
        admin.apply((c.SUBMIT, 2, b"\x02turn", 1, 0, b"", 0, 0, b"", b"picture"))
        admin.put(b"1", b"2")
        fields: dict[str, Any] = {"action": jobs_pb2.JOB_ACTION_MOVE, "to_queue": "more"}
        fields["filter"] = {"states": [READY]}
        for dry_run in (True, False):
            told = (await admin.change(**fields, dry_run=dry_run))[-1]
            assert (told.matched, told.changed, told.stopped_by) == (2, 2, 0)
        # A job named by its id must have an outcome.
        told = (await admin.change(**{**fields, "filter": None, "job_ids": [1]}))[-1]
        assert told.results[0].outcome == jobs_pb2.JOB_OUTCOME_OTHER_PROTOCOL

    run(test)


def test_queues_are_listed_with_their_oldest_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"x", tube=b"a")
        admin.put(b"x", b"y", tube=b"b", delay_s=9)
        stub = admin.stub
        names: list[str] = []
        request = jobs_pb2.ListQueuesRequest(limit=2, oldest=True)
        while True:
            reply = await admin.ask(stub.ListQueues(request))
            names += [one.name for one in reply.queues]
            if reply.complete:
                break
            request.after = reply.next_after
        assert names == ["default", "a", "b"]
        [b] = (await admin.ask(stub.ListQueues(jobs_pb2.ListQueuesRequest(queue="b")))).queues
        assert (b.ready, b.delayed, b.jobs_total, b.oldest_id) == (0, 2, 2, 0)
        request = jobs_pb2.ListQueuesRequest(queue="b", oldest=True)
        [b] = (await admin.ask(stub.ListQueues(request))).queues
        assert b.oldest_id == 2
        monkeypatch.setattr(jobs, "OLDEST_SCAN_MAX", 1)
        assert not (await admin.ask(stub.ListQueues(request))).oldest_complete

    run(test)


def test_all_queues_of_qless_are_listed_behind_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def listed(admin: Admin) -> list[list[str]]:
        pages = []
        request = jobs_pb2.ListQueuesRequest(limit=2, oldest=True)
        while True:
            reply = await admin.ask(admin.stub.ListQueues(request))
            pages.append([one.name for one in reply.queues])
            if reply.complete:
                return pages
            request.after = reply.next_after

    async def test(admin: Admin) -> None:
        admin.put(b"x", tube=b"a")
        for name in (b"1", b"2", b"3", b"4"):
            admin.stage.node.context.machine.qless.queue(name)
        monkeypatch.setattr(jobs, "QLESS_QUEUES_MAX", 3)
        assert await listed(admin) == [
            ["default", "a", "qless:1", "qless:2", "qless:3"],
            ["qless:4"],
        ]
        monkeypatch.setattr(jobs, "REPLY_BYTES_MAX", 2 * len("qless:1"))
        assert await listed(admin) == [
            ["default", "a", "qless:1", "qless:2"],
            ["qless:3", "qless:4"],
        ]

    run(test)


def test_a_list_of_queues_continues_behind_any_number() -> None:
    async def test(admin: Admin) -> None:
        admin.stage.node.context.machine.qless.queue(b"1")
        request = jobs_pb2.ListQueuesRequest(after=2**64 - 1)
        reply = await admin.ask(admin.stub.ListQueues(request))
        assert reply.complete and not reply.queues
        assert reply.next_after == jobs.QLESS_AFTER + 1

    run(test)


def test_one_scan_is_for_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    take = OldestJobs.take

    def looked(self: OldestJobs, job: Job) -> bool:
        looks.append(job.id)
        return take(self, job)

    monkeypatch.setattr(OldestJobs, "take", looked)

    async def test(admin: Admin) -> None:
        for tube in (b"a", b"b", b"c", b"d"):
            admin.put(b"x", b"y", tube=tube)
        admin.apply((c.WATCH, 1, b"late"))
        request = jobs_pb2.ListQueuesRequest(limit=2, oldest=True)
        oldest: dict[str, int] = {}

        async def page() -> bool:
            reply = await admin.ask(admin.stub.ListQueues(request))
            assert reply.oldest_complete
            oldest.update((one.name, one.oldest_id) for one in reply.queues)
            request.after = reply.next_after
            return bool(reply.complete)

        assert not await page()
        assert looks == [1, 2, 3, 4, 5, 6, 7]
        # Later queues come after all these; the oldest job of "d" may be deleted.
        admin.put(b"z", tube=b"late")
        admin.apply((c.DELETE, 1, 7))
        while not await page():
            pass
        assert oldest == {"default": 0, "a": 1, "b": 3, "c": 5, "d": 7, "late": 9}
        assert looks == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        # A list that starts again searches again, and so does a page that comes too late.
        request.after = 0
        await page()
        assert len(looks) > 9
        looks.clear()
        monkeypatch.setattr(oldest_jobs, "KEPT_S", -1.0)
        request.after = 0
        while not await page():
            pass
        assert oldest["d"] == 8
        assert len(looks) > 9
        # There are more queues than one search covers.
        monkeypatch.setattr(oldest_jobs, "KEPT_S", 60.0)
        monkeypatch.setattr(oldest_jobs, "QUEUES_MAX", 3)
        expected = oldest.copy()
        oldest.clear()
        request.after = 0
        while not await page():
            pass
        assert oldest == expected

    run(test)


def test_a_queue_is_paused_and_goes_on() -> None:
    async def test(admin: Admin) -> None:
        admin.put(b"x")
        pause = admin.stub.PauseQueue
        await admin.ask(pause(jobs_pb2.PauseQueueRequest(queue="work", seconds=60)))
        request = jobs_pb2.ListQueuesRequest(queue="work")
        [one] = (await admin.ask(admin.stub.ListQueues(request))).queues
        assert one.paused and one.pause_left_us == 60_000_000
        await admin.ask(pause(jobs_pb2.PauseQueueRequest(queue="work")))
        [one] = (await admin.ask(admin.stub.ListQueues(request))).queues
        assert not one.paused
        none = pause(jobs_pb2.PauseQueueRequest(queue="none", seconds=60))
        assert await admin.reason(none) == "NOT_FOUND NO_QUEUE"

    run(test)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "BAD_ACTION action"),
        ({"action": 99, "job_ids": [1]}, "BAD_ACTION action"),
        ({"action": 1}, "BAD_CHOICE filter"),
        ({"action": 1, "job_ids": [1], "filter": {"age_min_us": 1}}, "BAD_CHOICE filter"),
        ({"action": 1, "job_ids": range(job_changes.IDS_MAX + 1)}, "TOO_MANY_JOBS job_ids"),
        ({"action": 2, "filter": {"queue": "q", "states": [1]}}, "BAD_STATE filter.states"),
        ({"action": 1, "filter": {"queue": "q", "states": [2]}}, "BAD_STATE filter.states"),
        ({"action": 1, "filter": {"states": [77]}}, "BAD_STATE filter.states"),
        ({"action": 1, "filter": {"queue": "qless:q"}}, "QLESS filter.queue"),
        ({"action": 1, "filter": {"protocol": "qless"}}, "QLESS filter.protocol"),
        ({"action": 1, "filter": {"protocol": "x"}}, "BAD_PROTOCOL filter.protocol"),
        ({"action": 1, "filter": {"queue": "x:y"}}, "BAD_NAME filter.queue"),
        ({"action": 1, "filter": {"age_min_us": 2, "age_max_us": 1}}, "BAD_AGE filter.age_max_us"),
        (
            {"action": 1, "filter": {"body_contains": b"x" * (TEXT_MAX_BYTES + 1)}},
            "TEXT_TOO_LONG filter.body_contains",
        ),
        ({"action": 6, "job_ids": [1]}, "BAD_NAME to_queue"),
        # Clients of these queues could not name them.
        ({"action": 6, "job_ids": [1], "to_queue": "a b\r\n"}, "BAD_NAME to_queue"),
        ({"action": 6, "job_ids": [1], "to_queue": "-a"}, "BAD_NAME to_queue"),
        ({"action": 6, "job_ids": [1], "to_queue": "beanstalk:a b"}, "BAD_NAME to_queue"),
        ({"action": 6, "job_ids": [1], "to_queue": "workq:a b"}, "BAD_NAME to_queue"),
        ({"action": 6, "job_ids": [1], "to_queue": "gearman:"}, "BAD_NAME to_queue"),
        ({"action": 6, "job_ids": [1], "to_queue": "q", "moved_state": 9}, "BAD_STATE moved_state"),
        ({"action": 6, "filter": {"queue": "q"}, "to_queue": "q"}, "SAME_QUEUE to_queue"),
        ({"action": 6, "filter": {"queue": "q"}, "to_queue": "workq:q"}, "OTHER_PROTOCOL to_queue"),
        (
            {"action": 6, "filter": {"protocol": "gearman"}, "to_queue": "q"},
            "OTHER_PROTOCOL to_queue",
        ),
        ({"action": 5, "job_ids": [1], "delay_s": 2**32}, "BAD_DELAY delay_s"),
    ],
)
def test_a_wrong_request_is_refused(fields: dict[str, Any], reason: str) -> None:
    async def test(admin: Admin) -> None:
        call = _all(admin.stub.Change(jobs_pb2.ChangeRequest(**fields)))
        assert await admin.reason(call) == f"INVALID_ARGUMENT {reason}"

    run(test)


@pytest.mark.parametrize("job_id", [1, 2**53, 2**63, 2**64 - 1])
def test_what_is_not_there_is_said(job_id: int) -> None:
    async def test(admin: Admin) -> None:
        get = admin.stub.GetJob
        assert await admin.reason(get(jobs_pb2.GetJobRequest(id=job_id))) == "NOT_FOUND NO_JOB"
        assert await admin.jobs(after_id=job_id) == []
        [told] = await admin.change(action=jobs_pb2.JOB_ACTION_DELETE, job_ids=[job_id])
        assert [one.outcome for one in told.results] == [jobs_pb2.JOB_OUTCOME_NOT_FOUND]
        reply = await admin.ask(admin.stub.ListQueues(jobs_pb2.ListQueuesRequest(queue="none")))
        assert (list(reply.queues), reply.complete) == ([], True)

    run(test)


def test_an_older_cluster_says_so() -> None:
    async def test(admin: Admin) -> None:
        context = admin.stage.node.context
        context.machine.activate(3)
        ended_by_hand(context)
        call = _all(
            admin.stub.Change(jobs_pb2.ChangeRequest(action=jobs_pb2.JOB_ACTION_KICK, job_ids=[1]))
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await admin.ask(call)
        assert detail_of(caught.value).reason == "MACHINE_VERSION"
        words = str(caught.value.details())
        assert words.startswith("the cluster works at a machine version without changes by admin")
        # The advice is a valid command.
        command = words.split("`")[1].split()
        assert cli.parser().parse_args(command[1:]).run
        pause = admin.stub.PauseQueue(jobs_pb2.PauseQueueRequest(queue="work", seconds=60))
        assert await admin.reason(pause) == "FAILED_PRECONDITION MACHINE_VERSION"
        admin.put(b"x")
        assert ids(await admin.jobs()) == [1]  # reading needs no newer version

    run(test)


def test_searches_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(admin: Admin) -> None:
        monkeypatch.setattr(jobs, "SCANS_MAX", 0)
        call = admin.stub.ListJobs(jobs_pb2.ListJobsRequest())
        assert await admin.reason(call) == "RESOURCE_EXHAUSTED TOO_MANY_SCANS"

    run(test)
