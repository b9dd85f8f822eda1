"""Addresses as people write them: "host:port", "[host]:port" and "unix:PATH". Does no I/O."""

import re
from typing import Final

UNIX_PREFIX: Final = "unix:"
_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_LOOPBACK: Final = re.compile(r"127(\.[0-9]{1,3}){3}")


def split_address(text: str) -> tuple[str, int]:
    """Split "host:port" or "[host]:port".

    Raises:
        ValueError: the text is neither; the message says what is allowed.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError("HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("[HOST]:PORT, with brackets around an IPv6 host")
    if not _HOST.fullmatch(host):
        raise ValueError("HOST:PORT")
    return host, int(port)


def listed(text: str) -> tuple[str, ...]:
    """Split "HOST:PORT,...", addresses of servers to connect to; each is returned once.

    Raises:
        ValueError: the text is something else; the message says what is allowed.
    """
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for address in found:
        try:
            _, port = split_address(address)
        except ValueError as error:
            raise ValueError(f"HOST:PORT,...; {address!r} is not {error}") from None
        if not port:
            raise ValueError(f"HOST:PORT,...; the port of {address!r} is not from 1 to 65535")
    return found


def is_loopback(address: str) -> bool:
    """Whether "host:port" can be reached from this machine only."""
    host, _ = split_address(address)
    return host in ("localhost", "::1") or bool(_LOOPBACK.fullmatch(host))
