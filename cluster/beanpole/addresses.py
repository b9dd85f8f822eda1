"""Addresses as people write them: "host:port", "tls:host:port", "unix:PATH". Does no I/O."""

import re
from typing import Final
from urllib.parse import unquote

from beanpole.constants import HOST_NAME_MAX_BYTES

UNIX_PREFIX: Final = "unix:"
# In front of an address at which clients come by TLS.
TLS_PREFIX: Final = "tls:"
# The host of a client at a UNIX socket: it has no other name.
UNIX: Final = "unix"
_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_MAPPED: Final = re.compile(r"::ffff:([0-9]{1,3}(?:\.[0-9]{1,3}){3})", re.IGNORECASE)
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


def host_name(address: str) -> bytes:
    """Return the name by which events know a client's host: its address without a port.

    An IPv4 address that came over an IPv6 socket is the same host as one over an IPv4 socket. An
    address is cut where no name may be longer.
    """
    mapped = _MAPPED.fullmatch(address)
    return (mapped[1] if mapped else address).encode(errors="replace")[:HOST_NAME_MAX_BYTES]


def host_of_peer(peer: str) -> bytes:
    """Return the same of what gRPC calls the peer of a call; nothing if it is no address.

    Those are "ipv4:HOST:PORT", "ipv6:[HOST]:PORT", perhaps with "%5B" for a bracket, and "unix:".
    """
    kind, _, address = unquote(peer).partition(":")
    if kind == UNIX:
        return host_name(UNIX)
    if kind not in ("ipv4", "ipv6"):
        return b""
    return host_name(address.rpartition(":")[0].strip("[]"))


def is_loopback(address: str) -> bool:
    """Whether "host:port" can be reached from this machine only."""
    host, _ = split_address(address)
    return host in ("localhost", "::1") or bool(_LOOPBACK.fullmatch(host))
