"""An engine, images and three nodes in containers; the tests fail if a requirement is missing.

`make test-docker` runs these tests with an engine (chaos/engine.py). All tests use the same nodes,
and each test leaves them intact.
"""

from collections.abc import Iterator
from typing import Any

import docker
import pytest

from chaos import images
from chaos.containers import Containers, compose_command
from chaos.images import Images

# The first build of the compiled image and its base takes minutes.
BUILD_TIMEOUT_S = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(pytest.mark.timeout(BUILD_TIMEOUT_S))


@pytest.fixture(scope="session")
def engine() -> Iterator[Any]:
    why = images.missing()
    assert not why, why
    assert compose_command(), "compose is missing: apt-get install docker-compose"
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="session")
def built(engine: Any) -> Images:
    return images.build(engine)


@pytest.fixture(scope="session")
def nodes(
    engine: Any, built: Images, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Containers]:
    found = Containers(engine, built, tmp_path_factory.mktemp("compose"), "beanpole-test")
    found.down()  # the containers of an interrupted run
    try:
        found.up()
        yield found
    finally:
        found.down()
