"""Replies that clients do not read: their memory, over all connections of a node."""

from typing import Any, cast

import pytest

from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import request
from beanpoled.frontends import unread
from beanpoled.frontends.clients import REFUSED_MAX, STALL_MAX_US
from beanpoled.frontends.unread import PACE_BYTES, PATIENCE_US, WRITE_BYTES
from beanpoled.host.aio_clients import ClientProtocol
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import SECOND, Port, Stage

LIMIT = 1_000_000
CLIENT_LIMIT = 200_000
SIZE = 60_000


class Transport:
    """A transport whose client reads only when the test says so; it pauses as uvloop's does."""

    def __init__(self, room: int = 0) -> None:
        self.room = room  # bytes that the socket takes
        self.kept: list[int] = []
        self.high = self.low = 0
        self.paused = self.closing = self.aborted = False
        self.protocol: ClientProtocol | None = None

    def connect(self, node: Any, protocol: str) -> ClientProtocol:
        self.protocol = ClientProtocol(node.frontends[protocol])
        self.protocol.connection_made(cast(Any, self))
        return self.protocol

    def get_write_buffer_size(self) -> int:
        return sum(self.kept)

    def set_write_buffer_limits(self, high: int) -> None:
        self.high, self.low = high, high // 4
        self._pause()

    def write(self, data: bytes) -> None:
        self.kept.append(len(data))
        if not self.paused:
            self._send()
            self._pause()

    def read(self, size: int) -> None:
        """Let the client read."""
        self.room += size
        self._send()
        if self.paused and sum(self.kept) <= self.low:
            self.paused = False
            assert self.protocol is not None
            self.protocol.resume_writing()

    def _send(self) -> None:
        while self.room and self.kept:
            sent = min(self.room, self.kept[0])
            self.room -= sent
            self.kept[0] -= sent
            if not self.kept[0]:
                self.kept.pop(0)

    def _pause(self) -> None:
        if sum(self.kept) > self.high and not self.paused:
            self.paused = True
            assert self.protocol is not None
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_reading(self) -> bool:
        return True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("10.0.0.1", 1) if name == "peername" else default


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> FollowerScene:
    monkeypatch.setattr(unread, "UNREAD_BYTES_MIN", LIMIT)
    monkeypatch.setattr(unread, "CLIENTS", 1)
    scene = FollowerScene(client_output_bytes_max=CLIENT_LIMIT)
    producer = Transport(room=10**9)
    producer.connect(scene.node, "beanstalk").data_received(
        b"put 0 0 60 %d\r\n%b\r\n" % (SIZE, bytes(SIZE))
    )
    scene.commit_own()
    return scene


def unread_of(scene: FollowerScene, count: int, requests: bytes = b"peek 1\r\n") -> list[Transport]:
    """Let clients ask for replies that they do not read."""
    transports = []
    for _ in range(count):
        transports.append(Transport())
        transports[-1].connect(scene.node, "beanstalk").data_received(requests)
    scene.commit_own()
    return transports


def periodic(scene: FollowerScene, us: int = 0) -> None:
    """Let time pass, then look at clients as a node does each 100 ms."""
    scene.node.context.loop_us += us
    scene.node.clients.run_periodic()


def slow(scene: FollowerScene) -> int:
    return scene.node.clients.slow_total.get("beanstalk", 0)


@pytest.mark.constants
def test_clients_that_do_not_read_are_closed_together_above_a_limit(scene: FollowerScene) -> None:
    many = unread_of(scene, 10)
    account = scene.node.clients.unread
    assert 10 * SIZE < account.bytes < 11 * SIZE
    periodic(scene, 20 * SECOND)
    assert not any(item.aborted for item in many), "all together are below the limit"
    many += unread_of(scene, 10)
    periodic(scene, SECOND)
    assert [item.aborted for item in many] == [True] * 4 + [False] * 16, "the first ones"
    assert account.bytes <= LIMIT
    assert slow(scene) == 4
    for item in many:
        assert item.protocol is not None
        item.protocol.connection_lost(None)
    assert account.bytes == 0


@pytest.mark.constants
def test_clients_that_have_just_fallen_behind_are_closed_above_twice_the_limit(
    scene: FollowerScene,
) -> None:
    many = unread_of(scene, 40)
    periodic(scene, SECOND // 10)
    assert slow(scene) == 0, "they had no time to read"
    periodic(scene, SECOND // 10)
    assert 2 * LIMIT - SIZE < scene.node.clients.unread.bytes < 2 * LIMIT
    assert [item.aborted for item in many] == [True] * slow(scene) + [False] * (40 - slow(scene))
    periodic(scene, PATIENCE_US)
    assert LIMIT - 2 * SIZE < scene.node.clients.unread.bytes <= LIMIT


@pytest.mark.constants
def test_a_client_that_reads_stays_while_others_are_closed(scene: FollowerScene) -> None:
    reader = unread_of(scene, 1, b"peek 1\r\n" * 3)[0]
    for _ in range(20):
        unread_of(scene, 4)
        reader.read(PACE_BYTES // 8)
        periodic(scene, SECOND // 10)
    assert not reader.aborted
    assert slow(scene) > 40
    reader.read(10**6)
    assert not reader.kept and reader.protocol is not None
    reader.protocol.data_received(b"peek 1\r\n")
    scene.commit_own()
    assert reader.room < 10**6 - SIZE, "it is served as before"


@pytest.mark.constants
def test_what_was_partly_sent_counts_until_it_is_sent(scene: FollowerScene) -> None:
    """A byte that is not sent keeps the memory of the whole write."""
    one = unread_of(scene, 1)[0]
    account = scene.node.clients.unread
    one.read(SIZE - 100)
    assert account.bytes > SIZE
    assert one.protocol is not None
    one.protocol.data_received(b"list-tube-used\r\n")
    scene.run()
    assert account.bytes > SIZE + 2 * WRITE_BYTES
    one.read(120)  # the first write is gone, and a part of the second
    one.protocol.data_received(b"list-tube-used\r\n")
    scene.run()
    assert 2 * WRITE_BYTES < account.bytes < 2 * WRITE_BYTES + 100


@pytest.mark.constants
def test_a_connection_that_has_ended_counts_while_its_replies_wait(scene: FollowerScene) -> None:
    many = unread_of(scene, 40, b"peek 1\r\nquit\r\n")
    assert all(item.closing and not item.aborted for item in many)
    periodic(scene, SECOND)
    periodic(scene, PATIENCE_US)
    assert LIMIT - SIZE < scene.node.clients.unread.bytes < LIMIT
    assert slow(scene) == sum(item.aborted for item in many) > 20


@pytest.mark.constants
def test_a_connection_that_has_ended_does_not_stay_for_ever(
    scene: FollowerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a file descriptor, and connections without an end would need all of them."""
    monkeypatch.setattr(unread, "PACE_BYTES", 1000)
    idle, reader = unread_of(scene, 2, b"peek 1\r\nquit\r\n")
    clients = scene.node.clients
    clients.connections_max = len(clients.connections) + 1 - REFUSED_MAX
    assert clients.unread.lingering == 2 and clients.is_crowded("beanstalk", b"10.0.0.2")
    for _ in range(40):
        reader.read(1200)
        periodic(scene, SECOND)
    assert idle.aborted and not reader.aborted
    assert clients.unread.lingering == 1 and slow(scene) == 1
    assert reader.protocol is not None
    reader.protocol.connection_lost(None)
    assert clients.unread.lingering == 0 and not clients.is_crowded("beanstalk", b"10.0.0.2")


@pytest.mark.constants
def test_above_the_limit_clients_get_no_more_before_they_have_read(scene: FollowerScene) -> None:
    many = unread_of(scene, 30)
    one = many[-1]
    assert one.protocol is not None
    one.protocol.data_received(b"list-tube-used\r\n")
    assert len(one.kept) == 1
    one.read(10**6)
    assert one.room < 10**6 - SIZE - 10, "it was answered when it had read"
    assert not one.paused


@pytest.mark.constants
def test_a_client_at_its_own_limit_goes_on_when_it_has_read_most(scene: FollowerScene) -> None:
    one = unread_of(scene, 1, b"peek 1\r\n" * 10)[0]
    clients = scene.node.clients
    assert CLIENT_LIMIT < sum(one.kept) < LIMIT
    assert len(clients.stalled) == 1
    one.read(sum(one.kept) - CLIENT_LIMIT // 4)
    assert not clients.stalled
    assert clients.unread.bytes > 0, "it is behind"
    scene.node.context.loop_us += STALL_MAX_US + 1
    periodic(scene)
    assert not one.aborted


def test_a_client_that_reads_costs_nothing() -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    one = Transport(room=10**9)
    one.connect(stage.node, "beanstalk").data_received(b"list-tube-used\r\n" * 1000)
    stage.run()
    assert one.room < 10**9
    assert not stage.node.clients.unread._behind


@pytest.mark.constants
def test_all_clients_are_owed_a_bounded_size_of_bodies(
    scene: FollowerScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the bodies for all of them are in memory before one of them is written."""
    monkeypatch.setattr(unread, "OWED_BYTES_MAX", 4 * scene.node.clients.config.max_job_size)
    for _ in range(6):
        Transport(room=10**9).connect(scene.node, "beanstalk").data_received(b"peek 1\r\n" * 3)
    scene.run()
    owed = [item._replies.pending for item in scene.node.clients.connections]  # type: ignore[attr-defined]
    assert owed == [0, 3, 1, 1, 1, 1, 1]
    scene.commit_own()
    scene.run()
    scene.commit_own()
    assert scene.node.clients.unread.owed_bytes == 0
    unread_of(scene, 20)
    one = Transport(room=10**9)
    one.connect(scene.node, "beanstalk").data_received(b"peek 1\r\n" * 3)
    assert list(scene.node.clients.connections)[-1]._replies.pending == 1  # type: ignore[attr-defined]
    for _ in range(3):
        scene.commit_own()
    assert one.room < 10**9 - 3 * SIZE, "it gets all, one after the other"


@pytest.mark.parametrize(
    ("protocol", "first", "echo"),
    [
        (
            "gearman",
            request(p.SUBMIT_JOB_BG, b"f", b"", b""),
            request(p.ECHO_REQ, bytes(SIZE)),
        ),
        ("qless", b"DBSIZE\r\n", b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (SIZE, bytes(SIZE))),
    ],
)
def test_replies_that_wait_for_one_before_them_are_bounded(
    protocol: str, first: bytes, echo: bytes
) -> None:
    """A thousand of two megabytes each could wait while there is no majority."""
    scene = FollowerScene(client_output_bytes_max=CLIENT_LIMIT)
    port = Port()
    connection = scene.node.frontends[protocol].connected(port)
    assert connection is not None
    connection.received(first)
    sent = 0
    while port.reading:
        connection.received(echo)
        sent += 1
        assert sent * SIZE < 2 * CLIENT_LIMIT
    scene.commit_own()
    assert len(port.output) > sent * SIZE and port.reading
    assert scene.node.clients.unread.owed_bytes == 0
