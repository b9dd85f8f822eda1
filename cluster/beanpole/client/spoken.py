"""What is spoken at an address: for the hint of a command that was given the wrong one of a node.

Only asked after a command has failed; whoever answers is not one that the command can use.
"""

import argparse
import socket
from typing import Final

from beanpole.addresses import UNIX_PREFIX, split_address
from beanpole.client.where import Port

# A node on this machine or in this network answers in a fraction of it.
TIMEOUT_S: Final = 1.0
# Of a wrong list, the first few addresses tell enough.
ADDRESSES_MAX: Final = 3
# Answered by each protocol of text in its own way, and by HTTP as a request that is none.
QUESTION: Final = b"PING\r\n\r\n"
# The frame of HTTP/2 that gRPC's servers send first: its type behind three bytes of length.
_SETTINGS_AT: Final = 3
_SETTINGS: Final = b"\x04"
# The hello of a node to another one: its kind behind a short length and a checksum.
_HELLO_AT: Final = 8
_HELLO: Final = b"\x80"
_ANSWERS: Final = (
    (b"UNKNOWN_COMMAND", "beanstalk"),
    (b"HTTP/1.1", "HTTP"),
    (b"+PONG", "qless"),
    (b"ERR ", "Gearman"),
    (b"-CLIENT-ERROR", "Workq"),
)


def hint(arguments: argparse.Namespace) -> str:
    """Say in one line what the addresses of a command speak, if that is not what it needs.

    Where nobody answers at an address that nobody gave, say how one is given.
    """
    asked: tuple[Port, list[str]] | None = getattr(arguments, "asked", None)
    if asked is None:
        return ""
    port, found = asked
    spoken = ""
    for address in found[:ADDRESSES_MAX]:
        spoken = spoken_at(address)
        if spoken and spoken != port.speaks:
            return (
                f"hint: {address} speaks {spoken}, and this command needs the address at which a "
                f"node speaks {port.speaks}: its setting {port.setting}, {port.number} by default"
            )
    return "" if spoken else getattr(arguments, "assumed", "")


def spoken_at(address: str) -> str:
    """Return what a server speaks; empty if nobody answers, or in no way that is known."""
    try:
        with _connected(address) as found:
            found.settimeout(TIMEOUT_S)
            found.sendall(QUESTION)
            return spoken_in(found.recv(64))
    except (OSError, ValueError):
        return ""


def _connected(address: str) -> socket.socket:
    if not address.startswith(UNIX_PREFIX):
        return socket.create_connection(split_address(address), TIMEOUT_S)
    found = socket.socket(socket.AF_UNIX)
    found.settimeout(TIMEOUT_S)
    found.connect(address.removeprefix(UNIX_PREFIX))
    return found


def spoken_in(answer: bytes) -> str:
    """Return what is spoken by one whose first bytes are these."""
    if answer[_SETTINGS_AT : _SETTINGS_AT + 1] == _SETTINGS and answer[:1] == b"\0":
        return "gRPC"
    if answer[_HELLO_AT : _HELLO_AT + 1] == _HELLO and answer[2:4] == b"\0\0":
        return "with other nodes only"
    return next((spoken for begin, spoken in _ANSWERS if answer.startswith(begin)), "")
