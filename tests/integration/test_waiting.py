"""Many waiting clients: jobs return from idle connections, and polls add nothing to the log.

With TEST_FULL=1 there are 10,000 connections, which wait longer.
"""

import os
import resource
import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.support.nodes import STEADY, Cluster, status
from tests.integration.support.queues import settle
from tests.integration.support.raw import Raw, connect
from tests.integration.support.waiting import wait_until

IDLE_CONNECTIONS = 40
WAITERS, POLL_SECONDS, POLLS = (10_000, 5, 4) if "TEST_FULL" in os.environ else (2000, 2, 3)
TIMES = 3
DESCRIPTORS_SPARE = 256
TIMEOUT_S = 60.0


def test_jobs_return_from_idle_connections(shared: Cluster) -> None:
    addresses = [node.beanstalk for node in shared.nodes]
    settle(addresses[0])
    with ExitStack() as stack:
        watcher = stack.enter_context(Raw(addresses[0]))
        jobs = [watcher.put(b"idle", ttr_s=1) for _ in range(IDLE_CONNECTIONS)]
        for number in range(IDLE_CONNECTIONS):
            worker = stack.enter_context(Raw(addresses[number % len(addresses)]))
            assert worker.command(b"reserve")[0].startswith(b"RESERVED ")
        expected = str(IDLE_CONNECTIONS)

        def all_ready() -> bool:
            return watcher.dictionary(b"stats-tube default")["current-jobs-ready"] == expected

        wait_until(all_ready, TIMEOUT_S, f"{expected} of {expected} jobs are back")
        stats = [watcher.dictionary(b"stats-job %d" % job) for job in jobs]
    # Each reservation timed out exactly once. On a slow machine a job returns before the last
    # worker reserves one.
    assert sum(int(job["timeouts"]) for job in stats) == IDLE_CONNECTIONS
    assert all(job["timeouts"] == job["reserves"] for job in stats)


def wait_for_waiting(connection: Raw, count: int) -> None:
    """Wait until this number of the node's clients wait for jobs."""
    wait_until(
        lambda: connection.dictionary(b"stats")["current-waiting"] == str(count),
        TIMEOUT_S,
        f"{count} waiting clients",
    )


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_first_come_first_served(shared: Cluster, role: str) -> None:
    number = shared.leader() if role == "leader" else shared.followers()[0]
    address = shared.nodes[number].beanstalk
    settle(address)
    with ExitStack() as stack:
        giver = stack.enter_context(Raw(address))
        waiters: list[Raw] = []
        # beanstalkd serves six waiting clients in the order 1, 2, 3, 6, 5, 4.
        for count in range(1, 7):
            waiters.append(stack.enter_context(Raw(address)))
            waiters[-1].send(b"reserve\r\n")
            wait_for_waiting(giver, count)
        jobs = [giver.put(b"%d" % place) for place in range(len(waiters))]
        for place, (job, waiter) in enumerate(zip(jobs, waiters, strict=True)):
            waiter.expect(b"RESERVED %d 1" % job, b"%d" % place)


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Raise this process's limit of open files to the number that the test needs."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WAITERS + DESCRIPTORS_SPARE
    assert before[1] == resource.RLIM_INFINITY or before[1] >= wanted, "ulimit -Hn is too low"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], wanted), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes for one test: in a shared cluster a timer of an earlier test could become due.

    None of them is fenced, which would end its clients.
    """
    with Cluster(tmp_path / "quiet", settings=STEADY).running() as cluster:
        yield cluster


def commit_index(cluster: Cluster) -> int:
    """Return the commit index if it is the same at all nodes, else 0."""
    found = {node.get("commit_index", 0) for node in status(cluster.nodes[0])["nodes"]}
    return found.pop() if len(found) == 1 else 0


class Pollers:
    """Connections that poll again as soon as a reserve times out."""

    def __init__(self, stack: ExitStack, addresses: list[str]) -> None:
        self.timeouts = [0] * WAITERS
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._command = b"reserve-with-timeout %d\r\n" % POLL_SECONDS
        for number in range(WAITERS):
            stream = stack.enter_context(connect(addresses[number % len(addresses)]))
            self._selector.register(stream, selectors.EVENT_READ, (stream, number))
            stream.sendall(self._command)

    def run(self, polls: int) -> None:
        """Answer each TIMED_OUT with the next poll, until every client has had this number."""
        end = time.monotonic() + TIMEOUT_S
        while min(self.timeouts) < polls:
            assert time.monotonic() < end, f"{min(self.timeouts)} of {polls} polls"
            for key, _ in self._selector.select(POLL_SECONDS):
                stream, number = key.data
                assert stream.recv(64) == b"TIMED_OUT\r\n"
                self.timeouts[number] += 1
                stream.sendall(self._command)


@pytest.mark.usefixtures("descriptors")
def test_polling_writes_nothing_to_the_log(quiet: Cluster) -> None:
    addresses = [node.beanstalk for node in quiet.nodes]
    with ExitStack() as stack:
        pollers = Pollers(stack, addresses)
        # After the first poll of each all sessions exist.
        polls = 1
        pollers.run(polls)
        grown: list[int] = []
        # Once a minute there is a digest, and on a slow machine an election, but not each time.
        while 0 not in grown:
            assert len(grown) < TIMES, grown
            before = wait_until(lambda: commit_index(quiet), TIMEOUT_S, "the same at all nodes")
            polls += POLLS
            pollers.run(polls)
            after = wait_until(lambda: commit_index(quiet), TIMEOUT_S, "the same again")
            grown.append(after - before)
