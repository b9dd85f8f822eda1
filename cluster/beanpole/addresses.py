"""Parse network addresses: "host:port", "tls:host:port", "unix:PATH". Does no I/O."""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import unquote

from beanpole.constants import HOST_NAME_MAX_BYTES

UNIX_PREFIX: Final = "unix:"
# The prefix of an address whose clients use TLS.
TLS_PREFIX: Final = "tls:"
# The host name of a client on a UNIX socket, which has no address.
UNIX: Final = "unix"
# Of each part of a host's name (RFC 1035, 2.3.4).
LABEL_CHARS_MAX: Final = 63
# Bytes of an IPv6 address that count as one address: a host usually has a whole network of this
# size, and may use any of its 2**64 addresses.
_NETWORK_BYTES: Final = 8
_HOST: Final = re.compile(r"[A-Za-z0-9_.:%-]+")
_PORT: Final = re.compile(r"[0-9]{1,5}")
PORT_MAX: Final = 65535
_MAPPED: Final = re.compile(r"::ffff:([0-9]{1,3}(?:\.[0-9]{1,3}){3})", re.IGNORECASE)
_LOOPBACK: Final = re.compile(r"127(\.[0-9]{1,3}){3}")


def has_labels(name: str) -> bool:
    """Whether no part of a name is empty or too long: `idna`, in look-ups and TLS, raises then."""
    labels = name.removesuffix(".").split(".")
    return all(0 < len(label) <= LABEL_CHARS_MAX for label in labels)


def split_address(text: str) -> tuple[str, int]:
    """Split "host:port" or "[host]:port".

    Raises:
        ValueError: the text is neither; the message names the allowed form.
    """
    return _split(text, 0)


def listed(text: str) -> tuple[str, ...]:
    """Split "HOST:PORT,...", a list of servers to connect to, and drop duplicates.

    Raises:
        ValueError: the text is not such a list; the message names the allowed form.
    """
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    for address in found:
        try:
            _split(address, 1)
        except ValueError as error:
            raise ValueError(f"HOST:PORT,...; {address!r} is not {error}") from None
    return found


def _split(text: str, port_min: int) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdecimal()):
        raise ValueError("HOST:PORT")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("[HOST]:PORT, with brackets around an IPv6 host")
    if not _HOST.fullmatch(host) or not has_labels(host):
        raise ValueError("HOST:PORT")
    if not _PORT.fullmatch(port) or not port_min <= int(port) <= PORT_MAX:
        raise ValueError(f"HOST:PORT (with a port from {port_min} to {PORT_MAX})")
    return host, int(port)


def host_name(address: str) -> bytes:
    """Return the host name that events record for a client: its address without a port.

    An IPv4-mapped IPv6 address is reduced to the IPv4 address, so that both sockets yield the same
    host. Longer addresses are cut to HOST_NAME_MAX_BYTES.
    """
    mapped = _MAPPED.fullmatch(address)
    return (mapped[1] if mapped else address).encode(errors="replace")[:HOST_NAME_MAX_BYTES]


def address_of(host: bytes) -> bytes:
    """Return the bytes of the address by which a host is known; empty if it is no address."""
    text = host.decode(errors="replace").partition("%")[0]  # an IPv6 zone follows the sign
    try:
        return ip_address(text).packed
    except ValueError:
        return b""


def network_of(address: bytes) -> bytes:
    """Return what limits count as one address: an IPv4 address, or a network of IPv6."""
    return address[:_NETWORK_BYTES] if len(address) > _NETWORK_BYTES else address


def network_of_host(host: bytes) -> bytes:
    """Return what limits count as one address of a host's name; one of IPv4 stays as it is."""
    return network_of(address_of(host)) if b":" in host else host


def host_of_peer(peer: str) -> bytes:
    """Return the host name of a gRPC peer; empty if the peer string is not an address.

    gRPC's forms are "ipv4:HOST:PORT", "ipv6:[HOST]:PORT" (a bracket may be written "%5B") and
    "unix:".
    """
    kind, _, address = unquote(peer).partition(":")
    if kind == UNIX:
        return host_name(UNIX)
    if kind not in ("ipv4", "ipv6"):
        return b""
    return host_name(address.rpartition(":")[0].strip("[]"))


def is_loopback(address: str) -> bool:
    """Whether "host:port" is reachable from this machine only."""
    host, _ = split_address(address)
    return host in ("localhost", "::1") or bool(_LOOPBACK.fullmatch(host))
