"""A beanstalk client that hides nothing: bytes out, bytes in, compared exactly.

It knows only the framing of replies; more helpful clients are Beanpole's library and greenstalk.
"""

import socket
import time
from contextlib import suppress
from typing import Final, Self

TIMEOUT_S: Final = 60.0
LINE_BYTES_MAX: Final = 1024

# "HOST:PORT" or "unix:PATH".
Address = str


def connect(address: Address, timeout_s: float = TIMEOUT_S) -> socket.socket:
    """Open a stream to an address; the timeout then applies to every call on the socket."""
    if address.startswith("unix:"):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(timeout_s)
        try:
            stream.connect(address.removeprefix("unix:"))
        except OSError:
            stream.close()
            raise
        return stream
    host, _, port = address.rpartition(":")
    stream = socket.create_connection((host, int(port)), timeout_s)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


class Raw:
    """One connection. Every call raises TimeoutError after `timeout_s` without an answer."""

    def __init__(self, address: Address, timeout_s: float = TIMEOUT_S) -> None:
        self.address = address
        self.stream = connect(address, timeout_s)
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.stream.sendall(data)

    def line(self) -> bytes:
        """Receive one line without its CRLF; ConnectionError if the stream ends first."""
        while b"\r\n" not in self._buffer:
            assert len(self._buffer) < LINE_BYTES_MAX, f"no end of line: {self._buffer!r}"
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    def take(self, size: int) -> bytes:
        """Receive exactly `size` bytes."""
        while len(self._buffer) < size:
            self._receive()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def body(self, size: int) -> bytes:
        """Receive a body of `size` bytes and the CRLF behind it."""
        data = self.take(size + 2)
        assert data.endswith(b"\r\n"), f"a body without its CRLF: {data!r}"
        return data[:-2]

    def expect(self, *lines: bytes) -> None:
        """Receive the given lines (each without its CRLF) and compare every byte."""
        for expected in lines:
            got = self.line()
            assert got == expected, f"expected {expected!r}, got {got!r} (+ {self._buffer!r})"

    def ask(self, command: bytes, *lines: bytes) -> None:
        """Send one command (without its CRLF) and compare the reply line by line."""
        self.send(command + b"\r\n")
        self.expect(*lines)

    def command(self, command: bytes) -> tuple[bytes, bytes | None]:
        """Send one command and return its reply: the line, and the body if it announces one."""
        self.send(command + b"\r\n")
        return self.reply()

    def reply(self) -> tuple[bytes, bytes | None]:
        """Receive one reply: the line, and the body if the line announces one."""
        line = self.line()
        word, _, rest = line.partition(b" ")
        if word in (b"RESERVED", b"FOUND", b"OK"):
            return line, self.body(int(rest.split(b" ")[-1]))
        return line, None

    def put(self, body: bytes, pri: int = 0, delay_s: int = 0, ttr_s: int = 60) -> int:
        """Put a job and return its id; anything but INSERTED fails."""
        self.send(b"put %d %d %d %d\r\n%b\r\n" % (pri, delay_s, ttr_s, len(body), body))
        word, _, number = self.line().partition(b" ")
        assert word == b"INSERTED", f"put: {word!r} {number!r}"
        return int(number)

    def dictionary(self, command: bytes) -> dict[str, str]:
        """Ask for statistics that must exist, as `find` does."""
        found = self.find(command)
        assert found is not None, f"{command!r}: NOT_FOUND"
        return found

    def find(self, command: bytes) -> dict[str, str] | None:
        """Ask for statistics; returns them as text by key, None for NOT_FOUND.

        Checks the frame of the YAML.
        """
        line, body = self.command(command)
        if line == b"NOT_FOUND":
            return None
        assert body is not None, f"{command!r}: {line!r}"
        head, *lines, end = body.decode("ascii").split("\n")
        assert (head, end) == ("---", ""), body
        assert all(": " in item for item in lines), body
        pairs = [item.partition(": ") for item in lines]
        return {key: value for key, _, value in pairs}

    def names(self, command: bytes) -> list[str]:
        """Ask for a list and return its items; checks the frame of the YAML."""
        line, body = self.command(command)
        assert body is not None, f"{command!r}: {line!r}"
        head, *lines, end = body.decode("ascii").split("\n")
        assert (head, end) == ("---", ""), body
        assert all(item.startswith("- ") for item in lines), body
        return [item[2:] for item in lines]

    def expect_silence(self, seconds: float) -> None:
        """Check that nothing arrives for the given time."""
        assert not self._buffer, f"unexpected {self._buffer!r}"
        before = self.stream.gettimeout()
        self.stream.settimeout(seconds)
        start = time.monotonic()
        try:
            got = self.stream.recv(LINE_BYTES_MAX)
        except TimeoutError:
            return
        finally:
            self.stream.settimeout(before)
        raise AssertionError(f"unexpected {got!r} after {time.monotonic() - start:.3f} s")

    def expect_end(self) -> None:
        """Check that the server closes the connection without sending anything before."""
        assert not self._buffer, f"unexpected {self._buffer!r}"
        try:
            got = self.stream.recv(LINE_BYTES_MAX)
        except ConnectionResetError:
            return
        assert not got, f"unexpected {got!r}"

    def rest(self) -> bytes:
        """Receive all bytes until the connection ends, however it ends."""
        with suppress(ConnectionError):
            while True:
                self._receive()
        told, self._buffer = self._buffer, b""
        return told

    def half_close(self) -> None:
        """Close the sending side, and stay to read."""
        self.stream.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close; repeated calls are harmless."""
        self.stream.close()

    def _receive(self) -> None:
        data = self.stream.recv(262144)
        if not data:
            raise ConnectionError(f"{self.address} closed the connection")
        self._buffer += data
