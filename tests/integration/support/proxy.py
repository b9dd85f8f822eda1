"""A TCP proxy that can cut a link between two nodes, used through their dial map.

One thread runs an event loop for all proxies of a test. The test decides which links are cut when.
A closed link resets connections; a silent one holds all bytes back.
"""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Final

from tests.integration.support.raw import Address

PIECE_BYTES: Final = 65536
CALL_TIMEOUT_S: Final = 60.0


class Link:
    """One listening port and its target address. Used only in the loop of its `Links`."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self.closed = False
        self.joined = 0
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def listen(self, port: int) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self.closed = True
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await self._join(reader, writer)
        self._writers.discard(writer)
        writer.transport.abort()
        self._tasks.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.closed:
            return
        host, _, port = self.target.rpartition(":")
        back_reader, back_writer = await asyncio.open_connection(host, int(port))
        self._writers.add(back_writer)
        self.joined += 1
        try:
            if not self.closed:
                # The end of one direction ends both, as when a machine disappears.
                pumps = [
                    asyncio.create_task(self._pump(reader, back_writer)),
                    asyncio.create_task(self._pump(back_reader, writer)),
                ]
                try:
                    await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for pump in pumps:
                        pump.cancel()
                    await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            self._writers.discard(back_writer)
            back_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(PIECE_BYTES):
            await self.flowing.wait()
            writer.write(data)
            await writer.drain()


class Links:
    """All links between the nodes of a cluster, by (dialling node, dialled node)."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies")
        self._thread.start()
        self._links: dict[tuple[int, int], Link] = {}

    def add(self, dialling: int, dialled: int, port: int, target: Address) -> Address:
        """Listen at a port for one node's traffic to another; returns the address to dial."""

        async def make() -> Link:
            link = Link(target)
            await link.listen(port)
            return link

        self._links[dialling, dialled] = self._call(make())
        return f"127.0.0.1:{port}"

    def cut(self, one: int, other: int, silent: bool) -> None:
        """Cut the link between two nodes in both directions."""
        self._change(one, other, False, silent)

    def restore(self, one: int, other: int) -> None:
        """Let both directions work again."""
        self._change(one, other, True, False)

    def joined(self, one: int, other: int) -> int:
        """Return the number of connections made so far between two nodes, in both directions."""
        return self._links[one, other].joined + self._links[other, one].joined

    def close(self) -> None:
        async def stop() -> None:
            for link in self._links.values():
                await link.stop()

        self._call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()

    def _change(self, one: int, other: int, works: bool, silent: bool) -> None:
        async def change() -> None:
            for pair in ((one, other), (other, one)):
                link = self._links[pair]
                if works:
                    link.closed = False
                    link.flowing.set()
                elif silent:
                    link.flowing.clear()
                else:
                    link.cut()

        self._call(change())

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)
