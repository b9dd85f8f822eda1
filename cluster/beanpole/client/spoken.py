"""Detect the protocol spoken at an address, for a hint when a command was given the wrong port.

The detection runs only after a command has failed, so the server is not one that the command can
use.
"""

import argparse
import os
import socket
import ssl
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from beanpole.addresses import TLS_PREFIX
from beanpole.client.dialing import dial_address
from beanpole.client.expiry import expires_s
from beanpole.client.tls_files import are_files
from beanpole.client.where import GRPC, TLS_CERTIFICATE, TLS_KEY, TLS_VARIABLES, Port

# A node on this machine or in this network answers in a fraction of this time.
TIMEOUT_S: Final = 1.0
# The first few addresses of a wrong list suffice for a hint.
ADDRESSES_MAX: Final = 3
# Each text protocol answers this in its own way; an HTTP server answers that the request is bad.
QUESTION: Final = b"PING\r\n\r\n"
# The SETTINGS frame of HTTP/2, which gRPC servers send first: its type follows three bytes of
# length.
_SETTINGS_AT: Final = 3
_SETTINGS: Final = b"\x04"
# The hello that nodes send to each other: its kind follows a length and a checksum.
_HELLO_AT: Final = 8
_HELLO: Final = b"\x80"
_ANSWERS: Final = (
    (b"UNKNOWN_COMMAND", "beanstalk"),
    (b"HTTP/1.1", "HTTP"),
    (b"+PONG", "qless"),
    (b"ERR ", "Gearman"),
    (b"-CLIENT-ERROR", "Workq"),
)


def hint(arguments: argparse.Namespace, refused_by: Collection[str] = ()) -> str:
    """Return a one-line hint if the addresses of a command speak another protocol, or TLS.

    If no server answers at an address that was only assumed, the hint is how to give one.

    Args:
        arguments: of the command.
        refused_by: the addresses, without the prefix of TLS, whose nodes have refused the
            handshake. They are not asked: it would count as another handshake that has failed.
    """
    asked: tuple[Port, list[str]] | None = getattr(arguments, "asked", None)
    if asked is None:
        return ""
    port, found = asked
    spoken = ""
    for address in found[:ADDRESSES_MAX]:
        if address.startswith(TLS_PREFIX):
            plain = address.removeprefix(TLS_PREFIX)
            told = _hint_of_refused if plain in refused_by else _hint_of_encrypted
            if words := told(plain):
                return words
            continue
        spoken = spoken_at(address)
        if spoken and spoken != port.speaks:
            return (
                f"hint: {address} speaks {spoken}, and this command needs the address at which a "
                f"node speaks {port.speaks}: its setting {port.setting}, {port.number} by default"
            )
        missing = _unset()
        if not spoken and port is GRPC and missing and speaks_tls(address):
            return (
                f"hint: {address} speaks TLS, where a node wants a certificate: the files of "
                f"{missing} are not set (docs/security.md)"
            )
        if not spoken and port is GRPC and has_expired() and speaks_tls(address):
            path = os.environ[TLS_CERTIFICATE]
            return f"hint: {TLS_CERTIFICATE} = {path!r} has expired, and the node refuses it"
        if not spoken and port is GRPC and not missing and turns_away(address):
            path = os.environ[TLS_CERTIFICATE]
            return (
                f"hint: {address} closes connections that show {TLS_CERTIFICATE} = {path!r}: it "
                "may be of another CA than those in the node's peer_tls_ca_file"
            )
        if not spoken and port is not GRPC and speaks_tls(address):
            return f"hint: {address} speaks TLS: give it as {TLS_PREFIX}{address}"
    return "" if spoken else getattr(arguments, "assumed", "")


def _hint_of_encrypted(plain: str) -> str:
    """Return a hint for an address that was given as one with TLS; empty if there is none."""
    if spoken := spoken_at(plain):
        return f"hint: {plain} speaks {spoken} without TLS, and {TLS_PREFIX} before it asks for TLS"
    return _hint_of_refused(plain) if _unset() and speaks_tls(plain) else ""


def _hint_of_refused(plain: str) -> str:
    """Return a hint for an address that speaks TLS; empty if this client has what it may want."""
    if missing := _unset():
        return (
            f"hint: {plain} speaks TLS, and {missing}, which it may ask for, are not set "
            "(docs/security.md)"
        )
    return ""


def _unset() -> str:
    """Return the names of the variables for TLS that are not set; empty if all are."""
    return ", ".join(name for name in TLS_VARIABLES if not os.environ.get(name))


def has_expired() -> bool:
    """Whether this client's certificate has: a node then closes the connection without a word."""
    path = os.environ.get(TLS_CERTIFICATE, "")
    try:
        # A pipe has been read already, and to read it again could wait for ever.
        return Path(path).is_file() and expires_s(path) < time.time()
    except (OSError, ValueError, IndexError):
        return False


def spoken_at(address: str) -> str:
    """Return the protocol of a server; empty if it does not answer, or with unknown bytes."""
    try:
        with _connected(address) as found:
            found.settimeout(TIMEOUT_S)
            found.sendall(QUESTION)
            return spoken_in(found.recv(64))
    except (OSError, ValueError):
        return ""


def speaks_tls(address: str) -> bool:
    """Whether a server answers a handshake of TLS; its certificate does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with _connected(address) as found:
            found.settimeout(TIMEOUT_S)
            context.wrap_socket(found).close()
    except ssl.SSLError as error:
        # An alert, such as a demand for a certificate, is an answer of TLS; other bytes are not.
        return "ALERT" in (error.reason or "")
    except (OSError, ValueError):
        return False
    return True


def turns_away(address: str) -> bool:
    """Whether a server of gRPC closes a connection that shows our certificate.

    It gives no reason. To others it sends its settings at once. A certificate from a pipe cannot be
    shown again.
    """
    certificate, key = os.environ[TLS_CERTIFICATE], os.environ[TLS_KEY]
    if not are_files(certificate, key):
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        context.load_cert_chain(certificate, key)
        with _connected(address) as found:
            found.settimeout(TIMEOUT_S)
            with context.wrap_socket(found) as safe:
                return not safe.recv(1)
    except ssl.SSLError as error:  # with TLS 1.2 it closes in the handshake
        return isinstance(error, ssl.SSLEOFError) or "ALERT" in (error.reason or "")
    except ConnectionResetError:
        return True
    except (OSError, ValueError):
        return False


def _connected(address: str) -> socket.socket:
    return dial_address(address, TIMEOUT_S)


def spoken_in(answer: bytes) -> str:
    """Return the protocol of a server whose answer begins with these bytes; empty if unknown."""
    if answer[_SETTINGS_AT : _SETTINGS_AT + 1] == _SETTINGS and answer[:1] == b"\0":
        return "gRPC"
    if answer[_HELLO_AT : _HELLO_AT + 1] == _HELLO and answer[2:4] == b"\0\0":
        return "with other nodes only"
    return next((spoken for begin, spoken in _ANSWERS if answer.startswith(begin)), "")
