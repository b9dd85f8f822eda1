"""Code shared by all gRPC callers of Beanpole: channel options, error details, failover.

Calls of services do not belong here. Servers also use the key of the error detail.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import grpc

from beanpole.client import tls_files, where
from beanpole.client.patience import PAUSE_MAX_S, PAUSE_MIN_S, jitter
from beanpole.client.pickling import reduced
from beanpole.client.terminals import visible
from beanpole.errors import ClientError, ConfigurationError
from beanpole.pb import errors_pb2

log = logging.getLogger("beanpole.rpc")

ERROR_KEY: Final = "beanpole-error-bin"
# The metadata key of "Bearer " and the token of a user.
TOKEN_KEY: Final = "authorization"

# The variables of the files that a channel is opened with.
_FILES: Final = (*where.TLS_VARIABLES, where.TOKEN_FILE)

# A chunk of a snapshot is at most 4 MiB; the rest is for the message around it.
MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024

CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # Reconnect to a restarted node at once; gRPC's default backoff grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A restarted node may have another address, so names are resolved again after one second; the
    # default is 30 s.
    ("grpc.dns_min_time_between_resolutions_ms", 1000),
    # Connect directly to nodes, whatever the environment says about HTTP proxies.
    ("grpc.enable_http_proxy", 0),
)

# Longer than in `patience`: programs that read all events or put millions of jobs run for hours,
# and should outlast a slow restart of all nodes. Whole seconds, because options show it.
PATIENCE_S: Final = 30

# Then a client says that it is still trying: an election takes less.
SAID_AFTER_S: Final = 3.0

# A node that does not even tell its health within this time hangs, or is far away; another one is
# asked before it.
HEALTH_TIMEOUT_S: Final = 2.0

# gRPC's words for a call that was never sent, since no node listens there, or the name of the node
# is not known (in two releases), as that of one that is being replaced.
_NOT_SENT: Final = (
    "failed to connect to all addresses",
    "errors resolving ",
    "DNS resolution failed for ",
)

# The request itself is wrong, so every other node would refuse it, too.
_REFUSED: Final = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
)

# Every node answers that it does not have a call.
TOO_OLD: Final = "the nodes run a release without this call"

T = TypeVar("T")


def detail_of(error: grpc.RpcError) -> errors_pb2.ErrorDetail:
    """Return the machine-readable detail of a failed call; empty if the server sent none."""
    packed = _packed_detail(error)
    return errors_pb2.ErrorDetail.FromString(packed or b"")


def was_sent(error: grpc.RpcError) -> bool:
    """Whether a call that failed may have reached a node that has it."""
    is_known = error.code() != grpc.StatusCode.UNIMPLEMENTED
    return is_known and not (error.details() or "").startswith(_NOT_SENT)


def is_hung(error: grpc.RpcError) -> bool:
    """Whether the node did not answer within the timeout of the call.

    A node that has given up itself sends a detail, which may be empty.
    """
    return error.code() == grpc.StatusCode.DEADLINE_EXCEEDED and _packed_detail(error) is None


def _packed_detail(error: grpc.RpcError) -> bytes | None:
    # The type stubs declare one pair, but the value is a sequence of pairs.
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == ERROR_KEY and isinstance(value, bytes):
            return value
    return None


def words_of(error: grpc.RpcError) -> str:
    """Return a short human-readable description of a failed call."""
    words = details_of(error)
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        words = "its program is too old: it does not have this call"
    return f"{error.code().name}: {words}"


def details_of(error: grpc.RpcError) -> str:
    """Return the words of a node without control characters, as they are printed.

    Names of queues are in them, and any server may answer at an address.
    """
    return visible(error.details() or "", "\n")


def is_refused(error: grpc.RpcError) -> bool:
    """Whether the request itself is wrong, so that another node would refuse it, too."""
    return error.code() in _REFUSED


class Refused(ClientError):
    """A request is wrong: `words` is the reason, `field` the wrong field if the node named it."""

    __reduce__ = reduced

    def __init__(self, address: str, error: grpc.RpcError) -> None:
        self.words = details_of(error)
        self.field = detail_of(error).field
        super().__init__(f"{address}: {self.words}")


def pauses(patience_s: float) -> Iterator[None]:
    """Yield after exponentially longer pauses until `patience_s` seconds pass; at least twice."""
    until = time.monotonic() + patience_s
    pause_s = PAUSE_MIN_S
    yield
    while True:
        time.sleep(jitter(pause_s))
        yield
        if time.monotonic() >= until:
            return
        pause_s = min(2 * pause_s, PAUSE_MAX_S)


def open_channel(address: str, environment: Mapping[str, str] = os.environ) -> grpc.Channel:
    """Return a channel to a node, with TLS if the environment names the CA of its certificate.

    All calls on the channel carry the token of the environment.

    Raises:
        ConfigurationError: a file cannot be used, or one of them is missing.
    """
    files = tls_files.read(environment)
    if files is None:
        return _with_token(grpc.insecure_channel(address, options=CHANNEL_OPTIONS), environment)
    shown = grpc.ssl_channel_credentials(files.ca, files.key or None, files.certificate or None)
    return _with_token(grpc.secure_channel(address, shown, options=CHANNEL_OPTIONS), environment)


def _with_token(channel: grpc.Channel, environment: Mapping[str, str]) -> grpc.Channel:
    token = where.token(environment)
    return grpc.intercept_channel(channel, _Bearer(token)) if token else channel


def _answers(channel: grpc.Channel) -> bool:
    """Whether a node answers in time, or the kernel of its machine does: nothing listens there."""
    check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
    try:
        check(b"", timeout=HEALTH_TIMEOUT_S)  # asks for the server as a whole
    except grpc.RpcError as error:
        return error.code() != grpc.StatusCode.DEADLINE_EXCEEDED
    return True


class _Details(NamedTuple):
    """A copy of gRPC's `ClientCallDetails` with other metadata."""

    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]]
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    """Adds a token to the metadata of each call; gRPC's call credentials would require TLS."""

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


class _Opened(NamedTuple):
    """A channel, and the state of the files that it was opened with, or that could not be used."""

    channel: grpc.Channel
    files: list[tuple[int, int, int]]


class Nodes:
    """Channels to the nodes of a cluster, opened on first use, and again with renewed files."""

    def __init__(self, addresses: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """Store the addresses.

        Args:
            addresses: gRPC addresses, "host:port", in the order in which they are tried.
            patience_s: how long to look for a node that answers before giving up.
        """
        assert addresses, "a client needs an address"
        self.addresses = list(addresses)
        self.patience_s = patience_s
        self._channels: dict[str, _Opened] = {}
        self._answering: dict[str, bool] = {}  # whether something has answered at an address

    def __enter__(self) -> "Nodes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all channels."""
        for opened in self._channels.values():
            opened.channel.close()
        self._channels.clear()

    def channel(self, address: str) -> grpc.Channel:
        """Return the channel to one node; a new one if the token's or a TLS file has changed.

        A program may run for longer than its token or its certificate is valid. Files that cannot
        be used, such as half of a new pair, leave the channel in use, with a warning.

        Raises:
            ConfigurationError: see `open_channel`; only for the first channel.
        """
        files = tls_files.states(os.environ, _FILES)
        before = self._channels.get(address)
        if before is None:
            self._channels[address] = _Opened(open_channel(address), files)
        elif before.files != files:
            # The channel before is not closed: calls may be in progress on it, and the last of
            # them frees it.
            self._channels[address] = _Opened(self._reopened(address, before.channel), files)
        return self._channels[address].channel

    def _reopened(self, address: str, before: grpc.Channel) -> grpc.Channel:
        try:
            return open_channel(address)
        except ConfigurationError as error:
            log.warning("%s; the previous files stay in use for %s", error, address)
            return before

    def in_turn(self) -> Iterator[str]:
        """Yield every address once; those at which nothing answers come last.

        The kernel accepts connections for a node that hangs, and a call at it takes the whole
        timeout of the call.
        """
        addresses = tuple(self.addresses)
        silent = []
        for address in addresses:
            if len(addresses) > 1 and address not in self._answering:
                self._answering[address] = _answers(self.channel(address))
            if self._answering.get(address, True):
                yield address
            else:
                silent.append(address)
        yield from silent

    def defer(self, address: str) -> None:
        """Try this node last from now on."""
        self.addresses.remove(address)
        self.addresses.append(address)

    def rounds(self, failures: Mapping[str, str]) -> Iterator[None]:
        """Yield as `pauses` does until the patience is over; log once that nothing has answered.

        Args:
            failures: what each node has said so far; the caller adds to it.
        """
        said_at_s = time.monotonic() + SAID_AFTER_S
        for _ in pauses(self.patience_s):
            if failures and time.monotonic() >= said_at_s:
                said_at_s = math.inf
                log.warning("no answer yet, trying for %g s: %s", self.patience_s, told(failures))
            yield

    def first_answer(self, ask: Callable[[Any], T]) -> T:
        """Call `ask` with one channel after the other until a node answers; return the answer.

        Raises:
            Refused: the request is wrong.
            ClientError: no node answered in time.
        """
        failures: dict[str, str] = {}
        for _ in self.rounds(failures):
            for address in self.in_turn():
                try:
                    return ask(self.channel(address))
                except grpc.RpcError as error:
                    if is_refused(error):
                        raise Refused(address, error) from None
                    failures[address] = words_of(error)
                    self.defer(address)
        raise ClientError(f"no node answers: {told(failures)}")


def told(failures: Mapping[str, str]) -> str:
    """Join the errors of all nodes into one text; nodes with the same error share its words."""
    alike: dict[str, list[str]] = {}
    for address, words in sorted(failures.items()):
        alike.setdefault(words, []).append(address)
    return "; ".join(f"{', '.join(addresses)}: {words}" for words, addresses in alike.items())
