"""Programs written for greenstalk, run with greenstalk and with Beanpole's clients in its place.

They run against a leader, a follower and, if it is installed, Debian's beanstalkd. Lost nodes are
tested in `test_client_failover`.
"""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import greenstalk
import pytest

from beanpole.client import aio, blocking
from tests.integration.support.drop_in import maker
from tests.integration.support.nodes import Cluster
from tests.integration.support.queues import settle
from tests.integration.support.reference import Beanstalkd, beanstalkd_path

PLACES = ["leader", "follower", *(["beanstalkd"] if beanstalkd_path() else [])]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, int]]:
    if request.param == "beanstalkd":
        server = Beanstalkd(tmp_path)
        host, _, port = server.address.rpartition(":")
        yield host, int(port)
        server.close()
        return
    shared: Cluster = request.getfixturevalue("shared")
    number = shared.leader() if request.param == "leader" else shared.followers()[0]
    address = shared.nodes[number].beanstalk
    settle(address)
    host, _, port = address.rpartition(":")
    yield host, int(port)


@pytest.fixture(params=[greenstalk, blocking, aio], ids=lambda one: one.__name__)
def module(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


def test_a_producer_and_a_worker(module: ModuleType, place: tuple[str, int]) -> None:
    make = maker(module)
    with make(place, use="green") as producer, make(place, watch=["green"]) as worker:
        number = producer.put("grün", priority=7, delay=0, ttr=30)
        assert producer.peek(number).body == producer.peek_ready().body == "grün"
        job = worker.reserve(timeout=5)
        assert isinstance(job, module.Job)
        assert (job.id, job.body) == (number, "grün")
        worker.touch(job)
        stats = worker.stats_job(job)
        assert (stats["tube"], stats["state"], stats["pri"], stats["ttr"]) == (
            *("green", "reserved"),
            *(7, 30),
        )
        worker.release(job, priority=8)
        worker.bury(worker.reserve(timeout=0), priority=9)
        assert producer.peek_buried().id == number
        assert producer.kick(10) == 1
        worker.release(worker.reserve_job(number), delay=60)
        assert producer.peek_delayed().id == number
        producer.kick_job(number)
        assert worker.stats_job(number)["kicks"] == 2
        worker.delete(worker.reserve(timeout=0))


def test_tubes_and_bytes(module: ModuleType, place: tuple[str, int]) -> None:
    with maker(module)(place, encoding=None) as client:
        client.use("leaves")
        assert client.using() == "leaves"
        assert client.watch("leaves") == 2
        assert client.ignore("default") == 1
        assert client.watching() == ["leaves"]
        assert sorted(client.tubes()) == ["default", "leaves"]
        number = client.put(b"\x00\xff\r\n", priority=0)
        client.pause_tube("leaves", 3600)
        tube = client.stats_tube("leaves")
        assert (tube["name"], tube["pause"], tube["current-jobs-urgent"]) == ("leaves", 3600, 1)
        client.pause_tube("leaves", 0)
        assert client.reserve(timeout=5).body == b"\x00\xff\r\n"
        client.delete(number)
        stats = client.stats()
        assert (stats["current-jobs-ready"], stats["draining"]) == (0, "false")
        assert isinstance(stats["version"], str)


def test_errors(module: ModuleType, place: tuple[str, int]) -> None:
    with maker(module)(place) as client:
        for refused in (client.delete, client.peek, client.kick_job, client.stats_job):
            with pytest.raises(module.NotFoundError):
                refused(2**40)
        with pytest.raises(module.NotFoundError):
            client.peek_ready()
        with pytest.raises(module.NotFoundError):
            client.touch(module.Job(2**40, "x"))
        with pytest.raises(module.TimedOutError):
            client.reserve(timeout=0)
        with pytest.raises(module.NotIgnoredError):
            client.ignore("default")
        with pytest.raises(module.JobTooBigError):
            client.put("x" * 2**20)
        with pytest.raises(module.BadFormatError):
            client.use("a tube")
        # The second reserve has to arrive before this time ends, and wait until its last second.
        client.put("x", ttr=5)
        job = client.reserve(timeout=5)
        with pytest.raises(module.DeadlineSoonError):
            client.reserve(timeout=60)
        client.delete(job)
        assert issubclass(module.TimedOutError, module.BeanstalkdError)
        assert issubclass(module.BeanstalkdError, module.Error)


def test_a_worker_that_waits(module: ModuleType, place: tuple[str, int]) -> None:
    """The usual loop: wait, work and delete, until a job that means stop."""
    make = maker(module)
    done: list[Any] = []
    with make(place, use="loop") as producer, make(place, watch="loop") as worker:
        numbers = [producer.put(word) for word in ("a", "b", "stop")]
        while True:
            job = worker.reserve()
            done.append(job.id)
            worker.delete(job)
            if job.body == "stop":
                break
    assert done == numbers


@pytest.mark.parametrize("module", [blocking, aio], ids=lambda one: one.__name__)
def test_batches(module: ModuleType, place: tuple[str, int]) -> None:
    """Not in greenstalk: many jobs at once, by pipelined plain commands."""
    make = maker(module)
    with make(place, use="many") as producer, make(place, watch="many") as worker:
        numbers = producer.put_many([f"{number}" for number in range(250)])
        assert numbers == sorted(set(numbers))
        jobs = worker.reserve_many(200, timeout=5)
        assert [job.id for job in jobs] == numbers[:200]
        assert [job.body for job in jobs] == [f"{number}" for number in range(200)]
        jobs += worker.reserve_many(200, timeout=5)
        assert [job.id for job in jobs] == numbers
        assert worker.delete_many([*jobs, 2**40]) == [True] * 250 + [False]
        with pytest.raises(module.TimedOutError):
            worker.reserve_many(2, timeout=0)
        with pytest.raises(module.BatchError) as caught:
            producer.put_many(["x", "x" * 2**20, "y"])
        first, second, third = caught.value.results
        assert isinstance(second, module.JobTooBigError)
        assert producer.delete_many([first, third]) == [True, True]


def test_nobody_listens(module: ModuleType) -> None:
    named = {} if module is greenstalk else {"patience_s": 0.0}
    with pytest.raises(ConnectionError), maker(module)(("127.0.0.1", 1), **named):
        raise AssertionError("it connected")


@pytest.mark.parametrize("module", [blocking, aio], ids=lambda one: one.__name__)
def test_extensions_are_known_to_beanpole_only(
    module: ModuleType, place: tuple[str, int], request: pytest.FixtureRequest
) -> None:
    known = request.node.callspec.params["place"] != "beanstalkd"
    with maker(module)(place, keep=60) as client:
        assert client.is_kept is known
        if known:
            key = f"{module.__name__}-{place[1]}"
            job = client.put("x", key=key)
            client.delete(job)
            assert client.put("x", key=key) == job
        else:
            with pytest.raises(module.NotAvailableError):
                client.put("delete 1", key="k")
        assert client.stats()["current-jobs-ready"] == 0
