"""One beanstalk connection that records each command and its reply.

It is written from docs/protocol.md. The choice of commands belongs to `traffic`.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

from tests.pipeline.ledger.book import Book, Command, Connection, now_us

CRLF: Final = b"\r\n"
# Replies with a payload, whose size is the last word of the line.
WITH_PAYLOAD: Final = ("RESERVED", "FOUND", "OK")

# A line, with a body for a put.
Request = str | tuple[str, bytes]


class Speaker(asyncio.Protocol):
    """A connection; `connect` opens one."""

    def __init__(self, book: Book, node: int, host: str) -> None:
        self.book = book
        self.record: Connection = book.opened(node, host)
        self.used = "default"
        self.watched = {"default"}
        self._buffer = bytearray()
        self._unanswered: deque[Command] = deque()
        self._payload: tuple[tuple[str, ...], int] | None = None
        self._transport: asyncio.Transport | None = None
        self._progress: asyncio.Future[None] | None = None
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @property
    def is_open(self) -> bool:
        return not self.record.end

    async def ask(self, *requests: Request) -> list[Command]:
        """Send commands together and wait for all replies or the end of the connection."""
        commands = self.send(requests)
        while self.is_open and self._unanswered:
            self._progress = asyncio.get_running_loop().create_future()
            await self._progress
        return commands

    def send(self, requests: Sequence[Request]) -> list[Command]:
        """Send commands together; a closed connection sends nothing."""
        if not self.is_open:
            return []
        sent_us, data, commands = now_us(), bytearray(), []
        for request in requests:
            line, body = (request, b"") if isinstance(request, str) else request
            words = line.split()
            numbers = tuple(int(word) for word in words[1:] if word.isdecimal())
            command = Command(
                self.record.number,
                words[0],
                line,
                numbers,
                body,
                self.used,
                frozenset(self.watched),
                sent_us,
            )
            self._follow(words)
            self.book.note(command)
            commands.append(command)
            data += line.encode() + CRLF
            if words[0] == "put":
                data += body + CRLF
        self._unanswered.extend(commands)
        assert self._transport
        self._transport.write(bytes(data))
        return commands

    def _follow(self, words: list[str]) -> None:
        if words[0] == "use":
            self.used = words[1]
        elif words[0] == "watch":
            self.watched.add(words[1])
        elif words[0] == "ignore" and len(self.watched) > 1:
            self.watched.discard(words[1])

    def data_received(self, data: bytes) -> None:
        received_us = now_us()
        self._buffer += data
        while self._take(received_us):
            pass
        if not self._unanswered:
            self._wake()

    def _take(self, received_us: int) -> bool:
        """Take one reply from the buffer; return False if none is complete."""
        payload = b""
        if self._payload is None:
            end = self._buffer.find(CRLF)
            if end < 0:
                return False
            words = tuple(self._buffer[:end].decode().split(" "))
            del self._buffer[: end + 2]
            if words[0] in WITH_PAYLOAD:
                self._payload = words, int(words[-1])
        if self._payload is not None:
            words, size = self._payload
            if len(self._buffer) < size + 2:
                return False
            payload = bytes(self._buffer[:size])
            assert self._buffer[size : size + 2] == CRLF
            del self._buffer[: size + 2]
            self._payload = None
        command = self._unanswered.popleft()
        command.reply, command.payload, command.received_us = words, payload, received_us
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._end("lost")
        self._lost.set()

    def _end(self, how: str) -> None:
        if self.is_open:
            self.record.end, self.record.ended_us = how, now_us()
        self._wake()

    def _wake(self) -> None:
        if self._progress and not self._progress.done():
            self._progress.set_result(None)

    def close(self) -> None:
        """Close the connection at once, even with unanswered commands."""
        self._end("closed")
        assert self._transport
        self._transport.abort()  # bytes that a dead node never reads would keep the connection open

    async def quit(self) -> None:
        """End the connection by the protocol's `quit`, and wait until the node has closed it."""
        if self.is_open:
            at_us = now_us()
            self.send(["quit"])
            self._end("quit")
            self.record.ended_us = at_us
        # A socket that outlives the loop causes a warning, which fails a later test.
        await self._lost.wait()


async def connect(book: Book, addresses: Sequence[str], first: int, host: str) -> Speaker:
    """Connect to the first node that accepts, beginning with node number `first`.

    Args:
        host: the address of this machine from which the connection comes; any of 127.0.0.0/8.
    """
    while True:
        for step in range(len(addresses)):
            node = (first + step) % len(addresses)
            there, _, port = addresses[node].rpartition(":")
            loop = asyncio.get_running_loop()
            with contextlib.suppress(OSError):
                _, found = await loop.create_connection(
                    partial(Speaker, book, node, host), there, int(port), local_addr=(host, 0)
                )
                return found
        await asyncio.sleep(0)
