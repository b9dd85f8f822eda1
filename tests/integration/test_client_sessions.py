"""Kept sessions and puts with keys against real nodes that are killed.

The commands themselves are tested in `tests/unit/protocol/test_extensions.py`; simulations of many
clients that keep their sessions are in `tests/sim/keepers.py`.
"""

import time
from types import ModuleType

import greenstalk
import pytest

from beanpole.client import aio, blocking
from tests.integration.support.drop_in import maker
from tests.integration.support.nodes import QUICK, Cluster
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

PATIENCE_S = 30.0
TTR_S = 60


@pytest.fixture(params=[blocking, aio], ids=lambda one: one.__name__)
def module(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def from_here(cluster: Cluster, number: int) -> list[str]:
    """Return all addresses, beginning with the given node's."""
    addresses = [node.beanstalk for node in cluster.nodes]
    return [addresses.pop(number), *addresses]


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_worker_whose_node_is_killed_keeps_its_job(
    module: ModuleType, quick: Cluster, victim: str
) -> None:
    """A worker with plain greenstalk at the same node loses its job at the node's time-out."""
    number = quick.leader() if victim == "leader" else quick.followers()[0]
    mine = from_here(quick, number)
    host, _, port = mine[0].rpartition(":")
    make = maker(module)
    named = {"use": "work", "watch": "work", "spread": False, "patience_s": PATIENCE_S}
    with (
        make(mine, keep=TTR_S, **named) as worker,
        greenstalk.Client((host, int(port)), use="work", watch="work") as plain,
        make(mine[1:], **named) as rival,
    ):
        assert worker.is_kept
        told: list[int] = []
        worker.on_lost(told.extend)
        job, other = worker.put("kept", ttr=TTR_S), worker.put("given back", ttr=TTR_S)
        assert worker.reserve(timeout=5).id == job
        assert plain.reserve(timeout=5).id == other
        # The node forwards this command to the leader, so the leader's time-out begins later.
        alive_s = time.monotonic()
        plain.touch(greenstalk.Job(other, ""))
        quick.kill(number)
        assert rival.reserve(timeout=30).id == other
        assert time.monotonic() - alive_s >= QUICK["node_timeout_ms"] / 1000
        # So the node was declared down, and the kept session's job is still reserved.
        stats = rival.stats_job(job)
        assert (stats["state"], stats["reserves"]) == ("reserved", 1)
        worker.touch(blocking.Job(job, "kept"))
        worker.delete(job)
        rival.delete(other)
        assert told == []
        with pytest.raises(module.NotFoundError):
            rival.peek(job)


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
            worker.ask(b"keep " + token + b" 5", b"KEPT")
            worker.ask(b"watch gone", b"WATCHING 2")
            # Other tests have left jobs in `default`.
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
    module: ModuleType, quick: Cluster
) -> None:
    leader = quick.leader()
    mine = from_here(quick, leader)
    tube = f"once-{module.__name__}"
    before, after = f"{tube}-1", f"{tube}-2"
    make = maker(module)
    named = {"use": tube, "watch": tube, "spread": False, "patience_s": PATIENCE_S}
    with make(mine, **named) as one, make(mine[1:], **named) as other:
        job = one.put("x", key=before)
        quick.kill(leader)
        assert one.put("x", key=before) == other.put("x", key=before) == job
        numbers = [client.put("y", key=after) for client in (other, one)]
        assert numbers[0] == numbers[1] > job
        assert other.stats_tube(tube)["total-jobs"] == 2
