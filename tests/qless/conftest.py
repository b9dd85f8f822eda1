"""Fixtures of the tests of qless clients, which fail with a hint if a requirement is missing."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.resp import Resp
from tests.integration.support.waiting import wait_until
from tests.qless.suites import AGAINST_REDIS, FLUSH, PORT_TIMEOUT_S, Place, missing
from tests.qless.theirs import Redis


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--walks", default=30, type=int, help="random walks beside Redis")
    parser.addoption("--first-walk", default=1, type=int, help="the seed of the first of them")
    parser.addoption(
        "--record-redis",
        action="store_true",
        help="write the replies in tests/scripts/qless/*.txt again, from the installed Redis",
    )


@pytest.fixture(scope="session", autouse=True)
def installed() -> None:
    absent = missing()
    if absent:
        pytest.fail("not installed: " + "; ".join(absent), pytrace=False)


@pytest.fixture(scope="module", params=["redis"] if AGAINST_REDIS else ["single", "follower"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A single node, and a follower of a cluster of three; or Redis, as the reference."""
    if request.param == "redis":
        with Redis(tmp_path_factory.mktemp("redis")).running() as redis:
            yield Place(redis.address, redis.address)
        return
    count = 1 if request.param == "single" else 3
    with Cluster(tmp_path_factory.mktemp("qless"), count, FLUSH).running() as cluster:
        first, *others = cluster.followers() if count > 1 else [0]
        found = Place(
            *(cluster.nodes[number].speaks("qless") for number in (first, *others, first)[:2])
        )
        wait_until(lambda: all(map(answers, found)), PORT_TIMEOUT_S, "the ports of qless")
        yield found


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """Debian's Redis, on a separate port, without files."""
    with Redis(tmp_path_factory.mktemp("redis")).running() as found:
        yield found


@pytest.fixture
def redis(redis_server: Redis) -> Redis:
    """The Redis server, cleared of the data of earlier tests."""
    with closing(Resp(redis_server.address)) as client:
        assert client.ask("FLUSHALL") == "OK"
    return redis_server


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder for the workers' programs."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
