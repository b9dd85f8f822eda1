"""The server's packets of the Gearman protocol as bytes, and the errors that it knows."""

from typing import Final

from beanpole.protocol.gearman import packets as p

_pack_header = p.HEADER.pack


def reply(kind: int, *arguments: bytes) -> bytes:
    """Write one packet of the server."""
    body = b"\0".join(arguments)
    header: bytes = _pack_header(p.REPLY_MAGIC, kind, len(body))
    return header + body


def error(code: bytes, text: bytes) -> bytes:
    """Write an ERROR."""
    return reply(p.ERROR, code, text)


NOOP: Final = reply(p.NOOP)
NO_JOB: Final = reply(p.NO_JOB)

# Codes and texts are gearmand's where it has such an error.
INVALID_MAGIC: Final = error(b"INVALID_MAGIC", b"Request magic expected")
INVALID_COMMAND: Final = error(b"INVALID_COMMAND", b"Command not expected")
UNKNOWN_OPTION: Final = error(b"UNKNOWN_OPTION", b"Server does not recognize given option")
UNIQUE_TOO_LARGE: Final = error(b"ARGUMENT_TOO_LARGE", b"Unique value too large")
QUEUE_FULL: Final = error(b"QUEUE_ERROR", b"Job queue is full")
