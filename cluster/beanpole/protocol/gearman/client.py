"""The client side of the Gearman protocol: encode requests, parse packets and lines.

For tests and tools. Parsing is strict: bytes that no server sends raise. Connections, timeouts and
failover do not belong here.
"""

from typing import Final

from beanpole.errors import ProtocolError
from beanpole.protocol.gearman import packets as p

# (type, arguments).
Reply = tuple[int, tuple[bytes, ...]]

# The largest packet of a server has a body and the arguments that identify a job. A larger size is
# taken for bytes of another protocol and rejected before memory is allocated.
REPLY_MAX_BYTES: Final = p.PACKET_MAX_BYTES + 4096


def request(kind: int, *arguments: bytes) -> bytes:
    """Encode one packet of a client.

    Raises:
        ValueError: an argument other than the last contains a NUL, which would split it.
    """
    if any(b"\0" in argument for argument in arguments[:-1]):
        raise ValueError(f"only the last argument may contain a NUL: {arguments!r}")
    body = b"\0".join(arguments)
    return p.HEADER.pack(p.REQUEST_MAGIC, kind, len(body)) + body


class ReplyParser:
    """Parses the bytes of a server into packets, or into lines where the client expects them."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes received from the server."""
        self._data += data

    def next(self) -> Reply | None:
        """Return the next packet, or None if it is incomplete.

        Raises:
            ProtocolError: no Gearman server sends these bytes.
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
        """Return the next line with its end, or None if it is incomplete.

        Raises:
            ProtocolError: the next bytes are a packet.
        """
        if self._data[:1] == b"\0":
            raise ProtocolError(f"a packet and no line: {bytes(self._data[:64])!r}")
        end = self._data.find(b"\n") + 1
        if not end:
            return None
        line = bytes(self._data[:end])
        del self._data[:end]
        return line
