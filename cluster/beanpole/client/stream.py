"""The base of the synchronous clients: one connection at a time, to any node that answers.

Belongs here: addresses, connecting, time-outs, and the repetition of a request whose connection
ends. The protocols are in `beanstalk`, `workq` and `redis`.
"""

import socket
import ssl
import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Final, Self, TypeVar

from beanpole.client.dialing import Hosts, is_gone
from beanpole.client.interrupts import is_of_handler
from beanpole.client.patience import (
    CONNECT_TIMEOUT_S,
    PATIENCE_S,
    PAUSE_MAX_S,
    PAUSE_MIN_S,
    REPLY_TIMEOUT_S,
    Waits,
    jitter,
)
from beanpole.client.pickling import reduced
from beanpole.client.refusal import is_refusal
from beanpole.client.tls_files import why
from beanpole.errors import ClientError, OutcomeUnknown, ProtocolError

_RECEIVE_BYTES: Final = 65536

_Reply = TypeVar("_Reply")


class Unanswered(ClientError):
    """No node has answered a request.

    Attributes:
        refused_by: the addresses of the nodes that refused the handshake of TLS.
    """

    __reduce__ = reduced

    def __init__(self, words: str, refused_by: Collection[str]) -> None:
        super().__init__(words)
        self.refused_by = frozenset(refused_by)


def refused_by(error: BaseException) -> frozenset[str]:
    """Return the addresses of the nodes that refused a request by an alert of TLS."""
    return error.refused_by if isinstance(error, Unanswered) else frozenset()


def _why(error: OSError | ProtocolError) -> str:
    """Return the reason of an error, without the system's number; one of TLS stays whole."""
    return str(error) if isinstance(error, ssl.SSLError) else why(error)


class StreamClient:
    """A client connected to one of several nodes. Each subclass speaks one protocol."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        patience_s: float = PATIENCE_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        peer: str = "node",
    ) -> None:
        """Store the addresses; the first command connects.

        Args:
            addresses: "host:port" or "unix:PATH"; the client takes the first that answers, of the
                addresses and of the hosts behind each name.
            patience_s: how long to look for a node that answers before giving up.
            reply_timeout_s: how long to wait for a reply, in addition to the time that a request
                may wait at the node.
            tls: the TLS context, with the CA to trust; None for plain connections.
            peer: what listens at the addresses, in the words of errors.

        Raises:
            ValueError: there is no address.
        """
        if not addresses:
            raise ValueError("a client needs an address")
        self._addresses = list(addresses)
        self._hosts = {address: Hosts(address) for address in addresses}
        self._patience_s = patience_s
        self._waits = Waits(reply_timeout_s, CONNECT_TIMEOUT_S)
        self._tls = tls
        self._peer = peer
        self._socket: socket.socket | None = None
        self._is_heard = False  # something was read on the present connection
        self._reasons: dict[str, str] = {}  # of each address that was left in this request
        self._refused: set[str] = set()  # those of them at which the handshake was refused

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    @property
    def address(self) -> str:
        """The address of the connected node, or of the node that is tried first."""
        return self._addresses[0]

    @property
    def address_count(self) -> int:
        """The number of addresses, with those of names as far as they were resolved."""
        return sum(self._hosts[address].count for address in self._addresses)

    def pass_over(self) -> None:
        """Leave this node, which does not do what it is asked: the next request goes to the next.

        Requests without an answer are lost, so the caller repeats what it may repeat.
        """
        self._leave()

    # --- of each protocol -----------------------------------------------------------------------

    @abstractmethod
    def _begin(self) -> None:
        """Initialize a new connection: send the requests that each connection begins with."""

    @abstractmethod
    def _feed(self, data: bytes) -> None:
        """Pass received bytes to the parser."""

    # --- requests -------------------------------------------------------------------------------

    def _request(
        self,
        request: Callable[[float], bytes],
        next_reply: Callable[[], _Reply | None],
        *,
        repeat: bool,
        wait_s: float,
    ) -> _Reply:
        """Send one request and return its reply.

        Args:
            request: returns the encoded request for a wait of so many seconds.
            next_reply: returns the reply, or None while the bytes that were fed are incomplete.
            repeat: the request is idempotent and is repeated when the connection is lost, with what
                is left of its wait then.
            wait_s: how long the node itself may wait before it answers.

        Raises:
            OutcomeUnknown: the connection ended before the reply, and `repeat` is False. A node
                that refuses the handshake of TLS has done nothing, and the next one is asked.
            Unanswered: no node answers, or every node has ended the connection before the reply.
        """
        until = time.monotonic() + self._patience_s
        self._reasons.clear()
        self._refused.clear()
        losses = 0
        pause_s = PAUSE_MIN_S
        ends_s: float | None = None
        left_s = wait_s
        while True:
            self._connect(until)
            sent_s = time.monotonic()
            if ends_s is None:
                ends_s = sent_s + wait_s
            else:
                left_s = max(0.0, ends_s - sent_s)
            try:
                return self._exchange(request(left_s), next_reply, left_s)
            except (OSError, ProtocolError) as error:
                if is_of_handler(error):
                    raise
                # The time that the node was allowed to wait does not use up the patience.
                until += min(time.monotonic() - sent_s, left_s)
                losses += 1
                lost = f"{self.address}: {_why(error)}"
                is_refused = self._note(error)
                self._leave()
                if not (repeat or is_refused):
                    raise OutcomeUnknown(f"it may have been done: {lost}") from error
                # One silent node may take all of the patience, and the others still answer.
                if losses >= self.address_count and time.monotonic() > until:
                    words = self._no_answer() if is_refused else lost
                    raise Unanswered(words, self._refused) from error
                time.sleep(jitter(pause_s))
                if losses >= self.address_count:  # each was asked: a full server goes on to close
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _exchange(
        self, request: bytes, next_reply: Callable[[], _Reply | None], wait_s: float
    ) -> _Reply:
        assert self._socket is not None
        self._socket.settimeout(wait_s + self._waits.reply_s)
        try:
            self._socket.sendall(request)
            while (reply := next_reply()) is None:
                data = self._socket.recv(_RECEIVE_BYTES)
                if not data:
                    raise ConnectionError(f"the {self._peer} closed the connection")
                self._is_heard = True
                self._feed(data)
        except BaseException:
            # Also if the caller was interrupted: a late reply would answer another request.
            self.close()
            raise
        return reply

    # --- the connection -------------------------------------------------------------------------

    def _leave(self) -> None:
        """Close the connection; its node comes after all others, and after those of its name."""
        self.close()
        self._hosts[self.address].leave()
        self._addresses.append(self._addresses.pop(0))

    def _connect(self, until: float) -> None:
        """Connect to the first node that answers, in rounds until the time `until`.

        A connection that the node has closed while the client was idle is replaced: a request that
        is sent on it is lost, and its outcome would be said to be unknown.
        """
        if self._socket is not None and is_gone(self._socket):
            self.close()
        pause_s = PAUSE_MIN_S
        while self._socket is None:
            tried = 0
            while tried < self.address_count:
                try:
                    self._open()
                    return
                except (OSError, ProtocolError) as error:
                    if is_of_handler(error):
                        raise
                    self._note(error)
                    self._leave()
                    tried += 1
            if time.monotonic() > until:
                raise Unanswered(self._no_answer(), self._refused)
            time.sleep(jitter(pause_s))
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def _no_answer(self) -> str:
        reasons = "; ".join(f"{address}: {why}" for address, why in self._reasons.items())
        return f"no {self._peer} answers: {reasons}"

    def _note(self, error: OSError | ProtocolError) -> bool:
        """Note why this node is left; return whether it has refused, and so has done nothing."""
        is_refused = is_refusal(error) and not self._is_heard
        self._reasons[self.address] = _why(error)
        self._refused.discard(self.address)
        if is_refused:
            self._refused.add(self.address)
        return is_refused

    def _open(self) -> None:
        """Connect to the first address."""
        self._is_heard = False
        self._socket = self._hosts[self.address].dial(self._waits.connect_s, self._tls)
        try:
            self._begin()
        except BaseException:
            # The next request would be without a token, or for the default tube.
            self.close()
            raise
