"""Shared by all gRPC callers of Beanpole: channel options, errors for programs, failover.

No service is called here; servers take the key of the error detail from here, too.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import grpc

from beanpole.client import where
from beanpole.client.where import TLS_CA, TLS_CERTIFICATE, TLS_KEY, TLS_VARIABLES
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import errors_pb2

ERROR_KEY: Final = "beanpole-error-bin"
# Metadata of a call: "Bearer " and the token of a user.
TOKEN_KEY: Final = "authorization"

# A snapshot's chunk is at most 4 MiB; the rest is room for the message around it.
MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A node that comes back is to be reached at once, not after gRPC's usual two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Nor is a name to be looked up again only half a minute after the last time: a node that comes
    # back may have another address.
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    # Nodes are dialled directly, whatever the environment says about web proxies.
    ("grpc.enable_http_proxy", 0),
)

# Covers an election, and the restart of a cluster that lost its power.
PATIENCE_S: Final = 30
PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0

# The request itself is wrong: no other node will like it better.
_REFUSED: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)

T = TypeVar("T")


def detail_of(error: grpc.RpcError) -> errors_pb2.ErrorDetail:
    """Return what a failed call says for programs; empty if the server was not one of ours."""
    # The stubs have it as one pair, it is a sequence of them.
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == ERROR_KEY and isinstance(value, bytes):
            return errors_pb2.ErrorDetail.FromString(value)
    return errors_pb2.ErrorDetail()


def words_of(error: grpc.RpcError) -> str:
    """Return a failed call in a few words for people."""
    words = error.details()
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        words = "its program is too old: it does not have this call"
    return f"{error.code().name}: {words}"


def is_refused(error: grpc.RpcError) -> bool:
    """Whether the request is wrong, so that it is in vain to ask another node."""
    return error.code() in _REFUSED


class Refused(ClientError):
    """A request that is wrong: `field` of it, if the node said which one, and why in `words`."""

    def __init__(self, address: str, error: grpc.RpcError) -> None:
        self.words = error.details() or ""
        self.field = detail_of(error).field
        super().__init__(f"{address}: {self.words}")


def pauses(patience_s: float) -> Iterator[None]:
    """Come back after ever longer pauses until `patience_s` seconds are over; at least twice."""
    until = time.monotonic() + patience_s
    pause_s = PAUSE_MIN_S
    yield
    while True:
        # Jitter: callers that lost the same node do not come back all at once.
        time.sleep(pause_s * (0.5 + random.random() / 2))
        yield
        if time.monotonic() >= until:
            return
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


def open_channel(address: str, environment: Mapping[str, str] = os.environ) -> grpc.Channel:
    """Return a channel to a node: by TLS if the environment names the CA of its certificate.

    All calls on it say the token that the environment gives.

    Raises:
        ConfigurationError: a file cannot be read, or one of a pair is missing.
    """
    found = {name: _bytes_of(name, environment.get(name, "")) for name in TLS_VARIABLES}
    ca, certificate, key = found.values()
    if not ca:
        unused = [name for name, data in found.items() if data]
        if unused:
            raise ConfigurationError(f"{unused[0]} is of no use without {TLS_CA}")
        return _with_token(grpc.insecure_channel(address, options=CHANNEL_OPTIONS), environment)
    if bool(certificate) != bool(key):
        raise ConfigurationError(f"{TLS_CERTIFICATE} and {TLS_KEY}: give both or none")
    shown = grpc.ssl_channel_credentials(ca, key or None, certificate or None)
    return _with_token(grpc.secure_channel(address, shown, options=CHANNEL_OPTIONS), environment)


def _with_token(channel: grpc.Channel, environment: Mapping[str, str]) -> grpc.Channel:
    token = where.token(environment)
    return grpc.intercept_channel(channel, _Bearer(token)) if token else channel


class _Details(NamedTuple):
    """A call as gRPC describes it, with other metadata."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Says a token with each call. Credentials of calls would need TLS."""

    def __init__(self, token: str) -> None:
        self._item = (TOKEN_KEY, f"Bearer {token}")

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        """See `UnaryUnaryClientInterceptor`."""
        return continuation(self._with(client_call_details), request)

    def intercept_unary_stream(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        """See `UnaryStreamClientInterceptor`."""
        return continuation(self._with(client_call_details), request)

    def _with(self, its: Any) -> _Details:
        metadata = [*(its.metadata or ()), self._item]
        return _Details(
            its.method, its.timeout, metadata, its.credentials, its.wait_for_ready, its.compression
        )


def _bytes_of(name: str, path: str) -> bytes:
    if not path:
        return b""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name} = {path!r} cannot be read: {error.strerror}") from error


class Nodes:
    """Channels to the nodes of a cluster, opened when they are first needed."""

    def __init__(self, addresses: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """Remember where the nodes are.

        Args:
            addresses: gRPC addresses, "host:port"; the first is tried first.
            patience_s: how long to look for a node that answers before giving up.
        """
        assert addresses, "a client needs an address"
        # gRPC would print its own lines about nodes that are down.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        self.addresses = list(addresses)
        self.patience_s = patience_s
        self._channels: dict[str, grpc.Channel] = {}

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def channel(self, address: str) -> grpc.Channel:
        """Return the channel to one node."""
        if address not in self._channels:
            self._channels[address] = open_channel(address)
        return self._channels[address]

    def defer(self, address: str) -> None:
        """Try this node last from now on."""
        self.addresses.remove(address)
        self.addresses.append(address)

    def first_answer(self, ask: Callable[[Any], T]) -> T:
        """Return what the first node answers; `ask` is called with a channel and may be repeated.

        Raises:
            Refused: the request is wrong.
            ClientError: no node answered in time.
        """
        failures: dict[str, str] = {}
        for _ in pauses(self.patience_s):
            for address in tuple(self.addresses):
                try:
                    return ask(self.channel(address))
                except grpc.RpcError as error:
                    if is_refused(error):
                        raise Refused(address, error) from None
                    failures[address] = words_of(error)
                    self.defer(address)
        raise ClientError(f"no node answers: {told(failures)}")


def told(failures: Mapping[str, str]) -> str:
    """Join what each node said."""
    return "; ".join(f"{address}: {words}" for address, words in sorted(failures.items()))
