"""The asyncio client on real sockets."""

import asyncio
import socket

import pytest

from beanpole.client import aio

# Of a node that accepts the connection and never answers.
REPLY_TIMEOUT_S = 0.05


def test_the_error_of_a_node_that_does_not_answer_says_so() -> None:
    async def run() -> None:
        ends = asyncio.Event()

        async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await ends.wait()
            writer.close()

        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        client = aio.Client(address, reply_timeout_s=REPLY_TIMEOUT_S)
        with pytest.raises(aio.MayBeDoneError, match=f"127.0.0.1:{address[1]}: timed out"):
            await client.put("x")
        await client.close()
        ends.set()
        server.close()

    asyncio.run(run())


def test_a_request_that_a_node_does_not_read_is_given_up_with_its_connection() -> None:
    """Its bytes would be kept in memory until the node reads or ends, for each attempt."""
    body = "x" * 32_000_000

    async def run() -> int:
        client = aio.Client(listener.getsockname(), reply_timeout_s=REPLY_TIMEOUT_S)
        await client.connect()
        node, _ = listener.accept()
        with node:
            with pytest.raises(aio.MayBeDoneError):
                await client.put(body)
            await client.close()
            await asyncio.sleep(0)
            return await asyncio.to_thread(read_all, node)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(run()) < len(body)


def read_all(node: socket.socket) -> int:
    """Return how many bytes come until the other end closes."""
    node.settimeout(60)
    size = 0
    while data := node.recv(1_000_000):
        size += len(data)
    return size
