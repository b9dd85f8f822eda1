"""Pipelined reserves at one of three nodes: the order of the jobs, and the cost in entries."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.integration.support.nodes import Cluster, status
from tests.integration.support.queues import settle
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until

RESERVES = 100
RESERVE = b"reserve\r\n"


@pytest.fixture
def follower(shared: Cluster) -> str:
    """The address of a follower of a cluster without jobs, at the newest machine version."""
    address = shared.nodes[shared.followers()[0]].beanstalk
    settle(address)

    def raised() -> bool:
        nodes = status(shared.nodes[0])["nodes"]
        # A node that does not answer in time has no version here.
        return all(node.get("machine_version", 0) >= 3 for node in nodes)

    wait_until(raised, 60, "machine version 3")
    return address


@contextmanager
def filled(address: str, count: int) -> Iterator[tuple[Raw, list[int]]]:
    """A client, and the ids of ready jobs that it has put."""
    with Raw(address) as client:
        client.send(b"".join(b"put 0 0 60 1\r\nx\r\n" for _ in range(count)))
        yield client, [int(client.line().removeprefix(b"INSERTED ")) for _ in range(count)]


def expect_jobs(client: Raw, jobs: list[int]) -> None:
    """Receive these jobs in this order."""
    client.expect(*(line for job in jobs for line in (b"RESERVED %d 1" % job, b"x")))


def applied(cluster: Cluster) -> int:
    """Return the highest index that any node has applied."""
    nodes = status(cluster.nodes[0])["nodes"]
    return max(int(node["applied_index"]) for node in nodes if node["reachable"])


def test_a_job_for_each_in_a_few_entries(shared: Cluster, follower: str) -> None:
    with filled(follower, RESERVES) as (client, jobs):
        before = applied(shared)
        client.send(RESERVES * RESERVE)
        expect_jobs(client, jobs)
        # One entry with all TAKEs, besides those for time and digests; not an entry for each job.
        assert applied(shared) - before < RESERVES // 4
        client.send(b"".join(b"delete %d\r\n" % job for job in jobs))
        client.expect(*[b"DELETED"] * RESERVES)


def test_puts_wake_those_for_which_there_was_no_job(shared: Cluster, follower: str) -> None:
    half = RESERVES // 2
    other = shared.nodes[shared.leader()].beanstalk
    with filled(follower, half) as (client, jobs):
        client.send(RESERVES * RESERVE + b"".join(b"delete %d\r\n" % job for job in jobs))
        expect_jobs(client, jobs)
        client.expect_silence(0.2)
        with filled(other, half) as (_, later):
            expect_jobs(client, later)
            client.expect(*[b"DELETED"] * half)
            client.send(b"".join(b"delete %d\r\n" % job for job in later))
            client.expect(*[b"DELETED"] * half)


def test_deletes_in_between_and_behind(follower: str) -> None:
    """The ids are dense, so a client can delete a job before its reserve is answered."""
    with filled(follower, RESERVES) as (client, jobs):
        rows = [jobs[place : place + 10] for place in range(0, RESERVES, 10)]
        for row in rows:
            client.send(RESERVE * len(row) + b"".join(b"delete %d\r\n" % job for job in row))
        for row in rows:
            expect_jobs(client, row)
            client.expect(*[b"DELETED"] * len(row))


def test_a_client_that_breaks_off_keeps_no_job(follower: str) -> None:
    with filled(follower, RESERVES) as (client, jobs), Raw(follower) as watcher:
        client.send(RESERVES * RESERVE)
        client.close()
        with Raw(follower) as other:
            for job in jobs:
                other.ask(b"reserve-with-timeout 5", b"RESERVED %d 1" % job, b"x")
                other.ask(b"delete %d" % job, b"DELETED")
        wanted = {"current-jobs-ready": "0", "current-jobs-reserved": "0"}
        stats = watcher.dictionary(b"stats")
        assert {key: stats[key] for key in wanted} == wanted


def test_two_clients_share_what_is_ready(shared: Cluster, follower: str) -> None:
    """Both nodes see the same ready jobs; each job is reserved once."""
    other = shared.nodes[shared.leader()].beanstalk
    with filled(follower, RESERVES) as (client, jobs), Raw(other) as rival:
        rival.ask(b"watch default", b"WATCHING 1")
        half = RESERVES // 2
        for one in (client, rival):
            one.send(RESERVE * half)
        found = []
        for one in (client, rival):
            mine = [one.reply()[0] for _ in range(half)]
            assert mine == sorted(mine, key=lambda line: int(line.split()[1]))
            found += [int(line.split()[1]) for line in mine]
            one.send(b"".join(b"delete %d\r\n" % job for job in found[-half:]))
            one.expect(*[b"DELETED"] * half)
        assert sorted(found) == jobs
