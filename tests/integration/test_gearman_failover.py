"""Kill nodes while Gearman jobs run in foreground: every result arrives exactly once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.foreground import FUNCTION, Foreground
from tests.integration.support.gearmand import (
    CAN_DO,
    GET_STATUS,
    GRAB_JOB,
    JOB_ASSIGN,
    JOB_CREATED,
    NO_JOB,
    NOOP,
    PRE_SLEEP,
    STATUS_RES,
    SUBMIT_JOB,
    SUBMIT_JOB_BG,
    WORK_COMPLETE,
    WORK_STATUS,
    Packets,
)
from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.waiting import wait_until

JOBS = 50
ROUNDS = 4
TIMEOUT_S = 60.0
# Shorter times than the defaults, so that tests are fast.
IMPATIENT = {
    "raft_min_ms": 400,
    "raft_max_ms": 800,
    "command_timeout_ms": 2400,
    "fence_timeout_ms": 3500,
    "node_timeout_ms": 5000,
}


def gearman_ports(cluster: Cluster) -> list[str]:
    """Return the Gearman addresses of all nodes, once the nodes accept clients there."""
    addresses = [node.speaks("gearman") for node in cluster.nodes]
    wait_until(lambda: all(map(answers, addresses)), TIMEOUT_S, "the ports of Gearman")
    return addresses


def test_leader_killed(cluster: Cluster) -> None:
    addresses = gearman_ports(cluster)
    leader = cluster.leader()
    others = [address for number, address in enumerate(addresses) if number != leader]
    clients = Foreground(others, JOBS, ROUNDS)
    clients.start()
    # Some jobs end while the leader is killed, the others while there is no leader.
    clients.gates[0].set()
    cluster.kill(leader)
    clients.gates[1].set()
    clients.finish()
    clients.check()


class Nodes:
    """A cluster with an idle worker, a busy worker and a submitter at different nodes."""

    def __init__(self, cluster: Cluster) -> None:
        addresses = gearman_ports(cluster)
        self.cluster = cluster
        self.leader = cluster.leader()
        self.first, self.second = (number for number in range(3) if number != self.leader)
        self._addresses = addresses
        self._clients: list[Packets] = []

    def client(self, number: int) -> Packets:
        """Connect to a node."""
        self._clients.append(Packets(self._addresses[number]))
        return self._clients[-1]

    def worker(self, number: int) -> Packets:
        """Connect to a node as a worker for the function."""
        client = self.client(number)
        client.send(CAN_DO, FUNCTION)
        return client

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with Cluster(tmp_path / "cluster", settings=IMPATIENT).running() as cluster:
        found = Nodes(cluster)
        try:
            yield found
        finally:
            found.close()


def asleep(worker: Packets) -> None:
    """Let a worker find no job and sleep."""
    assert worker.ask(GRAB_JOB)[0] == NO_JOB
    worker.send(PRE_SLEEP)


@pytest.mark.parametrize("dies", ["follower", "leader"])
def test_the_node_of_a_worker_dies(nodes: Nodes, dies: str) -> None:
    """Another worker is woken and gets the job; the submitter gets one result."""
    dying = nodes.leader if dies == "leader" else nodes.first
    submitter, busy, idle = nodes.client(nodes.second), nodes.worker(dying), None
    kind, [handle] = submitter.ask(SUBMIT_JOB, FUNCTION, b"", b"x")
    assert kind == JOB_CREATED
    assigned = wait_until(lambda: grabbed(busy), TIMEOUT_S, "the job")
    assert assigned == [handle, FUNCTION, b"x"]
    busy.send(WORK_STATUS, handle, b"3", b"4")
    assert submitter.receive() == (WORK_STATUS, [handle, b"3", b"4"])
    idle = nodes.worker(nodes.second)
    asleep(idle)
    nodes.cluster.kill(dying)
    assert idle.receive()[0] == NOOP
    assert wait_until(lambda: grabbed(idle), TIMEOUT_S, "the job again") == assigned
    status = submitter.ask(GET_STATUS, handle)
    assert status == (STATUS_RES, [handle, b"1", b"1", b"0", b"0"]), "its progress begins anew"
    idle.send(WORK_COMPLETE, handle, b"done")
    assert submitter.receive() == (WORK_COMPLETE, [handle, b"done"])
    status = submitter.ask(GET_STATUS, handle)
    assert status == (STATUS_RES, [handle, b"0", b"0", b"0", b"0"])


def test_the_node_of_the_submitters_dies(nodes: Nodes) -> None:
    """Their own foreground jobs never run; background jobs and jobs shared with others do."""
    gone, other = nodes.client(nodes.first), nodes.client(nodes.second)
    handles = []
    for client, kind, unique in (
        (gone, SUBMIT_JOB, b"wanted-by-nobody"),
        (gone, SUBMIT_JOB, b"wanted-by-two"),
        (gone, SUBMIT_JOB_BG, b"background"),
        (gone, SUBMIT_JOB, b"background"),
        (other, SUBMIT_JOB, b"wanted-by-two"),
    ):
        created, [handle] = client.ask(kind, FUNCTION, unique, unique)
        assert created == JOB_CREATED
        handles.append(handle)
    unwanted, shared, background, same, again = handles
    assert (same, again) == (background, shared)
    nodes.cluster.kill(nodes.first)

    def is_known(handle: bytes) -> bool:
        return other.ask(GET_STATUS, handle)[1][1] == b"1"

    wait_until(lambda: not is_known(unwanted), TIMEOUT_S, "the unwanted job is gone")
    assert is_known(shared) and is_known(background)
    worker = nodes.worker(nodes.second)
    for handle in (shared, background):
        assert wait_until(lambda: grabbed(worker), TIMEOUT_S, "a job")[0] == handle
        worker.send(WORK_COMPLETE, handle, b"done")
    assert other.receive() == (WORK_COMPLETE, [shared, b"done"])
    assert worker.ask(GRAB_JOB)[0] == NO_JOB


def grabbed(worker: Packets) -> list[bytes]:
    """Ask for a job; return an empty list if there is none."""
    kind, found = worker.ask(GRAB_JOB)
    return found if kind == JOB_ASSIGN else []
