"""The delivery of messages to subscribers in slices, and the memory of subscriptions."""

import pytest

from beanpole.qless import Message
from beanpoled.frontends import publications
from beanpoled.frontends.publications import (
    CHANNEL_BYTES,
    DELIVERIES_PER_TURN_MAX,
    WAITING_BYTES_MAX,
    WAITING_MAX,
)
from tests.unit.beanpoled.qless_scene import Client, Scene, array

CLIENTS = 8
MESSAGES = 200


@pytest.fixture
def scene() -> Scene:
    return Scene()


def connect(scene: Scene, count: int = CLIENTS) -> list[Client]:
    """Connect clients with a channel and a pattern."""
    clients = [scene.connect() for _ in range(count)]
    for client in clients:
        client.send(array(b"SUBSCRIBE", b"ql:log") + array(b"PSUBSCRIBE", b"ql:l*"))
    return clients


def publish(scene: Scene, *messages: Message) -> None:
    """Publish what one entry has, without a turn of the loop behind it."""
    scene.node.clients.publications.published(list(messages))
    scene.node.clients.flush()


def turn(scene: Scene) -> None:
    """Let the loop do what is requested at this moment, and no more."""
    soon, scene.host.soon = scene.host.soon, []
    for callback in soon:
        callback()
    scene.node.clients.flush()


def test_many_messages_are_delivered_in_slices(scene: Scene) -> None:
    clients = connect(scene)
    told = scene.node.clients.publications
    publish(scene, *[(b"log", b"m%d" % number) for number in range(MESSAGES)])
    turns = 0
    while told.delivered_total < 2 * CLIENTS * MESSAGES:
        assert told.delivered_total <= (turns + 1) * DELIVERIES_PER_TURN_MAX
        turns += 1
        if turns == 2:
            publish(scene, (b"log", b"later"))
        turn(scene)
    assert turns >= 2 * CLIENTS * MESSAGES // DELIVERIES_PER_TURN_MAX
    turn(scene)
    for client in clients:
        said = client.port.take()
        names = [word for word in said.split(b"\r\n") if word[:1] == b"m" and word[1:].isdigit()]
        assert names == [b"m%d" % number for number in range(MESSAGES) for _ in range(2)]
        assert said.endswith(b"later\r\n"), "no message overtakes another"
    assert not scene.host.soon


def test_who_unsubscribes_gets_no_message_that_waits(scene: Scene) -> None:
    """A client of RESP2 could not tell it from a reply."""
    clients = connect(scene)
    publish(scene, *[(b"log", b"m") for _ in range(MESSAGES)])
    clients[-1].port.take()
    clients[-1].connection.received(array(b"UNSUBSCRIBE") + array(b"PUNSUBSCRIBE") + b"PING\r\n")
    scene.node.clients.flush()
    assert clients[-1].port.take().endswith(b"+PONG\r\n")
    clients[0].connection.lost()
    for _ in range(MESSAGES):
        turn(scene)
    assert clients[-1].port.take() == b""
    assert clients[1].port.take().count(b"message") >= MESSAGES


def test_who_subscribes_a_pattern_gets_the_messages_that_still_wait(scene: Scene) -> None:
    """Which patterns match a channel is remembered while messages wait."""
    connect(scene)
    publish(scene, *[(b"log", b"m") for _ in range(MESSAGES)])
    waiting = len(scene.node.clients.publications._waiting)
    assert waiting > MESSAGES // 2
    late = scene.connect()
    late.connection.received(array(b"PSUBSCRIBE", b"ql:lo*"))
    for _ in range(MESSAGES):
        turn(scene)
    assert late.port.take().count(b"pmessage") >= waiting


@pytest.mark.parametrize(
    "messages",
    [
        [(b"log", b"m")] * (WAITING_MAX + 1),
        [(b"log", ((b"message", b"x" * 1024**2),))] * (WAITING_BYTES_MAX // 1024**2 + 1),
    ],
    ids=["many", "large"],
)
def test_those_with_most_subscriptions_end_when_too_much_waits(
    scene: Scene, messages: list[Message]
) -> None:
    (modest,) = connect(scene, 1)
    greedy = [scene.connect() for _ in range(2)]
    for client in greedy:
        client.send(array(b"PSUBSCRIBE", *[b"*" * number for number in range(1, 10)]))
    publish(scene, *messages[:-2])
    assert not any(client.port.closed for client in (modest, *greedy))
    publish(scene, *messages)
    assert [client.port.closed for client in (modest, *greedy)] == [False, True, True]


def test_a_large_message_is_not_kept_for_each_pattern(scene: Scene) -> None:
    clients = [scene.connect(version) for version in (2, 3, 2)]
    for client in clients:
        client.send(array(b"PSUBSCRIBE", *[b"*" * number for number in range(1, 10)]))
    text = b"x" * 100_000
    publish(scene, (b"log", text))
    assert [client.port.take().count(text) for client in clients] == [9, 9, 9]
    assert len(clients[0].connection.shared._encoded) == 2


@pytest.mark.constants
def test_the_channels_of_a_node_have_a_limit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publications, "NODE_CHANNEL_BYTES_MAX", 3 * (CHANNEL_BYTES + 100))
    first, second = scene.connect(), scene.connect()
    names = [b"%d" % number + b"x" * 99 for number in range(4)]
    assert first.send(array(b"SUBSCRIBE", *names[:2])).count(b"subscribe") == 2
    said = second.send(array(b"SUBSCRIBE", names[0], names[3], names[0]))
    assert said.count(b"subscribe") == 2, "what it has already takes nothing more"
    assert said.count(b"-ERR the channels of all clients of a node take ") == 1
    first.connection.lost()
    assert second.send(array(b"SUBSCRIBE", *names[2:])).count(b"subscribe") == 2
    second.send(array(b"UNSUBSCRIBE"))
    assert scene.node.clients.publications._channel_bytes == 0
