"""Connections through a toxiproxy to an echo server.

These are helpers for the tests of our double and of its conformance to the real server.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import requests
from toxiproxy.api import APIConsumer

TIMEOUT_S: Final = 60.0


@contextlib.contextmanager
def echo_server() -> Iterator[str]:
    """Yield the address of an echo server."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threading.Thread(target=back, args=(connection,), daemon=True).start()

    def back(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65536):
                connection.sendall(data)

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def connect(proxy: Any) -> socket.socket:
    host, _, port = proxy.listen.rpartition(":")
    return socket.create_connection((host, int(port)), TIMEOUT_S)


def echoed(connection: socket.socket, data: bytes) -> bytes:
    """Send data and read it back; the result is shorter if the connection ends."""
    connection.sendall(data)
    found = b""
    while len(found) < len(data) and (more := connection.recv(65536)):
        found += more
    return found


def ask(method: str, path: str, **given: Any) -> requests.Response:
    """Send a request to the server without the client from PyPI."""
    url = f"http://{APIConsumer.host}:{APIConsumer.port}{path}"
    return requests.request(method, url, timeout=TIMEOUT_S, **given)
