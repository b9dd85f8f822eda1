"""Long calls of administrators: how they continue, and when they give up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from beanpole.client import rpc
from beanpole.client.admin import PART_IDS, Admin
from beanpole.client.rpc import ERROR_KEY, Nodes, told
from beanpole.errors import ClientError
from beanpole.pb import errors_pb2, jobs_pb2, jobs_pb2_grpc

# A caller without pauses reaches this number in a second.
CALLS_MAX = 100
DONE, NOT_FOUND = jobs_pb2.JOB_OUTCOME_DONE, jobs_pb2.JOB_OUTCOME_NOT_FOUND


class Busy(jobs_pb2_grpc.JobAdminServicer):
    """Begins every change, and fails it after the given number of parts."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.calls: list[int] = []  # the job after which each call began

    def Change(self, request: jobs_pb2.ChangeRequest, context: Any) -> Iterator[Any]:
        yield from self.some_parts(request)
        if len(self.calls) < CALLS_MAX:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "as many searches as may be")

    def some_parts(self, request: jobs_pb2.ChangeRequest) -> Iterator[jobs_pb2.ChangeProgress]:
        """Change one job in each part."""
        self.calls.append(request.after_id)
        told = jobs_pb2.ChangeProgress(after_id=request.after_id, up_to_id=10)
        yield told
        for _ in range(self.parts):
            told.after_id, told.matched, told.changed = told.after_id + 1, 1, 1
            told.complete = told.after_id == 10
            yield told


class Deleting(jobs_pb2_grpc.JobAdminServicer):
    """Deletes jobs by their ids, and dies once at the end of the given call."""

    def __init__(self, jobs: range, dies_at: int) -> None:
        self.jobs = set(jobs)
        self.dies_at = dies_at
        self.calls: list[list[int]] = []

    def Change(self, request: jobs_pb2.ChangeRequest, context: Any) -> Iterator[Any]:
        self.calls.append(list(request.job_ids))
        told = jobs_pb2.ChangeProgress(matched=len(request.job_ids), complete=True)
        for job_id in request.job_ids:
            is_there = job_id in self.jobs
            if not request.dry_run:
                self.jobs.discard(job_id)
            told.changed += is_there
            told.results.add(id=job_id, outcome=DONE if is_there else NOT_FOUND)
        if len(self.calls) == self.dies_at:
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        yield told


@contextmanager
def served(servicer: jobs_pb2_grpc.JobAdminServicer, *others: str) -> Iterator[Admin]:
    server = grpc.server(ThreadPoolExecutor(1))
    jobs_pb2_grpc.add_JobAdminServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Nodes([*others, f"127.0.0.1:{port}"], patience_s=0.3) as nodes:
            yield Admin(nodes)
    finally:
        server.stop(None)


def request() -> jobs_pb2.ChangeRequest:
    return jobs_pb2.ChangeRequest(filter=jobs_pb2.JobFilter(queue="work"))


def test_nodes_with_the_same_error_share_its_words() -> None:
    assert told({"b:1": "gone", "a:1": "gone", "c:1": "busy"}) == "a:1, b:1: gone; c:1: busy"


def test_a_node_that_does_nothing_is_not_asked_without_a_pause() -> None:
    busy = Busy(parts=0)
    with served(busy) as admin, pytest.raises(ClientError, match="as many searches as may be"):
        admin.change(request())
    assert len(busy.calls) < CALLS_MAX // 4


def test_a_change_that_is_cut_off_goes_on_behind_its_last_part() -> None:
    cut = Busy(parts=1)
    with served(cut) as admin:
        told = admin.change(request())
    assert cut.calls == list(range(10))
    assert told.complete and told.changed == told.matched == 10


class Brief(Busy):
    """Ends each call after some parts, without an error."""

    def Change(self, request: jobs_pb2.ChangeRequest, context: Any) -> Iterator[Any]:
        yield from self.some_parts(request)


def test_a_change_that_a_node_ends_goes_on_too() -> None:
    with served(brief := Brief(parts=1)) as admin:
        told = admin.change(request())
    assert brief.calls == list(range(10))
    assert told.complete and told.changed == told.matched == 10
    with served(Brief(parts=0)) as admin:
        assert not admin.change(request()).complete, "a call that does nothing is not repeated"


def deletion(count: int, dry_run: bool = False) -> jobs_pb2.ChangeRequest:
    action = jobs_pb2.JOB_ACTION_DELETE
    return jobs_pb2.ChangeRequest(action=action, job_ids=range(count), dry_run=dry_run)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_node_that_is_lost_leaves_one_part_of_the_ids_unsure(dry_run: bool) -> None:
    count = 2 * PART_IDS + 9
    deleting = Deleting(range(count), dies_at=2)
    seen = []
    with served(deleting) as admin:
        told = admin.change(deletion(count, dry_run), lambda now: seen.append(now.scanned))
    second = range(PART_IDS, 2 * PART_IDS)
    assert [len(ids) for ids in deleting.calls] == [PART_IDS, PART_IDS, PART_IDS, 9]
    assert (told.complete, told.matched) == (True, count)
    assert [one.id for one in told.results] == list(range(count))
    missed = {one.id for one in told.results if one.outcome == NOT_FOUND}
    assert missed == admin.asked_again == (set() if dry_run else set(second))
    assert told.changed == count - len(missed)
    assert seen == [PART_IDS, 2 * PART_IDS, count]


@pytest.mark.parametrize("down", ["127.0.0.1:1", "no..name:1"])
def test_a_node_that_is_down_leaves_nothing_unsure(down: str) -> None:
    deleting = Deleting(range(3), dies_at=0)
    with served(deleting, down) as admin:
        told = admin.change(deletion(4))
    assert (told.changed, told.matched, admin.asked_again) == (3, 4, set())


class Refusing(jobs_pb2_grpc.JobAdminServicer):
    """Refuses every change with a reason."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        self.code = code
        self.reason = reason

    def Change(self, request: jobs_pb2.ChangeRequest, context: Any) -> Any:
        packed = errors_pb2.ErrorDetail(reason=self.reason).SerializeToString()
        context.set_trailing_metadata(((ERROR_KEY, packed),))
        context.abort(self.code, "no")


CODE = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "reason", "is_unsure"),
    [
        (CODE.PERMISSION_DENIED, "NO_RIGHT", False),
        (CODE.UNAUTHENTICATED, "NO_TOKEN", False),
        (CODE.UNAUTHENTICATED, "UNKNOWN_TOKEN", False),
        (CODE.UNAVAILABLE, "NOT_SERVING", False),
        (CODE.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", False),
        (CODE.RESOURCE_EXHAUSTED, "TOO_MANY_SESSIONS", False),
        (CODE.RESOURCE_EXHAUSTED, "", True),
        (CODE.PERMISSION_DENIED, "RIGHT_ENDED", True),
        (CODE.UNAUTHENTICATED, "TOKEN_ENDED", True),
        (CODE.DEADLINE_EXCEEDED, "", True),
        (CODE.UNIMPLEMENTED, "", False),
    ],
)
def test_only_what_a_node_may_have_begun_is_unsure(
    code: grpc.StatusCode, reason: str, is_unsure: bool
) -> None:
    with served(Refusing(code, reason)) as admin, pytest.raises(ClientError):
        admin.change(deletion(3))
    assert admin.asked_again == (set(range(3)) if is_unsure else set())


def test_a_client_says_once_that_it_is_still_trying(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A cluster that is down is looked for as long as an election or a restart may take."""
    monkeypatch.setattr(rpc, "SAID_AFTER_S", 0.0)
    with Nodes(["127.0.0.1:1"], patience_s=0.3) as nodes, pytest.raises(ClientError):
        Admin(nodes).ask("ListQueues", jobs_pb2.ListQueuesRequest())
    (said,) = caplog.messages
    assert said.startswith("no answer yet, trying for 0.3 s: 127.0.0.1:1: UNAVAILABLE")
