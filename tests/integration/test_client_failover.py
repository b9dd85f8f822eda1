"""Beanpole's own clients while nodes are killed and restarted: real sockets, real nodes.

The single cases, without sockets, are in `tests/unit/client/test_sansio.py`.
"""

import asyncio
import signal
from contextlib import ExitStack
from types import ModuleType
from typing import Any

import pytest

from beanpole.client import aio, blocking
from beanpole.client.sansio import session
from tests.integration.support.drop_in import maker
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

PATIENCE_S = 30.0


@pytest.fixture(params=[blocking, aio], ids=lambda one: one.__name__)
def module(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def number_of(cluster: Cluster, client: Any) -> int:
    return [node.beanstalk for node in cluster.nodes].index(client.node)


def test_the_leader_is_killed(
    module: ModuleType, quick: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's client continues at another node, and returns when the old leader is back."""
    monkeypatch.setattr(session, "RETURN_MIN_S", 0.0)
    leader = quick.leader()
    home = quick.nodes[leader].beanstalk
    others = [node.beanstalk for node in quick.nodes if node.beanstalk != home]
    make, tube = maker(module), f"home-{module.__name__}"
    with make(
        [home, *others], use=tube, watch=[tube], spread=False, patience_s=PATIENCE_S
    ) as client:
        assert number_of(quick, client) == leader
        before = client.put("before")
        quick.kill(leader)
        assert client.peek(before).body == "before"
        assert number_of(quick, client) != leader
        assert (client.using(), client.watching()) == (tube, [tube])
        job = client.reserve(timeout=10)
        assert job.id == before
        client.delete(job)
        after = client.put("after")
        quick.start(leader)
        quick.wait_until_serving(leader)
        wait_until(lambda: client.using() == tube and client.node == home, 60, "the way home")
        assert client.reserve(timeout=10).id == after
        client.delete(after)


def test_a_reservation_that_is_lost_is_told(module: ModuleType, quick: Cluster) -> None:
    follower = quick.followers()[0]
    addresses = [node.beanstalk for node in quick.nodes]
    addresses.insert(0, addresses.pop(follower))
    with maker(module)(addresses, spread=False, patience_s=PATIENCE_S) as client:
        job = client.put("x", ttr=60)
        assert client.reserve(timeout=5).id == job
        told: list[int] = []
        client.on_lost(told.extend)
        quick.kill(follower)
        with pytest.raises(module.NotFoundError):
            client.touch(blocking.Job(job, "x"))
        assert told == [job]
        # The job is reserved again once the node counts as down, and not before.
        assert client.reserve(timeout=30).id == job
        client.delete(job)


def test_a_put_that_nobody_answers_is_said_to_be_open(module: ModuleType, quick: Cluster) -> None:
    addresses = [node.beanstalk for node in quick.nodes]
    # Long enough for the commands by which the client begins, on a slow machine.
    with maker(module)(addresses, reply_timeout_s=3, patience_s=3) as client, ExitStack() as stack:
        for number in range(3):
            process = quick.process(number)
            process.signal(signal.SIGSTOP)
            stack.callback(process.signal, signal.SIGCONT)
        with pytest.raises(module.MayBeDoneError):
            client.put("x")
        with pytest.raises(ConnectionError):
            client.peek(1)


def test_a_cancelled_reserve_leaves_a_client_that_works(shared: Cluster) -> None:
    async def story() -> None:
        addresses = [node.beanstalk for node in shared.nodes]
        async with aio.Client(addresses, use="cancelled", watch="cancelled") as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.reserve(), 0.2)
            job = await client.put("x")
            assert (await client.reserve(timeout=10)).id == job
            await client.delete(job)

    asyncio.run(story())


def test_a_unix_socket(module: ModuleType, shared: Cluster) -> None:
    with maker(module)(shared.unix_address(0), use="u", watch="u") as client:
        job = client.put("x")
        assert client.reserve(timeout=10).id == job
        client.delete(job)
