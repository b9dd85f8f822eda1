"""An error of the system in the work for received bytes, which uvloop would hide."""

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from beanpoled.host.aio_clients import ClientProtocol
from beanpoled.host.sockets import Failed

TIMEOUT_S = 60.0


def refuse(_: bytes) -> None:
    raise OSError(5, "Input/output error")


def client() -> ClientProtocol:
    """Return the protocol of a client whose commands need a disk that fails."""
    connection = SimpleNamespace(received=refuse, lost=lambda: None)
    clients = SimpleNamespace(unread=SimpleNamespace(forget=lambda _: None))
    frontend = SimpleNamespace(connected=lambda _: connection, clients=clients)
    return ClientProtocol(cast(Any, frontend))


def test_an_error_of_the_system_is_not_taken_for_a_broken_connection() -> None:
    async def main() -> Any:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[Any] = loop.create_future()
        loop.set_exception_handler(lambda _, context: told.set_result(context["exception"]))
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            await loop.connect_accepted_socket(cast(Any, client), ours)
            theirs.sendall(b"put 0 0 1 1\r\na\r\n")
            return await asyncio.wait_for(told, TIMEOUT_S)

    error = uvloop.run(main())
    assert isinstance(error, Failed) and isinstance(error.__cause__, OSError)
