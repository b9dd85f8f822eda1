"""Fixtures of the tests of Gearman clients: servers, and one lasting worker of each program.

With BEANPOLE_CLIENTS_SERVER=gearmand the server is Debian's gearmand, which checks the tests.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.clients.harness import Place, Program
from tests.integration.support.gearmand import Gearmand
from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.waiting import wait_until

AGAINST_GEARMAND: Final = os.environ.get("BEANPOLE_CLIENTS_SERVER") == "gearmand"
PORT_TIMEOUT_S: Final = 60.0

Names = Callable[[str], str]
Workers = Callable[[Program], str]

_numbers = itertools.count(1)


def place_of(cluster: Cluster) -> Place:
    """Return a place at two followers of a cluster, or at its only node."""
    numbers = cluster.followers() if len(cluster.nodes) > 1 else [0]
    addresses = [cluster.nodes[number].speaks("gearman") for number in numbers]
    wait_until(lambda: all(map(answers, addresses)), PORT_TIMEOUT_S, "the ports of Gearman")
    return Place(addresses[0], addresses[-1])


@pytest.fixture(scope="session", params=["single", "follower"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A single node, and two followers of a cluster of three: one to submit, one to work."""
    directory = tmp_path_factory.mktemp("gearman")
    if AGAINST_GEARMAND:
        server = Gearmand(directory)
        try:
            yield Place(server.address, server.address)
        finally:
            server.close()
    elif request.param == "follower":
        yield place_of(request.getfixturevalue("shared"))
    else:
        with Cluster(directory / "node", 1).running() as single:
            yield place_of(single)


@pytest.fixture
def fresh() -> Names:
    """A maker of unique names, since functions outlive tests that share a server."""
    return lambda name: f"{name}{next(_numbers)}"


@pytest.fixture(scope="session")
def workers(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """The names of the programs' workers, which run as long as their server."""
    directory = tmp_path_factory.mktemp("workers")
    names: dict[Program, str] = {}
    with ExitStack() as running:

        def find(program: Program) -> str:
            if program not in names:
                name = f"{program.name}-{next(_numbers)}"
                running.enter_context(program.working(place, name, directory))
                names[program] = name
            return names[program]

        yield find


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """A file for the notes of workers."""
    path = tmp_path / "paper"
    path.touch()
    return path
