"""The touches of a job while its node is silent, and the clock of the worker."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any, cast

import pytest

from beanpole.client import worker as workers
from beanpole.client.backoff import Backoff
from beanpole.client.blocking import Client, DeniedError
from beanpole.client.lease import WAITS_PER_REST, Lease
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.shapes import Job
from beanpole.client.sansio.steps import Endpoint, Steps
from beanpole.client.worker import Bury, Task, Worker
from tests.unit.client.kept import A, B, Cluster, keeping
from tests.unit.client.pretended import World
from tests.unit.client.test_worker import FakeClient

JOB = 7
DONE_S = 10


class Silent:
    """A client whose touches hang with its node."""

    def __init__(self) -> None:
        self.held = (JOB,)
        self.is_kept = True
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
    return Lease(cast(Client[bytes], client), task, ttr_s, time.monotonic(), 0, 0.0)


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


@pytest.mark.parametrize("ttr_s", [600, 0])
def test_a_touch_comes_before_a_kept_session_ends(silent: Silent, ttr_s: int) -> None:
    """It resumes the session after the loss of a node, however long the TTR is."""
    silent.answers.set()
    task = Task(JOB, b"", "mail", 1)
    with Lease(cast(Client[bytes], silent), task, ttr_s, time.monotonic(), 1, 0.0):
        assert silent.touched.wait(DONE_S)
    assert not task.lost.is_set()


def test_a_job_without_a_ttr_is_touched_at_leisure(silent: Silent) -> None:
    silent.answers.set()
    task = Task(JOB, b"", "mail", 1)
    with Lease(cast(Client[bytes], silent), task, 0, time.monotonic(), 60, 0.0):
        assert not task.lost.wait(1)
    assert not silent.touched.is_set()


@pytest.mark.parametrize(
    ("ttr_s", "keep_s", "reply_s", "period_s", "wait_s"),
    [
        (60, 60, 0.1, 30, 12),
        (7200, 300, 0.1, 30, 60),
        (7200, 8, 0.1, 4, 1.6),
        (3, 60, 0.1, 1.5, 1),
        (3, 60, 1.2, 1.5, 3.6),  # a node that is far away
        (600, 1, 1.2, 0.5, 3.6),
        (60, 0, 0.1, 30, 60),  # the job ends with the connection
        (600, 0, 0.1, 30, 600),
    ],
)
def test_how_often_a_job_is_touched_and_how_long_a_node_is_waited_for(
    silent: Silent, ttr_s: int, keep_s: int, reply_s: float, period_s: float, wait_s: float
) -> None:
    now, task = time.monotonic(), Task(JOB, b"", "mail", 1)
    silent.is_kept = keep_s > 0
    lease = Lease(cast(Client[bytes], silent), task, ttr_s, now, keep_s, reply_s)
    assert lease._period_s == period_s
    assert wait_s - 0.5 < lease._wait_s() <= wait_s


def test_a_job_whose_handler_has_ended_is_lost_only_where_the_cluster_says_so(
    silent: Silent,
) -> None:
    task = Task(JOB, b"", "mail", 1)
    silent.answers.set()
    lease = lease_of(silent, task, 1)

    def late(_: float) -> str:
        # The touches wait for the end of this.
        assert not task.lost.wait(2)
        return "deleted"

    with lease:
        assert lease.end(late) == "deleted"
    assert not task.lost.is_set()


class Hung(FakeClient):
    """Holds a job with a TTR of a second, whose touches hang until the handler has been told."""

    def __init__(self, ended: "Queue[str]", told: threading.Event) -> None:
        super().__init__(ended, 0, 1)
        self.counters = self.counters | {"ttr": 1, "time-left": 1}
        self._told = told

    def touch(self, _: int, *, wait_s: float) -> None:
        assert self._told.wait(4 * DONE_S)


@pytest.mark.parametrize(
    ("error", "end", "words"),
    [
        (None, "released", "knew of its loss: the job is released"),
        (RuntimeError("another worker has the job"), "released", "is tried again in 0 s"),
        (Bury("an empty mail"), "buried", "is buried"),
    ],
)
def test_a_job_that_only_the_clock_takes_for_lost_is_not_held_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
    end: str,
    words: str,
) -> None:
    """Its touch was confirmed late. A handler that gives up for the loss has not failed.

    One that was told and returns may have finished or given up: the job must not be lost.
    """
    ended: Queue[str] = Queue()
    told = threading.Event()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: Hung(ended, told))
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail", backoff=Backoff(tries=1))
    def handle(task: Task) -> None:
        assert task.lost.wait(DONE_S)
        told.set()
        worker.stop()
        if error is not None:
            raise error

    worker.run(handle_signals=False)
    assert ended.get_nowait() == end
    assert words in caplog.text
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 0} | {end: 1}


def test_a_release_that_is_refused_is_not_told_as_done(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler knew of the loss by the clock, and the cluster has no such right any more."""

    class Refusing(Hung):
        def release(self, *_: object, **__: object) -> None:
            raise DeniedError

    told = threading.Event()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: Refusing(Queue(), told))
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail")
    def handle(task: Task) -> None:
        assert task.lost.wait(DONE_S)
        told.set()
        worker.stop()

    worker.run(handle_signals=False)
    assert "knew of its loss" in caplog.text and "is released" not in caplog.text
    assert worker.counts == {"deleted": 0, "released": 0, "buried": 0, "lost": 0}


def test_a_handler_that_was_not_told_has_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: Queue[str] = Queue()
    told = threading.Event()
    monkeypatch.setattr(workers, "Client", lambda *_, **__: Hung(ended, told))
    worker = Worker("127.0.0.1:1")

    @worker.handles("mail")
    def handle(task: Task) -> None:
        until = time.monotonic() + DONE_S
        while not lost(task) and time.monotonic() < until:
            pass
        told.set()
        worker.stop()

    def lost(task: Task) -> bool:
        return threading.Event.is_set(task.lost)  # as its handler would not ask

    worker.run(handle_signals=False)
    assert ended.get_nowait() == "deleted"


def test_a_lease_whose_second_thread_cannot_start_touches_nothing(
    silent: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name == f"watch-{JOB}":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail)
    with (
        pytest.raises(RuntimeError, match="new thread"),
        lease_of(silent, Task(JOB, b"", "mail", 1), 60),
    ):
        pytest.fail("it has begun")
    assert f"touch-{JOB}" not in {thread.name for thread in threading.enumerate()}


ENDS: list[Callable[[Commands[str], Job[str], float | None], Steps[None]]] = [
    lambda commands, job, wait_s: commands.touch(job, wait_s),
    lambda commands, job, wait_s: commands.delete(job, wait_s),
    lambda commands, job, wait_s: commands.release(job, 1, 0, wait_s),
    lambda commands, job, wait_s: commands.bury(job, 1, wait_s),
]


@pytest.mark.parametrize("end", ENDS)
def test_a_command_leaves_a_silent_node_in_time_and_its_job_is_kept(
    world: World, cluster: Cluster, told: list[int], end: Any
) -> None:
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))
    world.nodes[A] = lambda _: None
    began = world.now
    world.run(end(commands, job, 1.0))
    assert world.now - began < 2
    assert commands.session.at == B
    assert not told
    assert (job.id in commands.session.held) == (end is ENDS[0])


def test_two_silent_nodes_of_five_leave_time_for_a_third(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    for name in "cde":
        world.nodes[Endpoint(name, 1)] = cluster
    commands = world.client("a:1,b:1,c:1,d:1,e:1", keep_s=60)
    commands.session.lost = told.extend
    job = world.run(commands.reserve(1))
    world.nodes[A] = world.nodes[B] = lambda _: None
    began, rest_s = world.now, 18.0
    world.run(commands.touch(job, rest_s / WAITS_PER_REST))
    assert world.now - began < rest_s
    assert not told


@pytest.mark.parametrize("end", ENDS)
def test_the_time_of_a_command_is_not_that_of_the_next_one(
    world: World, cluster: Cluster, told: list[int], end: Any
) -> None:
    commands = keeping(world, told)
    world.run(end(commands, world.run(commands.reserve(1)), 1.0))
    job = world.run(commands.reserve(1))
    world.nodes[A] = lambda _: None
    began = world.now
    world.run(end(commands, job, None))
    assert world.now - began >= 15
    waits = commands.session.waits
    assert (waits.reply_s, waits.connect_s) == (15.0, 2.0)


def test_a_cluster_that_is_slow_at_each_node_is_waited_for_in_the_end(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))

    def slow(data: bytes) -> bytes | None:
        return cluster(data) if commands.session.waits.reply_s >= 5 else None

    world.nodes[A] = world.nodes[B] = slow
    world.run(commands.delete(job, 1.0))
    assert not any(cluster.sessions.values())


def test_waits_that_are_limited_stay_so(world: World, cluster: Cluster, told: list[int]) -> None:
    """A worker that stops meets nodes that hang, each for 15 s."""
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))
    commands.session.waits.limit(1.0)
    world.nodes[A] = lambda _: None
    for _ in range(2):
        began = world.now
        world.run(commands.touch(job, 60.0))
        assert world.now - began < 2
        world.nodes[A], world.nodes[B] = world.nodes[B], world.nodes[A]


@pytest.mark.parametrize("wait_s", [0, -1, math.nan])
def test_a_time_that_is_not_above_0_is_refused(
    world: World, cluster: Cluster, told: list[int], wait_s: float
) -> None:
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))
    with pytest.raises(ValueError, match="wait_s must be above 0"):
        world.run(commands.touch(job, wait_s))
    with pytest.raises(ValueError, match="wait_s must be above 0"):
        commands.session.waits.limit(wait_s)
    world.run(commands.touch(job))
