"""A fork of a process closes its copy of a client, and the parent goes on with its own."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from beanpole.client import aio, blocking
from beanpole.client.sansio import session
from tests.unit.client.scripted import Node

TOKEN = "t" * 32
KEPT = [
    (b"extensions\r\n", b"OK 19\r\n---\n- keep\n- resume\r\n"),
    (b"keep " + TOKEN.encode() + b" 60\r\n", b"KEPT\r\n"),
]
USED = (b"list-tube-used\r\n", b"USING default\r\n")
QUIT = (b"quit\r\n", b"")


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(session, "token_urlsafe", lambda _: TOKEN)
    return Node([*KEPT, USED, QUIT])


def in_a_child(act: Callable[[], None]) -> None:
    child = os.fork()
    if not child:
        signal.alarm(30)
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_closes_leaves_the_session_alone(node: Node) -> None:
    with blocking.Client(node.address, keep=60) as client:

        def close() -> None:
            with client:
                pass
            client.close()
            assert not client.is_kept
            with pytest.raises(blocking.ClosedError):
                client.using()

        in_a_child(close)
        assert client.is_kept
        assert client.using() == "default"
    node.finish()


def test_a_command_in_a_child_leaves_the_session_alone(node: Node) -> None:
    with blocking.Client(node.address, keep=60) as client:

        def ask() -> None:
            for _ in range(2):
                with pytest.raises(blocking.ClosedError, match="belongs to the process"):
                    client.using()
            client.close()

        in_a_child(ask)
        assert client.using() == "default"
    node.finish()


def test_a_command_in_a_loop_of_a_child_as_well(node: Node) -> None:
    async def run() -> None:
        async with aio.Client(node.address, keep=60) as client:

            async def ask() -> None:
                for _ in range(2):
                    with pytest.raises(aio.ClosedError, match="belongs to the process"):
                        await client.using()
                await client.close()

            in_a_child(lambda: asyncio.run(ask()))
            assert await client.using() == "default"

    asyncio.run(run())
    node.finish()


def test_an_asyncio_client_as_well(node: Node) -> None:
    async def run() -> None:
        async with aio.Client(node.address, keep=60) as client:

            async def close() -> None:
                await client.close()
                assert not client.is_kept
                with pytest.raises(aio.ClosedError):
                    await client.using()

            in_a_child(lambda: asyncio.run(close()))
            assert await client.using() == "default"

    asyncio.run(run())
    node.finish()
