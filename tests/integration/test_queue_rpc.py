"""The gRPC service `Queue` on a real cluster: keyed puts happen once, whichever node is killed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import grpc
import pytest

from beanpole.client.rpc import ERROR_KEY
from beanpole.pb import errors_pb2, queue_pb2, queue_pb2_grpc
from tests.integration.support.nodes import Cluster, Node
from tests.integration.support.queues import Queue
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

JOBS: Final = 20_000
CALL_JOBS: Final = 1_000
CALL_TIMEOUT_S: Final = 10.0
# A caller retries after these statuses; a cluster may be without a leader for this long.
PATIENCE_S: Final = 60.0
AGAIN: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)
INSERTED: Final = queue_pb2.PUT_OUTCOME_INSERTED
DUPLICATE: Final = queue_pb2.PUT_OUTCOME_DUPLICATE


class Caller:
    """A program that puts through one node until a call fails, and then through the next."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._channels = [grpc.insecure_channel(node.grpc) for node in nodes]
        self.failures: Counter[str] = Counter()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()

    def put(self, request: queue_pb2.PutRequest) -> list[queue_pb2.PutResult]:
        """Repeat a put until a node confirms it."""

        def attempt() -> list[queue_pb2.PutResult]:
            stub = queue_pb2_grpc.QueueStub(self._channels[0])
            try:
                return list(stub.Put(request, timeout=CALL_TIMEOUT_S).results)
            except grpc.RpcError as error:
                assert error.code() in AGAIN, error
                self.failures[error.code().name] += 1
                self._channels.append(self._channels.pop(0))
                return []

        return wait_until(attempt, PATIENCE_S, "a put is answered")


@pytest.fixture
def callers(quick: Cluster) -> Iterator[list[Caller]]:
    """One caller for each node, which begins at that node."""
    nodes = quick.nodes
    found = [Caller([*nodes[number:], *nodes[:number]]) for number in range(len(nodes))]
    yield found
    for caller in found:
        caller.close()


def keyed(start: int, count: int) -> queue_pb2.PutRequest:
    jobs = [
        queue_pb2.PutJob(tube="rows", body=b"row %d" % row, ttr_s=60, key=b"run 7/%d" % row)
        for row in range(start, start + count)
    ]
    return queue_pb2.PutRequest(jobs=jobs)


def put_all(quick: Cluster, caller: Caller, killed: int) -> list[queue_pb2.PutResult]:
    """Put all jobs, and kill a node after half of them."""
    results: list[queue_pb2.PutResult] = []
    for start in range(0, JOBS, CALL_JOBS):
        if start == JOBS // 2:
            quick.kill(killed)
        results += caller.put(keyed(start, CALL_JOBS))
    return results


def test_keyed_jobs_are_put_once(quick: Cluster, callers: list[Caller]) -> None:
    """Put 20,000 jobs twice, through two nodes, each of which is killed meanwhile."""
    leader = quick.leader()
    follower = (leader + 1) % 3
    first = put_all(quick, callers[follower], follower)
    quick.start(follower)
    quick.wait_until_serving(follower)
    again = put_all(quick, callers[leader], leader)

    assert [result.job_id for result in again] == [result.job_id for result in first]
    assert len({result.job_id for result in first}) == JOBS
    assert {result.outcome for result in again} == {DUPLICATE}
    # The call in progress when its node was killed may have taken effect.
    outcomes = Counter(result.outcome for result in first)
    assert outcomes[INSERTED] >= JOBS - CALL_JOBS
    assert outcomes[INSERTED] + outcomes[DUPLICATE] == JOBS
    for caller in (callers[follower], callers[leader]):
        assert caller.failures.total() >= 1, "the node that died was never asked"
    with Raw(quick.nodes[follower].beanstalk) as client:
        stats = client.dictionary(b"stats-tube rows")
        assert (stats["current-jobs-ready"], stats["total-jobs"]) == (str(JOBS), str(JOBS))


def test_a_cluster_without_a_majority_answers_in_time(
    quick: Cluster, callers: list[Caller]
) -> None:
    """The outcome is unknown; repeated once the majority is back, the put leaves a single job."""
    number = quick.followers()[0]
    others = [other for other in range(3) if other != number]
    request = keyed(0, 1)
    for other in others:
        quick.kill(other)
    with (
        grpc.insecure_channel(quick.nodes[number].grpc) as channel,
        pytest.raises(grpc.RpcError) as failed,
    ):
        queue_pb2_grpc.QueueStub(channel).Put(request, timeout=60)
    assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert "the outcome is unknown" in str(failed.value.details())
    for other in others:
        quick.start(other)
    results = callers[number].put(request)
    assert len(results) == 1
    assert callers[number].put(request)[0].job_id == results[0].job_id


@pytest.fixture
def stub(quick: Cluster) -> Iterator[queue_pb2_grpc.QueueStub]:
    with grpc.insecure_channel(quick.nodes[0].grpc) as channel:
        yield queue_pb2_grpc.QueueStub(channel)


def test_jobs_are_as_they_were_put(quick: Cluster, stub: queue_pb2_grpc.QueueStub) -> None:
    jobs = [
        queue_pb2.PutJob(body=b"\x00\r\n\xff", priority=7, delay_s=100, ttr_s=9),
        queue_pb2.PutJob(tube="other", body=b""),
    ]
    delayed, ready = stub.Put(queue_pb2.PutRequest(jobs=jobs), timeout=CALL_TIMEOUT_S).results
    with Raw(quick.nodes[1].beanstalk) as client:
        names = ("tube", "pri", "delay", "ttr")
        one = client.dictionary(b"stats-job %d" % delayed.job_id)
        other = client.dictionary(b"stats-job %d" % ready.job_id)
        assert " ".join(one[name] for name in names) == '"default" 7 100 9'
        assert " ".join(other[name] for name in names) == '"other" 0 0 60'
        kicks = queue_pb2.KickRequest(job_ids=[delayed.job_id, ready.job_id, 2**60])
        assert list(stub.Kick(kicks, timeout=CALL_TIMEOUT_S).kicked) == [True, False, False]
        reply = client.command(b"reserve-job %d" % delayed.job_id)
        assert reply[1] == b"\x00\r\n\xff"
    with Raw(quick.nodes[0].beanstalk) as client:
        wait_until(
            lambda: client.dictionary(b"stats-tube default")["current-using"] == "1",
            PATIENCE_S,
            "calls leave no session behind",
        )


def test_a_draining_node_takes_no_puts(quick: Cluster, stub: queue_pb2_grpc.QueueStub) -> None:
    node = Queue(quick.nodes[0].beanstalk, 0, 65535, quick.pid(0))
    node.drain()
    with pytest.raises(grpc.RpcError) as failed:
        stub.Put(keyed(1_000_000, 1), timeout=CALL_TIMEOUT_S)
    assert failed.value.code() == grpc.StatusCode.UNAVAILABLE
    told = {item.key: item.value for item in failed.value.trailing_metadata() or ()}
    assert errors_pb2.ErrorDetail.FromString(told[ERROR_KEY]).reason == "DRAINING"
    assert list(stub.Kick(queue_pb2.KickRequest(job_ids=[2**62]), timeout=5).kicked) == [False]
    node.drain(wanted=False)
    assert stub.Put(keyed(1_000_000, 1), timeout=CALL_TIMEOUT_S).results[0].outcome == INSERTED
