"""Long calls of administrators: how they continue, and when they give up."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from beanpole.client.admin import Admin
from beanpole.client.rpc import Nodes, told
from beanpole.errors import ClientError
from beanpole.pb import jobs_pb2, jobs_pb2_grpc

# A caller without pauses reaches this number in a second.
CALLS_MAX = 100


class Busy(jobs_pb2_grpc.JobAdminServicer):
    """Begins every change, and fails it after the given number of parts."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.calls: list[int] = []  # the job after which each call began

    def Change(self, request: jobs_pb2.ChangeRequest, context: Any) -> Iterator[Any]:
        self.calls.append(request.after_id)
        told = jobs_pb2.ChangeProgress(after_id=request.after_id, up_to_id=10)
        yield told
        for _ in range(self.parts):
            told.after_id, told.matched, told.changed = told.after_id + 1, 1, 1
            told.complete = told.after_id == 10
            yield told
        if len(self.calls) < CALLS_MAX:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "as many searches as may be")


@contextmanager
def served(servicer: Busy) -> Iterator[Admin]:
    server = grpc.server(ThreadPoolExecutor(1))
    jobs_pb2_grpc.add_JobAdminServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with Nodes([f"127.0.0.1:{port}"], patience_s=0.3) as nodes:
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
