"""A scripted beanstalk node on a real socket, for tests of clients."""

import socket
import ssl
import threading
from contextlib import suppress

# The state of a connection whose end has arrived at the other side (Linux, `tcp_states.h`).
FIN_WAIT2 = 5

# Per connection: pairs of expected bytes and the reply; None closes without a reply.
Script = list[tuple[bytes, bytes | None]]


class Node:
    """Plays one script per connection, in order, then accepts no more connections."""

    def __init__(self, *scripts: Script, path: str = "") -> None:
        self.listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self.listener.bind(path or ("127.0.0.1", 0))
        self.listener.listen()
        self.address = f"unix:{path}" if path else f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.wrong: list[str] = []
        self.thread = threading.Thread(target=self.play, args=(scripts,))
        self.thread.start()

    def play(self, scripts: tuple[Script, ...]) -> None:
        with self.listener:
            for number, script in enumerate(scripts, 1):
                connection, _ = self.listener.accept()
                if number == len(scripts):
                    # At the end the kernel might take one more connection, and reset it.
                    self.listener.close()
                with connection:
                    connection.settimeout(60)
                    self.converse(connection, script)

    def converse(self, connection: socket.socket, script: Script) -> None:
        for wanted, reply in script:
            got = b""
            while len(got) < len(wanted):
                data = connection.recv(len(wanted) - len(got))
                if not data:
                    break
                got += data
            if got != wanted:
                self.wrong.append(f"wanted {wanted!r}, got {got!r}")
            if reply is None:
                return
            connection.sendall(reply)
        with suppress(ConnectionResetError):  # the client may leave with the last reply unread
            connection.recv(1)

    def finish(self) -> None:
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert self.wrong == []


def end(node: socket.socket) -> None:
    """Close the node's side of a connection; return once the other side has the end."""
    if isinstance(node, ssl.SSLSocket):
        node.setblocking(False)
        with suppress(ssl.SSLWantReadError):  # it does not wait for the answer
            node.unwrap()
    node.shutdown(socket.SHUT_WR)
    while node.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != FIN_WAIT2:
        pass
