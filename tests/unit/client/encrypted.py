"""Servers of TLS on real sockets, for tests of clients: they answer, or refuse the handshake.

The certificates are those of `certificates`. What clients send is in the tests.
"""

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beanpoled.cli.certs import make_ca, make_certificate

Answer = Callable[[bytes], bytes]


def certificates(place: Path) -> Path:
    """Make a CA and the certificate of all servers in a folder; return the folder."""
    make_ca(place, "1")
    make_certificate(place, "node", ["localhost", "127.0.0.1"], "1")
    return place


class Encrypted:
    """A server that answers each piece of bytes; one without an answer refuses every client.

    It refuses them as a node does, since they show no certificate.

    Attributes:
        address: where it listens.
        asked: the pieces that were received, after the handshake.
        refused: the reasons of the handshakes that have failed; all of them after `close`.
    """

    def __init__(self, place: Path, answer: Answer | None = None) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(place / "node.pem", place / "node.key")
        if answer is None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(place / "ca.pem")
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked: list[bytes] = []
        self.refused: list[str | None] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        """End the server; all clients have left."""
        if self._thread.is_alive():
            self._listener.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            with (
                self._context.wrap_socket(
                    raw, server_side=True, do_handshake_on_connect=False
                ) as stream,
                suppress(OSError),
            ):
                self._converse(stream)

    def _converse(self, stream: ssl.SSLSocket) -> None:
        try:
            stream.do_handshake()
        except ssl.SSLError as error:
            self.refused.append(error.reason)
            # What is unread would make the kernel send a reset, which may overtake the alert.
            socket.socket.shutdown(stream, socket.SHUT_WR)
            while socket.socket.recv(stream, 65536):
                pass
            return
        assert self._answer is not None
        while data := stream.recv(65536):
            self.asked.append(data)
            stream.sendall(self._answer(data))
