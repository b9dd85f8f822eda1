"""The places of a real gRPC port: who is closed, and who finds one."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from beanpole.pb import admin_pb2, admin_pb2_grpc, peer_pb2, peer_pb2_grpc
from beanpoled.cli.certs import make_ca, make_certificate
from beanpoled.rpc import door
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.door import Door
from beanpoled.rpc.peer import PeerClient
from beanpoled.trust.certificates import Certificates, Files
from beanpoled.trust.trust import Trust
from tests.integration.support.strangers import PREFACE
from tests.unit.beanpoled.fakes import FakeView, trust_of

KEPT = 3
TCP_ESTABLISHED = 1  # of Linux; Python has no name for it


class Scene:
    """A server, and strangers that are connected to it."""

    def __init__(self, trust: Trust) -> None:
        self.door = Door()
        self.peers = PeerClient({}, trust)
        self.server = RpcServer(FakeView(), self.peers, trust, door=self.door)
        self.port = 0
        self.strangers: list[asyncio.StreamReader] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def come(self, says: bytes = PREFACE) -> asyncio.StreamReader:
        """Return a new stranger, which the door has seen."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.strangers.append(reader)
        self._writers.append(writer)
        writer.write(says)
        own = writer.get_extra_info("sockname")
        await seen(lambda: (b"127.0.0.1", own[1]) in self.door._names, self.door)
        return reader

    async def stop(self) -> None:
        for writer in self._writers:
            writer.close()
        await self.peers.close()
        await self.server.stop(0)


async def seen(condition: Callable[[], object], door: Door) -> None:
    """Let gRPC's threads go on until the door sees that the condition holds."""
    while not condition():
        await asyncio.sleep(0)
        door._look()


async def ended(stranger: asyncio.StreamReader) -> bool:
    """Read until the connection is closed."""
    try:
        while await stranger.read(65536):
            pass
    except ConnectionError:
        pass
    return True


def is_open(writer: asyncio.StreamWriter) -> bool:
    """Whether the other end has not closed a connection, by the system: no reader knows it yet."""
    plain = writer.get_extra_info("socket")
    state: bytes = plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    return state == bytes([TCP_ESTABLISHED])


def run(
    test: Callable[[Scene], Coroutine[None, None, None]],
    trust: Trust | None = None,
    address: str = "127.0.0.1:0",
) -> None:
    async def main() -> None:
        scene = Scene(trust or trust_of())
        scene.port = await scene.server.start(address)
        assert scene.server._keeper is not None
        scene.server._keeper.cancel()  # the tests say when there is a look
        try:
            await test(scene)
        finally:
            await scene.stop()

    asyncio.run(asyncio.wait_for(main(), 120))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "KEPT", KEPT)


def connections(door: Door) -> int:
    return sum(one is not None for one in door._sockets.values())


@pytest.mark.parametrize("says", [PREFACE, b""], ids=["http/2", "nothing"])
def test_the_oldest_strangers_make_room(says: bytes) -> None:
    async def test(scene: Scene) -> None:
        for _ in range(KEPT + 2):
            await scene.come(says)
        scene.door.make_room()
        for gone in scene.strangers[:2]:
            assert await ended(gone)
        await seen(lambda: len(scene.door._names) == KEPT, scene.door)
        scene.door.make_room()
        assert all(map(is_open, scene._writers[2:]))
        assert not any(map(is_open, scene._writers[:2]))

    run(test)


def test_strangers_in_their_handshake_make_room(tmp_path: Path) -> None:
    make_ca(tmp_path, "1")
    make_certificate(tmp_path, "n0", ["n0"], "1")
    certificate, key, ca = (str(tmp_path / name) for name in ("n0.pem", "n0.key", "ca.pem"))
    trust = trust_of()
    trust.of_peers = Certificates(Files("peer_tls_", certificate, key, ca, ""))

    async def test(scene: Scene) -> None:
        for _ in range(KEPT + 1):
            await scene.come(b"")
        scene.door.make_room()
        assert await ended(scene.strangers[0])

    run(test, trust)


def test_one_name_has_not_a_place_at_each_address_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stranger on this machine could fill the port from one port of its own."""
    closed: list[int] = []
    monkeypatch.setattr(Door, "_close", lambda _self, number, _connection: closed.append(number))

    async def test(scene: Scene) -> None:
        callers = [socket.socket() for _ in range(KEPT + 2)]
        for number, caller in enumerate(callers):
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            caller.bind(("127.0.0.1", callers[0].getsockname()[1] if number else 0))
            caller.connect((f"127.0.0.{number + 1}", scene.port))
            await seen(lambda: connections(scene.door) > number, scene.door)  # noqa: B023
        scene.door.make_room()
        assert len(closed) == 2
        for caller in callers:
            caller.close()

    run(test, address="0.0.0.0:0")


def test_who_has_proved_itself_stays() -> None:
    async def test(scene: Scene) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{scene.port}") as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            await stub.NodeInfo(peer_pb2.NodeInfoRequest(), timeout=60)
            (member,) = scene.door._names.values()
            assert member.proved
            await seen(lambda: not member.calls, scene.door)
            for _ in range(KEPT):
                await scene.come()
            scene.door.make_room()
            assert await ended(scene.strangers[0])
            await stub.NodeInfo(peer_pb2.NodeInfoRequest(), timeout=60)
            assert scene.door._names[member.name] is member

    run(test)


def test_a_call_that_proves_nothing_changes_nothing() -> None:
    async def test(scene: Scene) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{scene.port}") as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            await stub.Status(admin_pb2.StatusRequest(local=True), timeout=60)
            scene.door._look()
            (caller,) = scene.door._names.values()
            assert not caller.proved and not caller.calls

    run(test)


def test_connections_that_end_are_forgotten() -> None:
    async def test(scene: Scene) -> None:
        scene.door._look()
        others = set(scene.door._sockets)
        for _ in range(5):
            await scene.come()
        for writer in scene._writers:
            writer.close()
        await seen(lambda: not scene.door._names, scene.door)
        assert set(scene.door._sockets) == others

    run(test)


def test_a_descriptor_that_is_of_another_by_now_is_left_alone() -> None:
    async def test(scene: Scene) -> None:
        await scene.come()
        (known,) = scene.door._names.values()
        ours, theirs = socket.socketpair()
        with ours, theirs, socket.create_connection(("127.0.0.1", scene.port)) as caller:
            for number in (ours.fileno(), caller.fileno()):
                scene.door._close(number, known)
            ours.sendall(b"open")
            assert theirs.recv(4) == b"open"
            caller.sendall(PREFACE)
        assert is_open(scene._writers[0])

    run(test)


def test_without_a_free_descriptor_nothing_is_forgotten_and_nobody_is_missed() -> None:
    async def test(scene: Scene) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{scene.port}") as channel:
            stub = peer_pb2_grpc.PeerStub(channel)
            await stub.NodeInfo(peer_pb2.NodeInfoRequest(), timeout=60)
            (member,) = scene.door._names.values()
            with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
                scene.door._look()
                os.open(os.devnull, os.O_RDONLY)
            assert list(scene.door._names.values()) == [member]
            # A descriptor for the poller is there, and none for the socket.
            (poller,) = scene.door._pollers
            before = len(door._polled(poller))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "dup", too_many)
                with socket.create_connection(("127.0.0.1", scene.port)) as caller:
                    await seen(lambda: len(door._polled(poller)) > before, scene.door)
                    scene.door._look()
                    assert connections(scene.door) == 1
                    patch.undo()
                    name = (b"127.0.0.1", caller.getsockname()[1])
                    await seen(lambda: name in scene.door._names, scene.door)

    run(test)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Leave this process no free file descriptor."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def too_many(_number: int) -> int:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_connections_of_http_at_an_equal_port_of_another_address_are_left_alone() -> None:
    async def main() -> None:
        writers: list[asyncio.StreamWriter] = []
        with socket.socket() as free:
            # A port that is free at the one address need not be free at the other.
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            http = await asyncio.start_server(lambda _, its: writers.append(its), "127.0.0.2", port)
        _, client = await asyncio.open_connection("127.0.0.2", port)
        scene = Scene(trust_of())
        scene.port = await scene.server.start(f"127.0.0.1:{port}")
        try:
            await scene.come()
            own = client.get_extra_info("sockname")
            assert (b"127.0.0.1", own[1]) not in scene.door._names
            assert len(scene.door._pollers) == 1
        finally:
            await scene.stop()
            for writer in (client, *writers):
                writer.close()
            http.close()

    asyncio.run(asyncio.wait_for(main(), 120))


def test_without_linux_all_is_as_grpc_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_DESCRIPTORS", "/no/such/folder")

    async def test() -> None:
        shut = Door()
        shut.prepare(1)
        shut.open(1)
        context: Any = None
        shut.prove(context)
        shut.make_room()
        await shut.keep()
        assert not shut._names and not shut._sockets

    asyncio.run(asyncio.wait_for(test(), 60))
