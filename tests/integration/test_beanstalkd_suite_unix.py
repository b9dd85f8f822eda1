"""beanstalkd's own tests of UNIX sockets, restated: at a fresh node and at a follower."""

from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster
from tests.integration.support.queues import Singles, settle
from tests.integration.support.raw import Raw


@pytest.fixture(params=["single", "follower"])
def place(request: pytest.FixtureRequest) -> tuple[Cluster, int]:
    """A cluster, perhaps of one node, and the number of the node under test."""
    if request.param == "single":
        singles: Singles = request.getfixturevalue("singles")
        node = singles.take()
        request.addfinalizer(node.close)
        return node, 0
    shared: Cluster = request.getfixturevalue("shared")
    return shared, shared.followers()[0]


def test_peek_ok_unix(place: tuple[Cluster, int]) -> None:
    cluster, number = place
    last = settle(cluster.nodes[number].beanstalk)
    client = Raw(cluster.unix_address(number))
    client.ask(b"put 0 0 1 1\r\na", b"INSERTED %d" % (last + 1))
    client.ask(b"peek %d" % (last + 1), b"FOUND %d 1" % (last + 1), b"a")
    client.close()


def test_unix_auto_removal(place: tuple[Cluster, int]) -> None:
    cluster, number = place
    path = Path(cluster.unix_address(number).removeprefix("unix:"))
    cluster.kill(number)
    assert path.is_socket(), "nobody removed the socket of the node that was killed"
    cluster.start(number)
    cluster.wait_until_serving(number)
    client = Raw(cluster.unix_address(number))
    client.ask(b"list-tube-used", b"USING default")
    client.close()
