"""File descriptors of a node that anybody can take, without a secret, a token or a certificate."""

import asyncio
import resource
from typing import Any

import pytest

from beanpoled import descriptors
from beanpoled.frontends import clients
from beanpoled.host import aio_peers
from beanpoled.host.log import LogLines
from beanpoled.http import server as http_server
from beanpoled.rpc import admin, door
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of
from tests.unit.node.stage import config


def test_connections_of_anybody_take_a_bounded_number_of_descriptors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admin, "CALLERS_MAX", 3)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))

    async def is_let_in(port: int, callers: list[asyncio.StreamWriter]) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        callers.append(writer)
        writer.write(preface)
        try:
            return bool(await reader.read(1))  # the server's settings
        except ConnectionError:
            return False

    async def test() -> None:
        view = FakeView()
        trust = trust_of()
        server = RpcServer(view, PeerClient({}, trust), trust)
        port = await server.start("127.0.0.1:0")
        callers: list[asyncio.StreamWriter] = []
        let_in.extend([await is_let_in(port, callers) for _ in range(5)])
        for writer in callers:
            writer.close()
        await server.stop(0)

    let_in: list[bool] = []
    asyncio.run(asyncio.wait_for(test(), 60))
    assert let_in == [True] * 3 + [False] * 2


def test_descriptors_are_left_for_the_log() -> None:
    strangers = door.CALLERS_MAX + aio_peers.STRANGERS_MAX + http_server.CONNECTIONS_MAX
    assert strangers + clients.REFUSED_MAX + 256 <= descriptors.SPARE


CLIENT_TLS = {"tls_certificate_file": "c"}
PEER_TLS = {"peer_tls_certificate_file": "c"}


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, 16_000),
        (CLIENT_TLS, 16_200),
        (PEER_TLS | {"handshakes_max": 30}, 16_030),
        (CLIENT_TLS | PEER_TLS | {"handshakes_max": 100_000}, 216_000),
    ],
)
def test_handshakes_in_progress_have_descriptors(settings: dict[str, Any], wanted: int) -> None:
    assert descriptors.wanted(config(**settings)) == wanted + descriptors.SPARE


@pytest.mark.parametrize(
    ("connections", "handshakes", "free", "left"),
    [
        (16_000, 200, 1_000, (600, 200)),
        (16_000, 200, 256, (128, 64)),
        (16_000, 100_000, 50_000, (16_000, 17_000)),
        (16_000, 100_000, 20_000, (10_000, 5_000)),
        (16_000, 200, -9, (1, 1)),
        (16_000, 200, 16_400, (16_000, 200)),
    ],
)
def test_few_descriptors_are_shared_by_clients_and_handshakes(
    connections: int,
    handshakes: int,
    free: int,
    left: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    given = descriptors.SPARE + free
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (given, given))
    limits = {"connections_max": connections, "handshakes_max": handshakes}
    made = config(**CLIENT_TLS, **PEER_TLS, **limits)
    found = descriptors.fitting(made, LogLines(made))
    assert (found.connections_max, found.handshakes_max) == left
    said = capfd.readouterr().err
    for name, before, after in zip(limits, (connections, handshakes), left, strict=True):
        words = f"{name} = {before} is lowered to {after}: the system gives this process {given} "
        assert (words in said) == (before != after)
