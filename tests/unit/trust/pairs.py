"""A TLS stream between a transport and a protocol in memory, and the client of its handshake."""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any, cast

from beanpoled.host.tls_stream import RECORD_BYTES_MAX, TlsStream, TurnLine
from beanpoled.trust.standing import Standing


class Below:
    """A socket's transport that keeps the written bytes."""

    def __init__(self) -> None:
        self.written = b""
        self.closing = self.aborted = self.paused = False

    def write(self, data: bytes) -> None:
        assert not self.closing
        self.written += data

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 1)}.get(name, default)


class Above(asyncio.Protocol):
    """A protocol that keeps received bytes, and pauses after each piece if requested."""

    def __init__(self) -> None:
        self.got = b""
        self.pieces = 0
        self.pauses = self.lost = self.stays = False
        self.ends = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert len(data) <= RECORD_BYTES_MAX
        self.got += data
        self.pieces += 1
        if self.pauses:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.ends += 1
        return self.stays

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Pair:
    """A serving stream, and the client of its handshake, in memory."""

    def __init__(
        self,
        folder: Path,
        loop: asyncio.AbstractEventLoop,
        line: TurnLine | None = None,
        standing: Standing | None = None,
        shown: str = "",
    ) -> None:
        """Begin; `shown`: the name of the client's certificate, empty if the server wants none."""
        self.loop = loop
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(folder / "a.pem", folder / "a.key")
        client = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        if shown:
            server.load_verify_locations(folder / "ca.pem")
            server.verify_mode = ssl.CERT_REQUIRED
            client.load_cert_chain(folder / f"{shown}.pem", folder / f"{shown}.key")
        self.above = Above()
        self.below = Below()
        self.stream = TlsStream(loop, server, lambda: self.above, line=line, standing=standing)
        self.stream.connection_made(cast(asyncio.Transport, self.below))
        self.into, self.out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self.into, self.out, server_hostname="a")

    def shake(self) -> None:
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.deliver()
        assert self.stream.established.done()

    def deliver(self, step: int = 0) -> None:
        """Pass the client's bytes to the stream, `step` at a time, and its bytes to the client."""
        data = self.out.read()
        for place in range(0, len(data), step or len(data) or 1):
            self.stream.data_received(data[place : place + (step or len(data))])
        self.into.write(self.below.written)
        self.below.written = b""

    def read(self) -> bytes:
        found = b""
        while True:
            try:
                piece = self.client.read(1 << 16)
            except ssl.SSLWantReadError:
                return found
            except ssl.SSLZeroReturnError:  # in place of b"" where both have said their end
                return found + b"<end>"
            if not piece:
                return found + b"<end>"
            found += piece


def turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()
