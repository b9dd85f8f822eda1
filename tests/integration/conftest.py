"""Fixtures of the integration tests: fresh single nodes, fresh clusters and a shared cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from beanpole.client import spoken
from tests.integration.support import load
from tests.integration.support.nodes import QUICK, Cluster
from tests.integration.support.queues import (
    AGAINST_REFERENCE,
    JOB_SIZE_DEFAULT_BYTES,
    Queue,
    ReferenceQueue,
    Singles,
    settle,
)

pytest.register_assert_rewrite("tests.clients.matrix")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="write tests/scripts/*.expected from the installed beanstalkd",
    )


@pytest.fixture(autouse=True)
def no_load_left() -> Iterator[None]:
    yield
    load.stop_all()


@pytest.fixture
def patient_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the look at a port wait longer than a slow machine takes; a hint waits for a second."""
    monkeypatch.setattr(spoken, "TIMEOUT_S", 60.0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three fresh nodes for one test, which may break them."""
    with Cluster(tmp_path / "cluster").running() as found:
        yield found


@pytest.fixture(scope="module")
def _quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("quick"), settings=QUICK).running() as found:
        yield found


@pytest.fixture
def quick(_quick: Cluster) -> Cluster:
    """Three nodes of the module, which a test may kill: dead nodes are restarted before each test.

    They declare a node down sooner than by default.
    """
    _quick.mend()
    return _quick


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that many tests use in turn and leave intact."""
    with Cluster(tmp_path_factory.mktemp("shared"), unix=True).running() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def singles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Singles]:
    pool = Singles(tmp_path_factory.mktemp("singles"))
    try:
        yield pool
    finally:
        pool.close()


def reference_queue(
    path: pytest.TempPathFactory, size: int, request: pytest.FixtureRequest
) -> Iterator[Queue]:
    queue = ReferenceQueue(path.mktemp("reference"), size, aged=request.param == "follower")
    try:
        yield queue
    finally:
        queue.close()


def fresh_queue(node: Cluster, job_size_max: int) -> Iterator[Queue]:
    queue = Queue(node.nodes[0].beanstalk, 0, job_size_max, node.pid(0))
    try:
        yield queue
    finally:
        queue.close()
        node.close()


def shared_queue(cluster: Cluster) -> Iterator[Queue]:
    number = cluster.followers()[0]
    address = cluster.nodes[number].beanstalk
    queue = Queue(address, settle(address), JOB_SIZE_DEFAULT_BYTES, cluster.pid(number))
    try:
        yield queue
    finally:
        queue.close()
        queue.drain(wanted=False)


@pytest.fixture(params=["single", "follower"])
def queue(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Queue]:
    """A fresh single node, and a follower of the shared cluster."""
    if AGAINST_REFERENCE:
        yield from reference_queue(tmp_path_factory, JOB_SIZE_DEFAULT_BYTES, request)
    elif request.param == "single":
        singles: Singles = request.getfixturevalue("singles")
        yield from fresh_queue(singles.take(), JOB_SIZE_DEFAULT_BYTES)
    else:
        yield from shared_queue(request.getfixturevalue("shared"))


@pytest.fixture(params=["single", "follower"])
def small_queue(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Queue]:
    """A fresh node with a job size limit of 10 bytes; the shared cluster has its usual limit."""
    if AGAINST_REFERENCE:
        yield from reference_queue(tmp_path_factory, 10, request)
    elif request.param == "single":
        node = Cluster(tmp_path_factory.mktemp("small"), 1, {"max_job_size": 10})
        node.start_all()
        yield from fresh_queue(node, 10)
    else:
        yield from shared_queue(request.getfixturevalue("shared"))
