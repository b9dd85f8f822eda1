"""Tasks that a part of a node keeps: an error of one ends the node, as one in a callback does."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from beanpoled.host import aio_peers
from beanpoled.host.aio_peers import PeerLinks
from beanpoled.rpc import admin
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.door import Door
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of, until
from tests.unit.node.stage import Stage, config


def wrong(*_: object) -> None:
    """Stand for a bug."""
    raise ValueError("bug")


def seen(work: Callable[[], Awaitable[Callable[[], Awaitable[None]]]]) -> list[str]:
    """Do something and stop it; return the errors that the handler of the loop was told of."""
    found: list[str] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: found.append(repr(context["exception"])))
        stop = await work()
        await until(lambda: found)
        await stop()

    uvloop.run(asyncio.wait_for(run(), 10))
    return found


@pytest.mark.constants
@pytest.mark.parametrize("name", ["close_silent", "handshake"])
def test_an_error_of_the_tasks_of_links(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No member would be dialed any more, or no silent link closed."""
    monkeypatch.setattr(aio_peers, "IDLE_MAX_S", 0.03)
    monkeypatch.setattr(PeerLinks, name, wrong)
    stage = Stage()

    async def work() -> Callable[[], Awaitable[None]]:
        made = config(node_id="n1", peer_listen="127.0.0.1:0")
        loop = asyncio.get_running_loop()
        links = PeerLinks(made, loop, lambda line, level=0: None, trust_of())
        router = cast(Any, SimpleNamespace(link_down=None))
        await links.start(router, stage.node.introductions)
        return links.stop

    assert seen(work)[:1] == ["ValueError('bug')"]


@pytest.mark.constants
@pytest.mark.parametrize(("part", "name"), [(RpcServer, "refresh_health"), (Door, "make_room")])
def test_an_error_of_the_tasks_of_the_grpc_server(
    part: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The health would stay what it was, or strangers keep their places."""
    monkeypatch.setattr(admin, "HEALTH_PERIOD_S", 0.01)

    async def work() -> Callable[[], Awaitable[None]]:
        trust = trust_of()
        server = RpcServer(FakeView(), PeerClient({}, trust), trust)
        await server.start("127.0.0.1:0")
        monkeypatch.setattr(part, name, wrong)
        return server.stop

    assert seen(work) == ["ValueError('bug')"]
