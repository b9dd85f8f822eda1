"""The asyncio client on real sockets."""

import asyncio
import gc
import socket
import warnings
from collections.abc import Callable

import pytest
import uvloop

from beanpole.client import aio
from tests.unit.client.scripted import Node

# Of a node that accepts the connection and never answers.
REPLY_TIMEOUT_S = 0.05
LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


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


@LOOPS
def test_a_client_goes_on_in_another_event_loop(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Each `asyncio.run` has one of its own, and closes it."""
    put = b"put 65536 0 60 1\r\nx\r\n"
    node = Node(
        [(put, b"INSERTED 1\r\n"), (put, b"INSERTED 2\r\n")],
        [(put, b"INSERTED 3\r\n"), (put, b"INSERTED 4\r\n")],
    )
    client = aio.Client(node.address)

    async def put_two() -> list[int]:
        puts = [client.put("x"), client.put("x")]  # one waits for the other
        return await asyncio.gather(*puts)

    async def last() -> None:
        await client.close()
        with pytest.raises(aio.ClosedError):
            await client.put("x")

    with warnings.catch_warnings():
        # Python warns of connections that were open when their loop was closed.
        warnings.simplefilter("ignore", ResourceWarning)
        for jobs in ([1, 2], [3, 4]):
            with asyncio.Runner(loop_factory=loop) as runner:
                assert runner.run(put_two()) == jobs
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(last())
        node.finish()  # it has met the end of both connections
        gc.collect()


@LOOPS
def test_a_connection_of_a_loop_that_turns_no_more_is_ended(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Otherwise the node would not give out the jobs that are reserved on it."""
    node = Node([], [])
    client = aio.Client(node.address)
    with asyncio.Runner(loop_factory=loop) as first:
        first.run(client.connect())
        with asyncio.Runner(loop_factory=loop) as second:
            second.run(client.connect())
            second.run(client.close())
        node.finish()
