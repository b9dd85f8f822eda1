"""File descriptors of a node that anybody can take, without a secret, a token or a certificate."""

import asyncio

import pytest

from beanpoled import descriptors
from beanpoled.host import aio_peers
from beanpoled.http import server as http_server
from beanpoled.rpc import admin, door
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of


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
    assert strangers + 256 <= descriptors.SPARE
