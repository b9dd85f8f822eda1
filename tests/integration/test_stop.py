"""Stop a node while its clients work: they finish their jobs, and no job is reserved twice."""

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import greenstalk
import pytest

from beanpole.addresses import split_address
from tests.integration.support.nodes import Cluster, http_get, status
from tests.integration.support.processes import Process
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0
# Enough that in a rolling restart each node has workers with a job when it is stopped.
WORKERS = 6
JOBS = 24


def client(cluster: Cluster, number: int) -> Any:
    return greenstalk.Client(split_address(cluster.nodes[number].beanstalk))


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[Cluster]:
    """Nodes that wait for their clients longer than a slow machine takes for a test."""
    found = Cluster(tmp_path / "patient", settings={"drain_timeout_ms": 60_000})
    with found.running():
        yield found


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_worker_finishes_its_job_and_nobody_else_gets_it(patient: Cluster, victim: str) -> None:
    cluster = patient
    number = cluster.leader() if victim == "leader" else cluster.followers()[0]
    other = (number + 1) % 3
    process = cluster.process(number)
    with ExitStack() as stack:
        worker, rival = (stack.enter_context(client(cluster, at)) for at in (number, other))
        waiting = stack.enter_context(Raw(cluster.nodes[number].beanstalk))
        job = worker.put("x", ttr=60)
        assert worker.reserve(timeout=5).id == job
        waiting.send(b"watch other\r\nreserve\r\n")
        assert waiting.line() == b"WATCHING 2"
        process.signal(signal.SIGTERM)
        # The client without a job is closed between replies.
        with pytest.raises(ConnectionError):
            waiting.line()
        state = "stopping, waiting for 1 client to finish their jobs"
        node = cluster.nodes[number].http
        wait_until(lambda: state in http_get(node, "/readyz")[1], TIMEOUT_S, state)
        worker.touch(greenstalk.Job(job, "x"))
        assert worker.stats_job(job)["state"] == "reserved"
        with pytest.raises(greenstalk.TimedOutError):
            rival.reserve(timeout=0)
        # The worker can still put, but its next reserve closes it, so others get the jobs.
        more = worker.put("y")
        worker.delete(greenstalk.Job(job, "x"))
        with pytest.raises(ConnectionError):
            worker.reserve(timeout=5)
        assert process.wait(TIMEOUT_S) == 0, process.story()
        assert rival.reserve(timeout=50).id == more
        with pytest.raises(greenstalk.NotFoundError):
            rival.peek(job)
    wait_until(lambda: status(cluster.nodes[other])["leader"] is not None, TIMEOUT_S)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Cluster]:
    """Nodes that wait only 1.5 s for their clients."""
    found = Cluster(tmp_path / "hasty", settings={"drain_timeout_ms": 1500})
    with found.running():
        yield found


def test_a_limit_and_a_second_signal_end_it(hasty: Cluster, cluster: Cluster) -> None:
    for nodes, again, words in (
        (hasty, False, "the time to drain is over: the jobs of 1 client go to others"),
        (cluster, True, "told again to stop: the jobs of 1 client go to others"),
    ):
        process = nodes.process(0)
        with client(nodes, 0) as worker, client(nodes, 1) as rival:
            job = worker.put("x", ttr=60)
            assert worker.reserve(timeout=5).id == job
            process.signal(signal.SIGTERM)
            if again:
                said = partial(_says, process, "waiting up to 10 s")
                wait_until(said, TIMEOUT_S, "that it waits")
                process.signal(signal.SIGTERM)
            assert rival.reserve(timeout=20).id == job
            assert process.wait(TIMEOUT_S) == 0, process.story()
            assert words in process.log.read_text()


def _says(process: Process, words: str) -> bool:
    return words in process.log.read_text()


class Worker(threading.Thread):
    """A typical worker: reserves, works, deletes, and changes nodes when it is closed."""

    def __init__(self, cluster: Cluster, number: int, taken: dict[int, int]) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        self._at = number
        self._taken = taken
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with client(self._cluster, self._at % 3) as worker:
                    while not self.over.is_set():
                        self._work(worker)
            except (ConnectionError, greenstalk.TimedOutError):
                self._at += 1

    def _work(self, worker: Any) -> None:
        job = worker.reserve(timeout=1)
        self._taken[job.id] = self._taken.get(job.id, 0) + 1
        # The duration of the work, during which the node may be stopped.
        self.over.wait(0.4)
        worker.delete(job)


class Greedy(Worker):
    """A worker that reserves its next job before it deletes the last, so it always holds one."""

    def __init__(self, cluster: Cluster, number: int, taken: dict[int, int]) -> None:
        super().__init__(cluster, number, taken)
        self.hurries = threading.Event()

    def _work(self, worker: Any) -> None:
        held = [self._take(worker)]
        while held:
            with suppress(greenstalk.TimedOutError):
                held.append(self._take(worker))
            self.hurries.wait(0.1)
            worker.delete(held.pop(0))

    def _take(self, worker: Any) -> Any:
        job = worker.reserve(timeout=1)
        self._taken[job.id] = self._taken.get(job.id, 0) + 1
        return job


def test_a_worker_that_always_holds_a_job_does_not_hold_up_a_stop(cluster: Cluster) -> None:
    taken: dict[int, int] = {}
    with client(cluster, 1) as producer:
        # More jobs than the worker finishes before the limit of the drain.
        ids = [producer.put("x", ttr=60) for _ in range(200)]
    worker = Greedy(cluster, 0, taken)
    worker.start()
    try:
        wait_until(partial(taken.get, ids[2]), TIMEOUT_S, "a worker at work")
        process = cluster.process(0)
        process.signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, process.story()
        assert "the time to drain is over" not in process.log.read_text()
        assert len(taken) < len(ids)
        worker.hurries.set()
        wait_until(partial(taken.keys().__ge__, set(ids)), 60, "all jobs")
    finally:
        worker.hurries.set()
        worker.over.set()
        worker.join(TIMEOUT_S)
    assert set(taken.values()) == {1}


def test_a_rolling_restart_gives_no_job_to_two_workers(cluster: Cluster) -> None:
    taken: dict[int, int] = {}
    workers = [Worker(cluster, number, taken) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    try:
        for number in range(3):
            with client(cluster, (number + 1) % 3) as producer:
                ids = [producer.put("x", ttr=60) for _ in range(JOBS)]
            wait_until(partial(taken.get, ids[0]), TIMEOUT_S, "a worker at work")
            assert cluster.process(number).terminate() == 0
            cluster.start(number)
            cluster.wait_until_serving(number)
            wait_until(partial(taken.keys().__ge__, set(ids)), 60, "all jobs")
    finally:
        for worker in workers:
            worker.over.set()
        for worker in workers:
            worker.join(TIMEOUT_S)
    assert set(taken.values()) == {1}
