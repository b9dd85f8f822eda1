"""A synchronous RESP client, for a Redis server or for the qless port of nodes.

Requests are pipelined. When a connection ends, all of them are repeated at the next address, so
they must be idempotent. The meaning of requests does not belong here.
"""

import ssl
from collections.abc import Sequence
from typing import Final

from beanpole.client.patience import PATIENCE_S, REPLY_TIMEOUT_S
from beanpole.client.stream import StreamClient
from beanpole.client.terminals import visible
from beanpole.errors import ClientError, ProtocolError
from beanpole.protocol.resp.client import Reply, ReplyParser, encode
from beanpole.protocol.resp.values import Error

# Errors of the commands that begin a connection.
_AUTH_WORDS: Final = (b"NOAUTH", b"WRONGPASS", b"ERR AUTH", b"NOPERM")
# Errors of one server at this time, so that another address is asked. A full server closes then.
_FULL: Final = b"ERR max number of clients reached"
_NOT_NOW: Final = (_FULL, b"ERR no majority of the cluster answers", b"LOADING ")
# At most this many bytes of requests, and one request more, are in flight, so that a slow server
# receives them within the time-out.
PIECE_BYTES: Final = 1024 * 1024
# A line of a node's reply to INFO, which Redis does not send.
_NODE: Final = b"beanpole_version:"
# The characters of an error that a message shows.
WORDS_SHOWN: Final = 200


class AuthenticationFailed(ClientError):
    """The server requires a password, or refuses this one."""


def words_of(error: Error) -> str:
    """Return the text of an error for a message: a terminal must not obey what a server sends."""
    text = error.text.decode(errors="backslashreplace")
    words = visible(text[:WORDS_SHOWN])
    return words if len(text) <= WORDS_SHOWN else f"{words}... ({len(error.text)} bytes)"


class Redis(StreamClient):
    """A client connected to one of several servers."""

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        user: str = "",
        password: str = "",
        token: str = "",
        database: int = 0,
        patience_s: float = PATIENCE_S,
        reply_timeout_s: float = REPLY_TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
        peer: str = "node",
    ) -> None:
        """See `StreamClient`: the first command connects.

        Args:
            addresses: see `StreamClient`.
            user: the user of a Redis; empty for its default.
            password: sent to any server; empty for none.
            token: of a user of the cluster, sent to nodes only; empty for no user.
            database: the number of a database of a Redis.
            patience_s: see `StreamClient`.
            reply_timeout_s: see `StreamClient`.
            tls: see `StreamClient`.
            peer: see `StreamClient`.
        """
        super().__init__(
            addresses,
            patience_s=patience_s,
            reply_timeout_s=reply_timeout_s,
            tls=tls,
            peer=peer,
        )
        self._token = token.encode()
        self._greetings: list[Sequence[bytes]] = []
        if password:
            names = [user.encode()] if user else []
            self._greetings.append([b"AUTH", *names, password.encode()])
        if database:
            self._greetings.append([b"SELECT", b"%d" % database])
        self._parser = ReplyParser()
        self._replies: list[Reply] = []

    def ask(self, *words: bytes) -> Reply:
        """Send one request and return its reply, which may be an `Error`."""
        return self.ask_all([words])[0]

    def ask_all(self, requests: Sequence[Sequence[bytes]]) -> list[Reply]:
        """Send requests and return their replies, some of which may be an `Error`.

        Raises:
            AuthenticationFailed: the server requires a password, or refuses this one.
            ClientError: no server answers.
        """
        replies: list[Reply] = []
        piece: list[bytes] = []
        size = 0
        for place, words in enumerate(requests, 1):
            piece.append(encode(words))
            size += len(piece[-1])
            if size >= PIECE_BYTES or place == len(requests):
                replies += self._exchanged(piece)
                piece, size = [], 0
        for reply in replies:
            if isinstance(reply, Error):
                self._check(reply)
        return replies

    def _check(self, error: Error) -> None:
        """Raise AuthenticationFailed if an error of the server says so."""
        if error.text.startswith(_AUTH_WORDS):
            raise AuthenticationFailed(f"{self.address}: {words_of(error)}")

    def _exchanged(self, requests: Sequence[bytes]) -> list[Reply]:
        self._replies = []

        def next_reply() -> list[Reply] | None:
            while len(self._replies) < len(requests):
                found = self._parser.next()
                if found is None:
                    return None
                if isinstance(found[0], Error) and found[0].text == _FULL:
                    raise ProtocolError(_FULL.decode())
                self._replies.append(found[0])
            return self._replies

        piece = b"".join(requests)
        return self._request(lambda _: piece, next_reply, repeat=True, wait_s=0.0)

    def _begin(self) -> None:
        self._parser = ReplyParser()
        self._replies = []
        if self._token:
            # As in `sansio`, the token is not sent to a server that does not support users.
            facts = self._greet([b"INFO", b"server"])
            if not isinstance(facts, bytes) or _NODE not in facts:
                raise ClientError(f"{self.address} is no node; the token was not sent to it")
            self._greet([b"AUTH", self._token])
        for words in self._greetings:
            self._greet(words)

    def _greet(self, words: Sequence[bytes]) -> Reply:
        (reply,) = self._exchange(encode(words), self._parser.next, 0.0)
        if isinstance(reply, Error):
            self._check(reply)
            told = words_of(reply)
            if reply.text.startswith(_NOT_NOW):
                raise ProtocolError(told)
            raise ClientError(f"{self.address}: {told}")
        return reply

    def _feed(self, data: bytes) -> None:
        self._parser.feed(data)
