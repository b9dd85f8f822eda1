"""Unmodified third-party clients: greenstalk and pystalk through each node of a cluster.

Their own parsers judge the replies; the exact bytes are tested elsewhere.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import greenstalk
import pystalk
import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.queues import AGAINST_REFERENCE, settle
from tests.integration.support.reference import Beanstalkd
from tests.integration.support.waiting import wait_until


@pytest.fixture(params=[0, 1, 2], ids=["n0", "n1", "n2"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    """Host and port of one of three nodes, with no trace of earlier tests."""
    server: Beanstalkd | None = None
    if AGAINST_REFERENCE:
        server = Beanstalkd(tmp_path)
        address = server.address
    else:
        shared: Cluster = request.getfixturevalue("shared")
        address = shared.nodes[request.param].beanstalk
    settle(address)
    host, _, port = address.rpartition(":")
    try:
        yield host, int(port)
    finally:
        if server:
            server.close()


def test_greenstalk_jobs(place: tuple[str, int]) -> None:
    with greenstalk.Client(place, use="green", watch=["green"]) as client:
        assert (client.using(), client.watching()) == ("green", ["green"])
        number = client.put("grün", priority=7, delay=0, ttr=30)
        assert client.peek(number).body == client.peek_ready().body == "grün"
        job = client.reserve(timeout=5)
        assert (job.id, job.body) == (number, "grün")
        client.touch(job)
        stats = client.stats_job(job)
        assert (stats["tube"], stats["state"], stats["pri"], stats["ttr"]) == (
            "green",
            "reserved",
            7,
            30,
        )
        client.release(job, priority=8)
        client.bury(client.reserve(timeout=0), priority=9)
        assert client.peek_buried().id == number
        assert client.kick(10) == 1
        client.release(client.reserve_job(number), delay=60)
        assert client.peek_delayed().id == number
        client.kick_job(number)
        assert client.stats_job(number)["kicks"] == 2
        client.delete(client.reserve(timeout=0))
        with pytest.raises(greenstalk.NotFoundError):
            client.delete(number)
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)


def test_greenstalk_tubes(place: tuple[str, int]) -> None:
    with greenstalk.Client(place, encoding=None) as client:
        client.use("leaves")
        assert client.watch("leaves") == 2
        assert client.ignore("default") == 1
        with pytest.raises(greenstalk.NotIgnoredError):
            client.ignore("leaves")
        assert sorted(client.tubes()) == ["default", "leaves"]
        number = client.put(b"\x00\xff\r\n", priority=0)
        client.pause_tube("leaves", 3600)
        tube = client.stats_tube("leaves")
        assert (tube["name"], tube["pause"], tube["current-jobs-urgent"]) == ("leaves", 3600, 1)
        with pytest.raises(greenstalk.TimedOutError):
            client.reserve(timeout=0)
        client.pause_tube("leaves", 0)
        job = client.reserve(timeout=5)
        assert (job.id, job.body) == (number, b"\x00\xff\r\n")
        client.delete(job)
        stats = client.stats()
        assert (stats["current-jobs-ready"], stats["max-job-size"]) == (0, 65535)
        with pytest.raises(greenstalk.JobTooBigError):
            client.put(b"x" * 65536)
        assert client.put(b"x" * 65535)
        client.delete(client.reserve(timeout=0))


def test_pystalk_jobs(place: tuple[str, int]) -> None:
    with contextlib.closing(pystalk.BeanstalkClient(*place, socket_timeout=60)) as client:
        client.watch("stalks")
        with client.using("stalks") as inserter:
            _, number = inserter.put_job("grün", pri=7, ttr=30)
        client.use("stalks")
        assert client.peek_ready().job_data == "grün".encode()
        job = client.reserve_job(5)
        assert (job.job_id, job.job_data) == (number, "grün".encode())
        stats = client.stats_job(number)
        assert (stats["id"], stats["tube"], stats["state"]) == (number, "stalks", "reserved")
        client.release_job(number, pri=8)
        assert client.reserve_job(0).job_id == number
        client.bury_job(number)
        assert client.peek_buried().job_id == number
        client.kick_jobs(10)
        assert client.reserve_job(0).job_id == number
        client.release_job(number, delay=60)
        assert client.peek_delayed().job_id == number
        client.kick_job(number)
        assert [job.job_id for job in client.reserve_iter()] == [number]
        client.delete_job(number)
        with pytest.raises(pystalk.BeanstalkError):
            client.delete_job(number)


def test_pystalk_tubes(place: tuple[str, int]) -> None:
    with contextlib.closing(pystalk.BeanstalkClient(*place, socket_timeout=60)) as client:
        _, number = client.put_job_into("twigs", b"body")
        client.watch("twigs")
        assert sorted(client.list_tubes()) == ["default", "twigs"]
        client.pause_tube("twigs", 100)
        assert client.stats_tube("twigs")["pause"] == 100
        with pytest.raises(pystalk.BeanstalkError):
            client.reserve_job(0)
        client.unpause_tube("twigs")
        # With beanstalkd, unpausing takes effect a moment after its reply.
        wait_until(lambda: client.stats_tube("twigs")["pause"] == 0, 60)
        assert client.reserve_job(1).job_id == number
        client.delete_job(number)
        stats = client.stats()
        assert (stats["current-jobs-ready"], stats["current-jobs-reserved"]) == (0, 0)


def test_what_one_node_takes_another_gives(place: tuple[str, int], shared: Cluster) -> None:
    for node in shared.nodes:
        host, _, port = node.beanstalk.rpartition(":")
        with (
            greenstalk.Client(place, use="across") as giver,
            greenstalk.Client((host, int(port)), watch=["across"]) as taker,
        ):
            number = giver.put("body")
            job = taker.reserve(timeout=10)
            assert job.id == number
            with pytest.raises(greenstalk.NotFoundError):
                giver.delete(number)
            taker.delete(job)
