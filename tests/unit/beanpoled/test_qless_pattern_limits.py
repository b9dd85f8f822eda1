"""Limits of the patterns of all subscribers of a node."""

import pytest

from beanpole.protocol.resp.globs import Text
from beanpoled.frontends import publications
from beanpoled.frontends.publications import (
    NODE_PATTERN_BYTES_MAX,
    NODE_PATTERNS_MAX,
    PATTERNS_MAX,
)
from tests.unit.beanpoled.qless_scene import Scene, array


@pytest.fixture
def scene() -> Scene:
    return Scene()


def confirmed(pattern: bytes, count: int) -> bytes:
    """Return the reply to PSUBSCRIBE."""
    return b"*3\r\n$10\r\npsubscribe\r\n$%d\r\n%b\r\n:%d\r\n" % (len(pattern), pattern, count)


@pytest.mark.parametrize(
    ("length", "most"), [(4, NODE_PATTERNS_MAX), (256, NODE_PATTERN_BYTES_MAX // 256)]
)
def test_the_patterns_of_a_node_have_a_limit(scene: Scene, length: int, most: int) -> None:
    names = [b"%04d" % number + b"?" * (length - 4) for number in range(most)]
    for start in range(0, most, PATTERNS_MAX - 1):
        client = scene.connect()
        some = names[start : start + PATTERNS_MAX - 1]
        assert client.send(array(b"PSUBSCRIBE", *some)).count(b"psubscribe") == len(some)
    late = scene.connect()
    said = late.send(array(b"PSUBSCRIBE", b"one more"))
    assert said.startswith(b"-ERR a node has 1024 different patterns, and 16384 bytes")
    assert not scene.node.clients.publications.patterns_of(late.connection)
    assert late.send(array(b"PSUBSCRIBE", names[0])) == confirmed(names[0], 1)
    client.connection.lost()
    assert late.send(array(b"PSUBSCRIBE", b"more")) == confirmed(b"more", 2)


def test_who_is_refused_all_patterns_is_no_subscriber(scene: Scene) -> None:
    client = scene.connect()
    for k in range(NODE_PATTERN_BYTES_MAX // 256):
        if k % PATTERNS_MAX == 0:
            client = scene.connect()
        client.send(array(b"PSUBSCRIBE", b"%04d" % k + b"?" * 252))
    before = scene.node.clients.publications.subscribers
    scene.connect().send(array(b"PSUBSCRIBE", b"one more"))
    assert scene.node.clients.publications.subscribers == before


def test_a_pattern_is_matched_once_for_all(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each channel, whatever the number of subscribers, and of messages of one entry."""
    texts = []

    class Counted(Text):
        def __init__(self, data: bytes) -> None:
            texts.append(data)
            super().__init__(data)

    monkeypatch.setattr(publications, "Text", Counted)
    clients = [scene.connect() for _ in range(5)]
    for client in clients:
        client.send(array(b"PSUBSCRIBE", b"ql:w:[a-c]*"))
    scene.node.clients.publications.published([(b"w:a", b"1"), (b"w:b", b"2"), (b"w:a", b"3")])
    scene.node.clients.flush()
    assert texts == [b"ql:w:a", b"ql:w:b"]
    for client in clients:
        assert client.port.take() == (
            array(b"pmessage", b"ql:w:[a-c]*", b"ql:w:a", b"1")
            + array(b"pmessage", b"ql:w:[a-c]*", b"ql:w:b", b"2")
            + array(b"pmessage", b"ql:w:[a-c]*", b"ql:w:a", b"3")
        )
