"""A client of RESP2 that hides nothing: commands out, replies in, messages of channels as well.

More helpful clients are redis-py and redis-cli, which `make test-qless` runs.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from tests.integration.support.raw import Address, connect

TIMEOUT_S: Final = 60.0


class Failure(NamedTuple):
    """A reply that is an error."""

    text: str


# bytes are a bulk string, and str is a simple string.
Reply = bytes | str | int | Failure | None | list["Reply"]


class Resp:
    """One connection. Every call raises TimeoutError after `timeout_s` without an answer."""

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self._stream = connect(address, timeout_s)
        self._file = self._stream.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, *words: bytes | str | float) -> None:
        """Send a command."""
        parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        bulks = b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)
        self._stream.sendall(b"*%d\r\n%b" % (len(parts), bulks))

    def read(self) -> Reply:
        """Receive one reply, or one message of a channel."""
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the connection ended after {line!r}")
        kind, text = line[:1], line[1:-2]
        if kind == b"+":
            return text.decode()
        if kind == b"-":
            return Failure(text.decode())
        if kind == b":":
            return int(text)
        if kind == b"$":
            return self._bulk(int(text))
        assert kind == b"*", line
        return None if text == b"-1" else [self.read() for _ in range(int(text))]

    def ask(self, *words: bytes | str | float) -> Reply:
        """Send a command and receive its reply."""
        self.send(*words)
        return self.read()

    def text(self, *words: bytes | str | float) -> str:
        """Send a command whose reply is a string."""
        reply = self.ask(*words)
        assert isinstance(reply, bytes | str), (words, reply)
        return reply if isinstance(reply, str) else reply.decode()

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._stream.close()

    def _bulk(self, size: int) -> bytes | None:
        if size < 0:
            return None
        found = self._file.read(size + 2)
        if len(found) < size + 2:
            raise ConnectionError("the connection ended in a bulk string")
        return found[:-2]


def evaluate(
    client: Resp, sha: str, keys: Sequence[str], arguments: Sequence[bytes | str | float]
) -> Reply:
    """Call a script that is loaded."""
    return client.ask("EVALSHA", sha, len(keys), *keys, *arguments)
