"""The touches of a job while its node is silent, and the clock of the worker."""

import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from beanpole.client.blocking import Client
from beanpole.client.lease import Lease
from beanpole.client.worker import Task
from tests.unit.client.kept import A, B, Cluster, keeping
from tests.unit.client.pretended import World

JOB = 7
DONE_S = 10


class Silent:
    """A client whose touches hang with its node."""

    def __init__(self) -> None:
        self.held = (JOB,)
        self.answers = threading.Event()
        self.touched = threading.Event()

    def on_lost(self, _: Any) -> None:
        pass

    def touch(self, _: int, *, wait_s: float) -> None:
        self.touched.set()
        assert self.answers.wait(4 * DONE_S)


@pytest.fixture
def silent() -> Iterator[Silent]:
    client = Silent()
    yield client
    client.answers.set()


def lease_of(client: Silent, task: Task, ttr_s: int) -> Lease:
    return Lease(cast(Client[bytes], client), task, ttr_s, time.monotonic() + ttr_s)


def test_a_handler_is_told_when_its_ttr_is_over_although_a_touch_hangs(silent: Silent) -> None:
    task = Task(JOB, b"", "mail", 1)
    began = time.monotonic()
    lease = lease_of(silent, task, 1)
    with lease:
        try:
            assert task.lost.wait(DONE_S)
            assert time.monotonic() - began >= 1
            assert silent.touched.is_set()
        finally:
            silent.answers.set()


def test_a_confirmed_touch_is_counted_from_before_its_request(silent: Silent) -> None:
    """The reply may come late, and the TTR runs at the cluster meanwhile."""
    task = Task(JOB, b"", "mail", 1)
    lease = lease_of(silent, task, 2)
    began = time.monotonic()
    with lease:
        assert silent.touched.wait(DONE_S)
        assert not task.lost.wait(0.5)
        silent.answers.set()
        assert not task.lost.wait(3)
        assert time.monotonic() - began > 2, "the touch extended it"


def test_a_job_whose_handler_has_ended_is_lost_only_where_the_cluster_says_so(
    silent: Silent,
) -> None:
    task = Task(JOB, b"", "mail", 1)
    silent.answers.set()
    lease = lease_of(silent, task, 1)

    def late() -> str:
        # The touches wait for the end of this.
        assert not task.lost.wait(2)
        return "deleted"

    with lease:
        assert lease.end(late) == "deleted"
    assert not task.lost.is_set()


def test_a_touch_leaves_a_silent_node_in_time_and_keeps_the_job(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))
    world.nodes[A] = lambda _: None
    began = world.now
    world.run(commands.touch(job, 1.0))
    assert world.now - began < 2
    assert commands.session.at == B
    assert not told
    assert job.id in commands.session.held


def test_the_time_of_a_touch_is_not_that_of_the_next_command(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))
    world.run(commands.touch(job, 1.0))
    world.nodes[A] = lambda _: None
    began = world.now
    world.run(commands.delete(job))
    assert world.now - began >= 15
