"""Writes of a turn's frames to the links of the other members."""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from beanpoled.host import aio_peers
from beanpoled.host.aio_peers import STRANGERS_MAX, PeerLinks, PeerProtocol
from beanpoled.host.sockets import Failed
from beanpoled.links.link import (
    DIRECTED_SINCE,
    REFUSE,
    VERSIONS,
    Frame,
    FrameReader,
    Handshake,
    encode_frame,
)
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.node.stage import config
from tests.unit.node.test_link import SECRET, hello


class Loop:
    """The loop's list of scheduled callbacks."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[..., None], *args: Any) -> None:
        self.soon.append(partial(callback, *args))

    def create_future(self) -> Any:
        """Return the future of a link's end, which nothing awaits."""
        return SimpleNamespace(done=lambda: True)

    def time(self) -> float:
        return 0.0


class Transport:
    """A connection that records its writes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        if self.is_closed:
            raise RuntimeError("the handler is closed")
        self.writes.append(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """Stay open."""

    def set_write_buffer_limits(self, high: int) -> None:
        """Accept any limit."""

    def get_write_buffer_size(self) -> int:
        return 0


class Links(PeerLinks):
    """Links of n0; the link to n1 is up."""

    def __init__(self) -> None:
        self.steps = Loop()
        super().__init__(config(), cast(Any, self.steps), lambda line, level=0: None, trust_of())
        self.router = cast(Any, SimpleNamespace(link_down=self.down))
        self.lost: list[str] = []
        protocol = PeerProtocol(self, None)
        protocol.peer = "n1"
        self.transport = Transport()
        protocol._transport = cast(Any, self.transport)
        self._links["n1"] = protocol

    def handshake(self, expected: str | None) -> Any:
        """Skip the handshake, which is over."""

    def down(self, peer: str) -> None:
        self.lost.append(peer)

    def frames(self) -> list[list[bytes]]:
        """Return and clear the payloads of each write."""
        writes, self.transport.writes = self.transport.writes, []
        return [[payload for _, payload in frames_of(data)] for data in writes]


def frames_of(data: bytes) -> list[Frame]:
    """Return the frames that the bytes hold."""
    reader = FrameReader()
    reader.feed(data)
    return list(iter(reader.next, None))


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


def test_a_write_to_a_closed_socket_is_a_lost_link_and_no_end_of_the_node(links: Links) -> None:
    def turn() -> None:
        assert links.send("n1", 1, b"a")

    links.transport.is_closed = True
    links.take_turn(turn)
    assert links.lost == [], "in the middle of a turn"
    assert not links.send("n1", 1, b"b")
    (step,) = links.steps.soon
    step()
    assert links.lost == ["n1"]
    assert not links.send("n1", 1, b"c")
    links.take_turn(lambda: None)
    step()
    assert links.lost == ["n1"], "once only"


def test_an_error_of_the_system_in_the_work_for_a_frame_is_told(links: Links) -> None:
    """As an `OSError`, it only closed the link: uvloop takes it for one of the connection."""

    def refuse(*_: object) -> None:
        raise OSError(5, "Input/output error")

    links.router = cast(Any, SimpleNamespace(receive=refuse))
    with pytest.raises(Failed, match="Input/output error"):
        links._links["n1"].data_received(encode_frame(1, b""))


@pytest.mark.parametrize(("heartbeat_ms", "idle_s"), [(50, 3.0), (4000, 12.0)])
def test_a_link_is_idle_after_some_heartbeats(
    heartbeat_ms: int, idle_s: float, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a heartbeat each 4 s, every link between idle nodes was closed each 3 s."""
    closed: list[str] = []
    monkeypatch.setattr(links, "_config", config(heartbeat_ms=heartbeat_ms))
    monkeypatch.setattr(links._links["n1"], "close", lambda: closed.append("n1"))
    for now_s, expected in ((idle_s, []), (idle_s + 0.1, ["n1"])):
        monkeypatch.setattr(links.steps, "time", lambda now_s=now_s: now_s)
        links.close_silent(0.0)
        assert closed == expected
    assert links._links["n1"].failure == "timed out"


class Stranger:
    """A connection whose other side sends nothing."""

    def __init__(self, links: PeerLinks) -> None:
        self.is_closed = False
        self.protocol = PeerProtocol(links, None)
        self.protocol.connection_made(cast(Any, self))

    def set_write_buffer_limits(self, high: int) -> None:
        """Accept any limit."""

    def write(self, data: bytes) -> None:
        """Ignore this node's hello."""

    def abort(self) -> None:
        self.is_closed = True
        self.protocol.connection_lost(None)


class Answering(PeerLinks):
    """Links of n0, to which strangers connect."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(config(), loop, lambda line, level=0: None, trust_of())

    def handshake(self, expected: str | None) -> Any:
        return SimpleNamespace(start=lambda: b"hello", done=None)


@pytest.mark.constants
def test_a_member_that_never_says_its_hello_has_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen member's kernel takes the connection: it was said to have closed the link."""
    monkeypatch.setattr(aio_peers, "HELLO_TIMEOUT_S", 0.01)

    async def main() -> str:
        silent = Stranger(Answering())
        await asyncio.wait_for(silent.protocol.closed, 60)
        return silent.protocol.failure

    assert asyncio.run(main()) == "timed out"


class Upgraded(PeerLinks):
    """Links of n0, which takes old proofs no longer, and its answers to one connection."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(config(), loop, lambda line, level=0: None, trust_of())
        self.told: list[tuple[str, int]] = []
        self.protocol = PeerProtocol(self, None)
        self.transport = Transport()
        self.protocol.connection_made(cast(Any, self.transport))

    def handshake(self, expected: str | None) -> Handshake:
        return Handshake(hello("n0"), SECRET, expected, lambda: False)

    def refused(self, peer: str, cause: int, reason: str) -> None:
        self.told.append((peer, cause))


def test_an_older_program_is_told_why_its_proof_is_refused() -> None:
    """It waited for ever after an upgrade had ended, and logged nothing."""

    async def main() -> None:
        links = Upgraded()
        old = Handshake(hello("n1", version_max=DIRECTED_SINCE - 1), SECRET, "n0")
        proof = old.receive(frames_of(links.transport.writes.pop())[0])
        links.protocol.data_received(old.start() + proof)
        answer, refusal = frames_of(b"".join(links.transport.writes))
        assert old.receive(answer) == b""
        assert refusal[0] == REFUSE
        cause, words = old.refusal(refusal)
        assert cause == VERSIONS
        assert words.startswith("n1 proves its peer_secret as releases up to 0.3.0 do")
        assert links.told == [("n1", VERSIONS)]
        assert links.trust.refusals["old_proof"] == 1

    asyncio.run(main())


def test_strangers_take_a_bounded_number_of_connections() -> None:
    async def main() -> None:
        links = Answering()
        strangers = [Stranger(links) for _ in range(STRANGERS_MAX)]
        assert not any(stranger.is_closed for stranger in strangers)
        strangers[1].abort()
        strangers.append(Stranger(links))
        assert not strangers[0].is_closed, "there is room again"
        links.forget_stranger(strangers[0].protocol)  # a member
        strangers += [Stranger(links), Stranger(links)]
        closed = [place for place, stranger in enumerate(strangers) if stranger.is_closed]
        assert closed == [1, 2], "the oldest makes room"

    asyncio.run(main())


class Dialing(PeerLinks):
    """Links of n0 whose dial is cancelled between `connection_made` and its end."""

    def __init__(self, port: int) -> None:
        members = {"n0": "127.0.0.1:1", "n1": f"127.0.0.1:{port}"}
        view = SimpleNamespace(node_id="n0", peers=("n1",), peer_address=members.__getitem__)
        loop = asyncio.get_running_loop()
        super().__init__(cast(Any, view), loop, lambda line, level=0: None, trust_of())
        self.over: list[PeerProtocol] = []
        self.dial: asyncio.Task[None]

    def handshake(self, expected: str | None) -> Any:
        return SimpleNamespace(start=self._start)

    def _start(self) -> bytes:
        self.loop.call_soon(self.dial.cancel)  # as by a time-out that is due in the same step
        return b"x"

    def ended(self, protocol: PeerProtocol) -> None:
        self.over.append(protocol)


def test_a_dial_that_is_cancelled_once_connected_leaves_no_link() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            links = Dialing(listener.getsockname()[1])
            links.dial = asyncio.create_task(links._dial("n1"))
            await asyncio.wait([links.dial], timeout=60)
            assert links.dial.cancelled()
            (protocol,) = links.over
            assert not protocol.send(1, b"a")
            protocol.flush()
            protocol.close()
            for _ in range(10):
                await asyncio.sleep(0)
            assert links.over == [protocol], "ended once only"

    uvloop.run(main())


def test_all_addresses_are_those_of_both_versions_of_ip() -> None:
    """The event loops restrict a socket that they bind themselves to IPv6."""

    async def main() -> None:
        view = SimpleNamespace(node_id="n0", peers=(), peer_listen="[::]:0")
        loop = asyncio.get_running_loop()
        links = PeerLinks(cast(Any, view), loop, lambda line, level=0: None, trust_of())
        await links.start(cast(Any, None), cast(Any, None))
        server = cast(asyncio.Server, links._server)
        port = server.sockets[0].getsockname()[1]
        try:
            for host in ("127.0.0.1", "::1"):
                socket.create_connection((host, port), 60).close()
        finally:
            await links.stop()

    uvloop.run(main())
