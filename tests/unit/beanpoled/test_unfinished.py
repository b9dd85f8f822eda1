"""Requests that clients begin and do not end: their memory, over all connections of a node."""

import pytest

from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from beanpole.protocol.resp.parser import Parser
from beanpoled.frontends import unfinished
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port

BODY = bytes(40_000)
# Each has a body of this size at least, and lacks its last byte.
BEGUN = {
    "beanstalk": b"put 0 0 60 40000\r\n" + BODY + b"\r",
    "workq": b"add 6ba7b810-9dad-41d1-80b4-00c04fd430c4 q 1 1000 40000\r\n" + BODY + b"\r",
    "gearman": request(p.SUBMIT_JOB_BG, b"f", b"", BODY)[:-1],
    "qless": b"*2\r\n$40000\r\n" + BODY + b"\r\n$1\r\nx\r",
}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> FollowerScene:
    monkeypatch.setattr(unfinished, "UNFINISHED_BYTES_MAX", 100_000)
    return FollowerScene()


@pytest.mark.constants
@pytest.mark.parametrize("protocol", BEGUN)
def test_requests_that_do_not_end_take_a_bounded_memory(
    scene: FollowerScene, protocol: str
) -> None:
    ports, connections = [], []
    for _ in range(4):
        ports.append(Port())
        connections.append(scene.node.frontends[protocol].connected(ports[-1]))
        assert connections[-1] is not None
        for start in range(0, len(BEGUN[protocol]), 1000):
            connections[-1].received(BEGUN[protocol][start : start + 1000])
    assert [port.closed for port in ports] == [True, True, False, False], "the oldest ends"
    assert 80_000 <= scene.node.clients.unfinished.bytes < 100_000
    assert connections[2] is not None and connections[3] is not None
    connections[2].received(b"\n")  # it ends
    assert 40_000 <= scene.node.clients.unfinished.bytes < 50_000
    connections[3].lost()
    assert scene.node.clients.unfinished.bytes == 0


@pytest.mark.constants
@pytest.mark.parametrize("protocol", BEGUN)
def test_the_request_of_a_refused_client_counts_until_it_ends(
    scene: FollowerScene, protocol: str
) -> None:
    scene.node.clients.connections_max = 0
    port = Port()
    connection = scene.node.frontends[protocol].connected(port)
    assert connection is not None and connection.refused
    connection.received(BEGUN[protocol])
    assert 40_000 <= scene.node.clients.unfinished.bytes < 50_000
    connection.received(b"\n")
    assert port.closed and scene.node.clients.unfinished.bytes == 0


def test_many_short_arguments_take_more_than_their_bytes() -> None:
    parser = Parser()
    parser.feed(b"*10000\r\n" + b"$2\r\nxx\r\n" * 9999)
    assert parser.next() is None
    assert parser.unfinished_bytes > 9999 * 40
    parser.feed(b"$2\r\nxx\r\n")
    assert parser.next() == [b"xx"] * 10000
    assert parser.unfinished_bytes == 0


def test_an_argument_counts_as_far_as_it_has_arrived() -> None:
    parser = Parser()
    parser.feed(b"*1\r\n$2000000\r\n" + BODY)
    assert parser.next() is None
    assert len(BODY) <= parser.unfinished_bytes < len(BODY) + 100
