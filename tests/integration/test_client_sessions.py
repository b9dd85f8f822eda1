"""Kept sessions and puts with keys against real nodes that are killed.

The words by themselves are in `tests/unit/protocol/test_extensions.py`, lives of many clients that
keep their sessions in `tests/sim/keepers.py`.
"""

from pathlib import Path
from types import ModuleType

import greenstalk
import pytest

from beanpole.client import aio, blocking
from tests.integration.support.drop_in import maker
from tests.integration.support.nodes import Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.reference import Beanstalkd
from tests.integration.support.waiting import wait_until

PATIENCE_S = 30.0
TTR_S = 60


@pytest.fixture(params=[blocking, aio], ids=lambda one: one.__name__)
def module(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def from_here(cluster: Cluster, number: int) -> list[str]:
    """All addresses, that of one node first."""
    addresses = [node.beanstalk for node in cluster.nodes]
    return [addresses.pop(number), *addresses]


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_worker_whose_node_is_killed_keeps_its_job(
    module: ModuleType, cluster: Cluster, victim: str
) -> None:
    number = cluster.leader() if victim == "leader" else cluster.followers()[0]
    mine = from_here(cluster, number)
    make = maker(module)
    named = {"use": "work", "watch": "work", "spread": False, "patience_s": PATIENCE_S}
    with make(mine, keep=TTR_S, **named) as worker, make(mine[1:], **named) as rival:
        assert worker.is_kept
        told: list[int] = []
        worker.on_lost(told.extend)
        job = worker.put("x", ttr=TTR_S)
        assert worker.reserve(timeout=5).id == job
        cluster.kill(number)
        # Longer than the cluster takes to declare the node down and give its jobs out again.
        with pytest.raises(module.TimedOutError):
            rival.reserve(timeout=10)
        stats = rival.stats_job(job)
        assert (stats["state"], stats["reserves"]) == ("reserved", 1)
        worker.touch(blocking.Job(job, "x"))
        worker.delete(job)
        assert told == []
        with pytest.raises(module.NotFoundError):
            rival.peek(job)


def test_with_greenstalk_it_is_given_out_again(cluster: Cluster) -> None:
    number = cluster.followers()[0]
    mine, other = (address.rpartition(":") for address in from_here(cluster, number)[:2])
    with (
        greenstalk.Client((mine[0], int(mine[2])), use="work", watch="work") as worker,
        greenstalk.Client((other[0], int(other[2])), watch="work") as rival,
    ):
        job = worker.put("x", ttr=TTR_S)
        assert worker.reserve(timeout=5).id == job
        cluster.kill(number)
        assert rival.reserve(timeout=30).id == job
        rival.delete(job)


def test_a_worker_that_says_goodbye_gives_its_jobs_back(
    module: ModuleType, shared: Cluster
) -> None:
    addresses = [node.beanstalk for node in shared.nodes]
    make = maker(module)
    with make(addresses, use="bye", watch="bye") as rival:
        with make(addresses, watch="bye", keep=300) as worker:
            job = rival.put("x", ttr=TTR_S)
            assert worker.reserve(timeout=5).id == job
        assert rival.reserve(timeout=10).id == job
        rival.delete(job)


def test_one_that_does_not_come_back_is_waited_for(shared: Cluster) -> None:
    token = b"a-token-of-a-test-0001"
    with Raw(shared.nodes[0].beanstalk) as rival:
        rival.ask(b"watch gone", b"WATCHING 2")
        rival.ask(b"use gone", b"USING gone")
        with Raw(shared.nodes[1].beanstalk) as worker:
            worker.ask(b"keep " + token + b" 2", b"KEPT")
            worker.ask(b"watch gone", b"WATCHING 2")
            # Other tests have left jobs there.
            worker.ask(b"ignore default", b"WATCHING 1")
            rival.send(b"put 0 0 60 1\r\nx\r\n")
            job = rival.line().split(b" ")[1]
            worker.send(b"reserve-with-timeout 10\r\n")
            assert worker.line() == b"RESERVED " + job + b" 1"
        rival.ask(b"reserve-job " + job, b"NOT_FOUND")
        wait_until(
            lambda: rival.command(b"reserve-job " + job)[0].startswith(b"RESERVED"), 30, "its end"
        )
        rival.ask(b"delete " + job, b"DELETED")
        rival.ask(b"resume " + token, b"NOT_FOUND")


def test_the_same_key_at_two_nodes_while_the_leader_dies(
    module: ModuleType, cluster: Cluster
) -> None:
    leader = cluster.leader()
    mine = from_here(cluster, leader)
    make = maker(module)
    named = {"use": "once", "watch": "once", "spread": False, "patience_s": PATIENCE_S}
    with make(mine, **named) as one, make(mine[1:], **named) as other:
        before = one.put("x", key="order-1")
        cluster.kill(leader)
        assert one.put("x", key="order-1") == other.put("x", key="order-1") == before
        numbers = [client.put("y", key="order-2") for client in (other, one)]
        assert numbers[0] == numbers[1] > before
        assert other.stats_tube("once")["total-jobs"] == 2


def test_plain_beanstalkd_has_neither(module: ModuleType, tmp_path: Path) -> None:
    server = Beanstalkd(tmp_path)
    with maker(module)(server.address, keep=60) as client:
        assert not client.is_kept
        with pytest.raises(module.NotAvailableError):
            client.put("delete 1", key="k")
        assert client.stats()["current-jobs-ready"] == 0
    server.close()
