"""Debian's gearmand, and Gearman's packets as they are, for the tests of Gearman clients.

The behaviour of client libraries belongs to `tests/clients`.
"""

import shutil
import socket
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.integration.support.ports import free_port
from tests.integration.support.processes import Process
from tests.integration.support.raw import Address, connect

HEADER: Final = struct.Struct(">4sII")
REPLY_TIMEOUT_S: Final = 60.0
RECEIVE_BYTES: Final = 65536

CAN_DO, PRE_SLEEP, NOOP, SUBMIT_JOB, JOB_CREATED, GRAB_JOB, NO_JOB = 1, 4, 6, 7, 8, 9, 10
JOB_ASSIGN, WORK_STATUS, WORK_COMPLETE, WORK_FAIL, ECHO_REQ, ECHO_RES = 11, 12, 13, 14, 16, 17
GET_STATUS, STATUS_RES, SUBMIT_JOB_BG, WORK_DATA, GET_STATUS_UNIQUE = 15, 20, 18, 28, 41


def gearmand_path() -> str | None:
    """Return the path of gearmand; None if it is not installed."""
    return shutil.which("gearmand", path="/usr/sbin:/usr/local/sbin:/usr/bin")


class Gearmand:
    """One gearmand, in memory unless the arguments say otherwise."""

    def __init__(self, directory: Path, arguments: Sequence[str] = ()) -> None:
        path = gearmand_path()
        assert path, "gearmand is not installed (Debian: apt-get install gearman-job-server)"
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        command = [path, "--listen", "127.0.0.1", "--port", str(port), "--log-file", "stderr"]
        self.process = Process([*command, *arguments], directory / "gearmand.log")
        self.process.wait_until_serving(self.address)

    def close(self) -> None:
        self.process.kill()


def packet(kind: int, *arguments: bytes) -> bytes:
    """Return one request."""
    body = b"\0".join(arguments)
    return HEADER.pack(b"\0REQ", kind, len(body)) + body


class Packets:
    """A connection that speaks packets; it hides nothing and repeats nothing."""

    def __init__(self, address: Address, timeout_s: float = REPLY_TIMEOUT_S) -> None:
        self._stream = connect(address, timeout_s)
        self._buffer = b""

    def send(self, kind: int, *arguments: bytes) -> None:
        """Send one packet."""
        self._stream.sendall(packet(kind, *arguments))

    def receive(self) -> tuple[int, list[bytes]]:
        """Receive one packet: its type, and its arguments; results may contain NULs."""
        magic, kind, size = HEADER.unpack(self._take(HEADER.size))
        assert magic == b"\0RES", magic
        body = self._take(size)
        split = 1 if kind == WORK_COMPLETE else 2 if kind == JOB_ASSIGN else -1
        return kind, body.split(b"\0", split)

    def ask(self, kind: int, *arguments: bytes) -> tuple[int, list[bytes]]:
        """Send one packet and receive one."""
        self.send(kind, *arguments)
        return self.receive()

    def admin(self, line: str) -> list[str]:
        """Send a line of the text protocol; returns the lines of its answer without the dot."""
        self._stream.sendall(line.encode() + b"\r\n")
        lines: list[str] = []
        while True:
            text = self._line()
            if text == ".":
                return lines
            lines.append(text)
            if text.startswith(("OK", "ERR")):
                return lines

    def end(self) -> None:
        """Break the connection while another thread receives."""
        self._stream.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Break the connection."""
        self._stream.close()

    def _line(self) -> str:
        while b"\n" not in self._buffer:
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        # Names of functions are any bytes, and those of other tests stay at a shared server.
        return line.rstrip(b"\r").decode(errors="backslashreplace")

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _more(self) -> None:
        data = self._stream.recv(RECEIVE_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data
