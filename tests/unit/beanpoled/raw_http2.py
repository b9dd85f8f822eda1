"""A client of gRPC that does what gRPC's own never do: frames of HTTP/2, written by hand."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

DATA, HEADERS, RESET, SETTINGS, PING = 0, 1, 3, 4, 6
_ACK = 1
_END_STREAM, _END_HEADERS = 1, 4
_INITIAL_WINDOW_SIZE = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes((kind, flags))
    return head + stream.to_bytes(4, "big") + payload


def _headers(path: str) -> bytes:
    fields = (":method POST", ":scheme http", f":path {path}", ":authority test")
    found = b""
    for field in (*fields, "content-type application/grpc", "te trailers"):
        name, _, value = field.encode().partition(b" ")
        # HPACK: a literal that is not indexed, with a new name.
        found += b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value
    return found


class RawClient:
    """A connection; its calls have odd numbers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._calls = 0

    def call(self, path: str, request: bytes | None = None) -> int:
        """Begin a call, with its request or without; return the number of its stream."""
        stream = 2 * self._calls + 1
        self._calls += 1
        self._writer.write(_frame(HEADERS, _END_HEADERS, stream, _headers(path)))
        if request is not None:
            self.send(stream, message(request), is_end=True)
        return stream

    def send(self, stream: int, data: bytes, *, is_end: bool = False) -> None:
        self._writer.write(_frame(DATA, _END_STREAM if is_end else 0, stream, data))

    async def frame(self, stream: int, kind: int) -> bytes:
        """Return the payload of the next such frame of a stream; skip others."""
        while True:
            head = await self._reader.readexactly(9)
            payload = await self._reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] in (SETTINGS, PING) and not head[4] & _ACK:
                shown = payload if head[3] == PING else b""
                self._writer.write(_frame(head[3], _ACK, 0, shown))
            if (int.from_bytes(head[5:], "big"), head[3]) == (stream, kind):
                return payload


def message(data: bytes) -> bytes:
    """Return a message of gRPC."""
    return b"\0" + len(data).to_bytes(4, "big") + data


@asynccontextmanager
async def connected(
    port: int, window: int = 65535, source: str = "127.0.0.1"
) -> AsyncIterator[RawClient]:
    """Connect a client that takes `window` bytes of each answer, from the address `source`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    setting = _INITIAL_WINDOW_SIZE.to_bytes(2, "big") + window.to_bytes(4, "big")
    writer.write(_PREFACE + _frame(SETTINGS, 0, 0, setting))
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
