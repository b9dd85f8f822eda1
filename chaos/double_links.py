"""The connections of our double of toxiproxy: bytes that are late, slow, cut off or lost.

Toxics behave as in toxiproxy 2.12, according to its documentation and a recorded session with a
real server. The HTTP API is in `toxiproxy_double`.
"""

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from typing import Final

CHUNK_BYTES: Final = 32 * 1024
# The most chunks in transit in one direction; then the sender is no longer read.
CHUNKS_MAX: Final = 256
# Data that is slowed down is sent in steps of this length.
STEP_S: Final = 0.1
UPSTREAM: Final = "upstream"  # from the client to the server
DOWNSTREAM: Final = "downstream"
STREAMS: Final = (UPSTREAM, DOWNSTREAM)
# The attributes of each type, all integers: ms (us for the slicer), bytes, rates in KB/s.
ATTRIBUTES: Final = {
    "latency": ("latency", "jitter"),
    "bandwidth": ("rate",),
    "slow_close": ("delay",),
    "timeout": ("timeout",),
    "reset_peer": ("timeout",),
    "slicer": ("average_size", "size_variation", "delay"),
    "limit_data": ("bytes",),
}


class Toxic:
    """One toxic of a proxy."""

    def __init__(self, name: str, kind: str, stream: str) -> None:
        self.name = name
        self.kind = kind
        # As given, in upper or lower case.
        self.stream = stream
        self.toxicity: float = 1
        self.attributes = dict.fromkeys(ATTRIBUTES[kind], 0)

    @property
    def direction(self) -> str:
        return self.stream.lower()

    def as_json(self) -> dict[str, object]:
        return {
            "attributes": self.attributes,
            "name": self.name,
            "type": self.kind,
            "stream": self.stream,
            # As Go formats numbers: 1 and not 1.0.
            "toxicity": int(self.toxicity) if self.toxicity in (0, 1) else self.toxicity,
        }


class Proxy:
    """One listening address and the connections through it."""

    def __init__(self, name: str, listen: str, upstream: str) -> None:
        self.name = name
        self.listen = listen
        self.upstream = upstream
        self.toxics: list[Toxic] = []
        self._server: asyncio.Server | None = None
        self._pairs: set[Pair] = set()
        self._changed = asyncio.Event()

    @property
    def enabled(self) -> bool:
        return self._server is not None

    def as_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "listen": self.listen,
            "upstream": self.upstream,
            "enabled": self.enabled,
            "Logger": {},
            "toxics": self.toxics_as_json(),
        }

    def toxics_as_json(self) -> list[dict[str, object]]:
        """Return all toxics, those of upstream first."""
        found = sorted(self.toxics, key=lambda toxic: toxic.direction != UPSTREAM)
        return [toxic.as_json() for toxic in found]

    def differs(self, listen: str, upstream: str) -> bool:
        """Whether the proxy has another listening address or another upstream."""
        with contextlib.suppress(OSError, ValueError):
            listen = _resolved(listen)
        return (listen, upstream) != (self.listen, self.upstream)

    async def start(self) -> None:
        """Listen; OSError if the address is taken, ValueError if the port is not a number."""
        host, _, port = _resolved(self.listen).rpartition(":")
        self._server = await asyncio.start_server(self._accepted, host, int(port))
        self.listen = "{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Refuse connections, and end the existing ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for pair in list(self._pairs):
            pair.end()
        await asyncio.sleep(0)

    def change(self) -> None:
        """Wake all waits that depend on toxics, which may have changed."""
        self._changed.set()
        self._changed = asyncio.Event()
        for pair in self._pairs:
            pair.wake()

    def remove(self, toxic: Toxic) -> None:
        """Remove a toxic; connections that a timeout held end."""
        self.toxics.remove(toxic)
        if toxic.kind == "timeout":
            for pair in list(self._pairs):
                pair.end()
        self.change()

    async def nap(self, seconds: float | None) -> bool:
        """Wait up to `seconds`, None for ever; return whether the toxics changed meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.upstream.rpartition(":")
        try:
            there = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()  # as toxiproxy does: accepted, then closed
            return
        pair = Pair((reader, writer), there)
        self._pairs.add(pair)
        try:
            await pair.run(self)
        finally:
            self._pairs.discard(pair)
            pair.end()


def _resolved(place: str) -> str:
    """Return an address with its host as an IPv4 address, the only kind that is supported."""
    host, _, port = place.rpartition(":")
    return f"{socket.gethostbyname(host)}:{int(port)}"


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pair:
    """A client's connection and the corresponding one to the server.

    There are no half-closed connections: the end of one direction closes the socket it wrote to, so
    the other direction ends, too, as late as its toxics demand.
    """

    def __init__(self, client: Ends, server: Ends) -> None:
        self._client = client
        self._server = server
        self._links: list[Link] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, proxy: Proxy) -> None:
        """Carry bytes both ways until both have ended."""
        up = Link(proxy, UPSTREAM, self._client[0], self._server[1])
        down = Link(proxy, DOWNSTREAM, self._server[0], self._client[1])
        self._links = [up, down]
        self._tasks = [asyncio.create_task(self._carry(link)) for link in self._links]
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, link: "Link") -> None:
        try:
            if await link.run():
                self.reset()
        finally:
            link.close()

    def wake(self) -> None:
        """Let both directions notice that the toxics changed."""
        for link in self._links:
            link.wake()

    def end(self) -> None:
        """End at once, regardless of toxics."""
        for task in self._tasks:
            task.cancel()
        for _, writer in (self._client, self._server):
            writer.close()

    def reset(self) -> None:
        """End with a TCP reset."""
        for _, writer in (self._client, self._server):
            found = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                linger = struct.pack("ii", 1, 0)
                found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


class Link:
    """One direction of a connection."""

    def __init__(
        self,
        proxy: Proxy,
        stream: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy = proxy
        self._stream = stream
        self._reader = reader
        self._writer = writer
        self._queue: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(CHUNKS_MAX)
        self._rolled: dict[Toxic, bool] = {}
        # A toxic resets only connections that were opened while it existed.
        self._first = frozenset(proxy.toxics)
        # The bytes that passed each limit, since the toxic or this connection began.
        self._passed_bytes: Counter[Toxic] = Counter()

    async def run(self) -> bool:
        """Carry all data; return whether the connection is to be reset."""
        reading = asyncio.create_task(self._read())
        try:
            while True:
                if (found := await self._next()) is None:
                    return False
                at_s, data = found
                toxics = self._active()
                if data is None:
                    continue
                resets = [toxic for toxic in toxics if toxic.kind == "reset_peer"]
                if resets:
                    await self._proxy.nap(self._of(toxics, "reset_peer", "timeout") / 1e3)
                    return not self._first.isdisjoint(resets)
                if not data:
                    await self._proxy.nap(self._of(toxics, "slow_close", "delay") / 1e3)
                    return False
                if any(toxic.kind == "timeout" for toxic in toxics):
                    continue
                if await self._deliver(at_s, data, toxics):
                    return False
        except OSError:
            return False
        finally:
            reading.cancel()

    def close(self) -> None:
        """Close the socket that this direction writes to."""
        self._writer.close()

    def wake(self) -> None:
        """Check the toxics again; with a full queue that happens anyway."""
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait((0.0, None))

    async def _next(self) -> tuple[float, bytes | None] | None:
        """Return the next chunk, or None after a timeout, which restarts at each chunk."""
        timeout_s = self._of(self._active(), "timeout", "timeout") / 1e3
        try:
            async with asyncio.timeout(timeout_s or None):
                return await self._queue.get()
        except TimeoutError:
            return None

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = await self._reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            await self._queue.put((loop.time(), data))
            if not data:
                return

    def _active(self) -> list[Toxic]:
        """Return the toxics of this direction that apply, by chance, once per connection."""
        return [
            toxic
            for toxic in self._proxy.toxics
            if toxic.direction == self._stream
            and self._rolled.setdefault(toxic, random.random() < toxic.toxicity)
        ]

    def _of(self, toxics: list[Toxic], kind: str, attribute: str) -> int:
        return sum(toxic.attributes[attribute] for toxic in toxics if toxic.kind == kind)

    async def _deliver(self, at_s: float, data: bytes, toxics: list[Toxic]) -> bool:
        """Send a chunk as late and slowly as the toxics demand; return whether it was the last."""
        kinds = {toxic.kind: toxic.attributes for toxic in toxics}
        if latency := kinds.get("latency"):
            jitter = latency["jitter"]
            late_ms = latency["latency"] + random.uniform(-jitter, jitter)
            loop = asyncio.get_running_loop()
            await self._proxy.nap(max(0.0, at_s + late_ms / 1e3 - loop.time()))
        ends = False
        for limit in [toxic for toxic in toxics if toxic.kind == "limit_data"]:
            left = limit.attributes["bytes"] - self._passed_bytes[limit]
            data = data[: max(0, left)]
            ends = ends or len(data) >= left
            self._passed_bytes[limit] += len(data)
        for piece, pause_s in self._pieces(data, kinds):
            if pause_s is None or pause_s:
                await self._proxy.nap(pause_s)
            self._writer.write(piece)
            await self._writer.drain()
        return ends

    @staticmethod
    def _pieces(data: bytes, kinds: dict[str, dict[str, int]]) -> list[tuple[bytes, float | None]]:
        """Return the pieces of a chunk, each with the time to wait before it."""
        if bandwidth := kinds.get("bandwidth"):
            rate = bandwidth["rate"] * 1000
            if not rate:
                return [(data, None)]
            size = max(1, int(rate * STEP_S))
            parts = [data[begin : begin + size] for begin in range(0, len(data), size)]
            return [(part, len(part) / rate) for part in parts]
        slicer = kinds.get("slicer")
        if not slicer or slicer["average_size"] < 1:
            return [(data, 0.0)]
        found, begin = [], 0
        while begin < len(data):
            variation = random.randint(-slicer["size_variation"], slicer["size_variation"])
            end = begin + max(1, slicer["average_size"] + variation)
            found.append((data[begin:end], slicer["delay"] / 1e6))
            begin = end
        return list(found)
