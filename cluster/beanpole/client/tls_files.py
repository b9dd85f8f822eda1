"""The PEM files that the environment names for TLS to nodes, checked before they are used.

gRPC fails with files that it cannot use at the first call, like a node that is down, and names
neither the file nor the reason.
"""

import logging
import os
import socket
import ssl
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from beanpole.addresses import TLS_PREFIX
from beanpole.client.where import TLS_CA, TLS_CERTIFICATE, TLS_KEY, TLS_VARIABLES, content
from beanpole.errors import ConfigurationError

log = logging.getLogger("beanpole.tls")

_CONTENTS: Final = {
    TLS_CA: "the certificate of the nodes' CA",
    TLS_CERTIFICATE: "the certificate of this client",
    TLS_KEY: "the key of that certificate",
}


class TlsFiles(NamedTuple):
    """The contents of the files; the certificate and its key are empty where nodes need none."""

    ca: bytes
    certificate: bytes
    key: bytes


def read(environment: Mapping[str, str] = os.environ) -> TlsFiles | None:
    """Return the files that the environment names; None if it names none: TLS is not wanted.

    Raises:
        ConfigurationError: a file cannot be used, or one of them is missing.
    """
    paths = {name: environment[name] for name in TLS_VARIABLES if environment.get(name)}
    if not paths:
        return None
    if TLS_CA not in paths:
        raise ConfigurationError(f"{next(iter(paths))} requires {TLS_CA}")
    if (TLS_CERTIFICATE in paths) != (TLS_KEY in paths):
        raise ConfigurationError(f"{TLS_CERTIFICATE} and {TLS_KEY}: give both or none")
    found = TlsFiles(*(_bytes_of(name, paths.get(name, "")) for name in TLS_VARIABLES))
    _check_ca(paths[TLS_CA], found.ca)
    if found.certificate:
        _check_pair(paths[TLS_CERTIFICATE], paths[TLS_KEY])
    return found


def encryption(
    addresses: Sequence[str], environment: Mapping[str, str] = os.environ
) -> tuple[list[str], ssl.SSLContext | None]:
    """Return addresses of client ports without their prefix, and the context if they had it.

    Without a CA in the environment, those of the system are trusted.

    Args:
        addresses: all begin with `tls:`, or none.
        environment: names the files.

    Raises:
        ConfigurationError: see `read`.
    """
    if not addresses[0].startswith(TLS_PREFIX):
        return list(addresses), None
    plain = [address.removeprefix(TLS_PREFIX) for address in addresses]
    return plain, RenewedContext(ssl.PROTOCOL_TLS_CLIENT, environment)


class RenewedContext(ssl.SSLContext):
    """A context of synchronous clients whose next connection uses the files as they are then.

    A worker may run for longer than its certificate is valid. Files that cannot be used, such as
    half of a new pair, leave the ones before in use, with a warning.
    """

    def __init__(self, protocol: int, environment: Mapping[str, str]) -> None:
        """Read the files; see `encryption`."""
        self._environment = environment
        self._present = (states(environment), _context(environment))

    # Threads share this object, and OpenSSL allows no change of a context that others use.
    def wrap_socket(
        self,
        sock: socket.socket,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLSocket:
        """See `ssl`."""
        state = states(self._environment)
        seen, context = self._present
        if state != seen:
            try:
                context = _context(self._environment)
                self._present = (state, context)
            except ConfigurationError as error:
                log.warning("%s; the files before stay in use", error)
        return context.wrap_socket(
            *(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs),
            *(server_hostname, session),
        )


def states(
    environment: Mapping[str, str], variables: Sequence[str] = TLS_VARIABLES
) -> list[tuple[int, int, int]]:
    """Return what differs once a file that one of the variables names was written or replaced.

    A pipe is left out: it can be read only once.
    """
    found = []
    for name in variables:
        with suppress(OSError):
            its = os.stat(environment.get(name, ""))
            if stat.S_ISREG(its.st_mode):
                found.append((its.st_mtime_ns, its.st_size, its.st_ino))
    return found


def are_files(certificate: str, key: str) -> bool:
    """Whether both are regular files: `ssl` requires paths, and a pipe has been read already."""
    return Path(certificate).is_file() and Path(key).is_file()


def _context(environment: Mapping[str, str]) -> ssl.SSLContext:
    files = read(environment)
    context = ssl.create_default_context(cadata=None if files is None else _text(files.ca))
    if files is not None and files.certificate:
        certificate, key = environment[TLS_CERTIFICATE], environment[TLS_KEY]
        if not are_files(certificate, key):
            raise ConfigurationError(
                f"{TLS_CERTIFICATE} = {certificate!r} and {TLS_KEY} = {key!r}: for {TLS_PREFIX} "
                "addresses both must be regular files, and no pipes"
            )
        _load_pair(context, certificate, key)
    return context


def _bytes_of(name: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        found = content(path)
    except OSError as error:
        raise ConfigurationError(f"{name} = {path!r} cannot be read: {error.strerror}") from error
    # Without this test an empty CA file would be no CA: the token would be sent without TLS.
    if not found.strip():
        raise ConfigurationError(f"{name} = {path!r} is empty: it must have {_CONTENTS[name]}")
    return found


def _text(data: bytes) -> str:
    """Return PEM as text. Comments in it may have any bytes; `ssl` takes ASCII only."""
    return data.decode("ascii", "ignore")


def _check_ca(path: str, data: bytes) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=_text(data))
    except (ssl.SSLError, ValueError) as error:  # ValueError: nothing in it is ASCII
        raise ConfigurationError(
            f"{TLS_CA} = {path!r} cannot be used: {why(error)}; it must have {_CONTENTS[TLS_CA]}, "
            "as PEM"
        ) from error


def _check_pair(certificate: str, key: str) -> None:
    if are_files(certificate, key):
        _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), certificate, key)


def _load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    def no_password() -> str:
        """Raise: OpenSSL would prompt for the password, and gRPC takes none."""
        raise ConfigurationError(
            f"{TLS_KEY} = {key!r} is encrypted: it must be a key without a password"
        )

    try:
        context.load_cert_chain(certificate, key, password=no_password)
    except (ssl.SSLError, OSError) as error:
        raise ConfigurationError(
            f"{TLS_CERTIFICATE} = {certificate!r} and {TLS_KEY} = {key!r} do not make a "
            f"certificate with its key: {why(error)}; both must be PEM"
        ) from error


def why(error: Exception) -> str:
    """Return the reason of an error of `ssl` or of the system, in its own words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)
