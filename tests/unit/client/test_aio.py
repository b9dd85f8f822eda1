"""The asyncio client on real sockets."""

import asyncio

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
