"""Writes of a turn's frames to the links of the other members."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from beanpoled.host.aio_peers import PeerLinks, PeerProtocol
from beanpoled.links.link import FrameReader
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.node.stage import config


class Loop:
    """The loop's list of scheduled callbacks."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def create_future(self) -> None:
        """Return nothing: no link ends in these tests."""


class Transport:
    """A connection that records its writes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


class Links(PeerLinks):
    """Links of n0; the link to n1 is up."""

    def __init__(self) -> None:
        self.steps = Loop()
        super().__init__(config(), cast(Any, self.steps), lambda line, level=0: None, trust_of())
        protocol = PeerProtocol(self, None)
        self.transport = Transport()
        protocol._transport = cast(Any, self.transport)
        self._links["n1"] = protocol

    def handshake(self, expected: str | None) -> Any:
        """Skip the handshake, which is over."""

    def frames(self) -> list[list[bytes]]:
        """Return and clear the payloads of each write."""
        writes, self.transport.writes = self.transport.writes, []
        return [_payloads(data) for data in writes]


def _payloads(data: bytes) -> list[bytes]:
    reader = FrameReader()
    reader.feed(data)
    payloads = []
    while (frame := reader.next()) is not None:
        payloads.append(frame[1])
    return payloads


@pytest.fixture
def links() -> Links:
    return Links()


def test_the_frames_of_a_turn_leave_in_one_write_at_its_end(links: Links) -> None:
    def turn() -> None:
        assert links.send("n1", 1, b"a") and links.send("n1", 1, b"b")
        assert links.frames() == []

    links.take_turn(turn)
    assert links.frames() == [[b"a", b"b"]]
    assert links.steps.soon == []


def test_a_frame_may_leave_within_a_turn(links: Links) -> None:
    def turn() -> None:
        links.send("n1", 1, b"a")
        links.flush()
        assert links.frames() == [[b"a"]]
        links.send("n1", 1, b"b")

    links.take_turn(turn)
    assert links.frames() == [[b"b"]]


def test_a_frame_between_turns_leaves_in_the_next_step_of_the_loop(links: Links) -> None:
    links.take_turn(lambda: None)
    links.send("n1", 1, b"a")
    links.send("n1", 1, b"b")
    assert links.frames() == []
    (step,) = links.steps.soon
    step()
    assert links.frames() == [[b"a", b"b"]]
