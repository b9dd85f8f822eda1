"""The client's side of the Gearman protocol: bytes of requests out, packets and lines in.

For tests and tools. It is stricter than a server: what no server sends raises. Connections,
timeouts and failover do not belong here.
"""

from typing import Final

from beanpole.errors import ProtocolError
from beanpole.protocol.gearman import packets as p

# (type, arguments).
Reply = tuple[int, tuple[bytes, ...]]

# The largest packet of a server has a body and what tells jobs apart. Above this the bytes are
# taken for those of another protocol, before memory is spent on them.
REPLY_MAX_BYTES: Final = p.PACKET_MAX_BYTES + 4096


def request(kind: int, *arguments: bytes) -> bytes:
    """Write one packet of a client.

    Raises:
        ValueError: one of the arguments but the last contains a NUL, which would make it two.
    """
    if any(b"\0" in argument for argument in arguments[:-1]):
        raise ValueError(f"only the last argument may contain a NUL: {arguments!r}")
    body = b"\0".join(arguments)
    return p.HEADER.pack(p.REQUEST_MAGIC, kind, len(body)) + body


class ReplyParser:
    """Turns the bytes of a server into packets, and into lines where the client expects them."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Take bytes from the server."""
        self._data += data

    def next(self) -> Reply | None:
        """Return the next packet, or None if it is not all here.

        Raises:
            ProtocolError: no Gearman server sends this.
        """
        if len(self._data) < p.HEADER_BYTES:
            return None
        magic, kind, size = p.HEADER.unpack_from(self._data)
        count = p.REPLY_ARGUMENTS.get(kind)
        if magic != p.REPLY_MAGIC or count is None or size > REPLY_MAX_BYTES:
            raise ProtocolError(f"no packet of a server: {bytes(self._data[:64])!r}")
        end = p.HEADER_BYTES + size
        if len(self._data) < end:
            return None
        body = bytes(self._data[p.HEADER_BYTES : end])
        del self._data[:end]
        arguments = tuple(body.split(b"\0", count - 1)) if count else ()
        if len(arguments) < count or (not count and body):
            raise ProtocolError(f"a packet of type {kind} with wrong arguments: {body[:64]!r}")
        return kind, arguments

    def line(self) -> bytes | None:
        """Return the next line with its end, or None if it is not all here.

        Raises:
            ProtocolError: a packet comes.
        """
        if self._data[:1] == b"\0":
            raise ProtocolError(f"a packet and no line: {bytes(self._data[:64])!r}")
        end = self._data.find(b"\n") + 1
        if not end:
            return None
        line = bytes(self._data[:end])
        del self._data[:end]
        return line
