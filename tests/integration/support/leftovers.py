"""One node in this process beside its clients, to count the objects that ended connections leave.

Usage: python -m tests.integration.support.leftovers FIRST_PORT FOLDER
Prints the name of each scene, and as JSON the types of which the node keeps one for each connection
of that scene, once all its clients have gone. A node never collects its oldest generation by itself
while it has many jobs (`beanpoled.collecting`): an object that is old when its connection ends must
break its own cycles.
"""

import gc
import json
import os
import socket
import ssl
import struct
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import uvloop

from beanpoled import collecting
from beanpoled import main as program
from beanpoled.cli.certs import make_ca, make_certificate
from beanpoled.config import node as configuration
from tests.integration.support.waiting import wait_until

CONNECTIONS: Final = 20
TIMEOUT_S: Final = 30.0
START_TIMEOUT_S: Final = 120.0
# Offsets of the ports from the first one.
TLS, PEERS, GRPC, HTTP, WORKQ, GEARMAN, QLESS = 1, 10, 20, 30, 40, 50, 60
_CONFIGURATION = """
disk_reserve_bytes = 0
cluster = "test"
node_id = "n0"
data_dir = "{folder}/data"
listen = ["127.0.0.1:{first}", "tls:127.0.0.1:{tls}"]
peer_listen = "127.0.0.1:{peers}"
grpc_listen = "127.0.0.1:{grpc}"
http_listen = "127.0.0.1:{http}"
tls_certificate_file = "{folder}/n0.pem"
tls_key_file = "{folder}/n0.key"
failed_handshakes_per_second_max = 0
[members.n0]
peer = "127.0.0.1:{peers}"
grpc = "127.0.0.1:{grpc}"
[listeners]
workq = ["127.0.0.1:{workq}"]
gearman = ["127.0.0.1:{gearman}"]
qless = ["127.0.0.1:{qless}"]
"""

# Opens one connection, and returns it when the node has its request.
Open = Callable[[int], socket.socket]
# Ends one connection.
End = Callable[[socket.socket], None]


def live() -> Counter[str]:
    """Count the objects of the program, and what keeps a frame alive, by type."""
    types = (type(one) for one in gc.get_objects())
    named = (f"{of.__module__}.{of.__qualname__}" for of in types)
    kept = ("beanpoled.", "_asyncio.Task", "asyncio.streams.", "builtins.traceback")
    return Counter(name for name in named if name.startswith(kept))


def left(before: Counter[str]) -> dict[str, int]:
    """Collect as a node does; return the types of which there are more by one a connection."""
    gc.collect(1)
    now = live()
    more = {name: now[name] - before[name] for name in now}
    return {name: count for name, count in more.items() if count >= CONNECTIONS // 2}


class Clients:
    """Opens connections to the node."""

    def __init__(self, first: int, folder: Path) -> None:
        self._first = first
        self._context = ssl.create_default_context(cafile=str(folder / "ca.pem"))

    def silent(self, offset: int = 0) -> socket.socket:
        """Connect, and send nothing."""
        return socket.create_connection(("127.0.0.1", self._first + offset), TIMEOUT_S)

    def asked(self, request: bytes, offset: int = 0, is_waiting: bool = False) -> socket.socket:
        """Send a request; return the connection after its reply, unless the request waits."""
        found = self.silent(offset)
        if offset == TLS:
            found = self._context.wrap_socket(found, server_hostname="n0")
        found.sendall(request)
        if not is_waiting:
            assert found.recv(65536), "no reply"
        return found

    def waiting(self, offset: int = 0) -> socket.socket:
        """Reserve from a tube of its own, which has no jobs."""
        found = self.asked(b"watch empty\r\n", offset)
        found.sendall(b"ignore default\r\n")
        assert found.recv(100).startswith(b"WATCHING")
        found.sendall(b"reserve\r\n")
        return found


def close(client: socket.socket) -> None:
    """End the stream."""
    client.close()


def reset(client: socket.socket) -> None:
    """Reset the connection."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def spoil(client: socket.socket) -> None:
    """Send garbage, wait for the node to close, and close."""
    client.sendall(b"GET / HTTP/1.0\r\n\r\n")
    while client.recv(100):
        pass
    client.close()


def _packet(kind: int, body: bytes) -> bytes:
    return b"\0REQ" + struct.pack(">II", kind, len(body)) + body


def scenes(clients: Clients) -> dict[str, tuple[Open, End]]:
    """Return the scenes by name."""
    job = b"put 0 0 60 1\r\nx\r\nreserve\r\n"
    page = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$6\r\nql:log\r\n"
    lease = b"lease empty 60000\r\n"
    return {
        "a job is held": (lambda _: clients.asked(job), close),
        "a reserve waits": (lambda _: clients.waiting(), close),
        "a reserve waits, reset": (lambda _: clients.waiting(), reset),
        "a reserve waits, by TLS": (lambda _: clients.waiting(TLS), close),
        "TLS, silent": (lambda _: clients.silent(TLS), close),
        "TLS, silent, reset": (lambda _: clients.silent(TLS), reset),
        "TLS, garbage": (lambda _: clients.silent(TLS), spoil),
        "a lease waits": (lambda _: clients.asked(lease, WORKQ, True), close),
        "Gearman, asleep": (
            lambda _: clients.asked(_packet(1, b"f") + _packet(4, b""), GEARMAN, True),
            close,
        ),
        "Gearman, awaiting": (
            lambda at: clients.asked(_packet(7, b"g\0%d\0x" % at), GEARMAN),
            reset,
        ),
        "qless, subscribed": (lambda _: clients.asked(subscribe, QLESS), close),
        "HTTP, kept alive": (lambda _: clients.asked(page, HTTP), close),
        "HTTP, reset": (lambda _: clients.asked(page, HTTP), reset),
        "a stranger of members": (lambda _: clients.silent(PEERS), reset),
    }


def play(opened: Open, end: End) -> dict[str, int]:
    """Open connections, let them become old, and end them; return what is left of them."""
    gc.collect()  # leaves the scenes before out
    before = live()
    connections = [opened(at) for at in range(CONNECTIONS)]
    wait_until(lambda: left(before), TIMEOUT_S, "the node has the connections")
    for _ in range(2):
        gc.collect(1)  # twice: all of them are in the oldest generation
    for connection in connections:
        end(connection)
    try:
        wait_until(lambda: not left(before), TIMEOUT_S)
    except AssertionError:
        return left(before)
    return {}


def run(first: int, folder: Path) -> None:
    """Play all scenes, and end the process."""
    try:
        clients = Clients(first, folder)
        wait_until(lambda: clients.asked(b"stats\r\n"), START_TIMEOUT_S).close()
        for name, (opened, end) in scenes(clients).items():
            sys.stdout.write(json.dumps([name, play(opened, end)]) + "\n")
            sys.stdout.flush()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    """Run the node in this thread, and its clients in another one."""
    first, folder = int(sys.argv[1]), Path(sys.argv[2])
    make_ca(folder, "30")
    make_certificate(folder, "n0", ["n0"], "30")
    names = {"tls": TLS, "peers": PEERS, "grpc": GRPC, "http": HTTP}
    names |= {"workq": WORKQ, "gearman": GEARMAN, "qless": QLESS}
    ports = {name: first + offset for name, offset in names.items()}
    file = folder / "node.toml"
    file.write_text(_CONFIGURATION.format(folder=folder, first=first, **ports))
    arguments = program.parser().parse_args(["--config", str(file)])
    config = configuration.from_arguments(arguments, {})
    gc.set_threshold(*collecting.COLLECT_AFTER)
    threading.Thread(target=run, args=(first, folder), daemon=True).start()
    uvloop.run(program.run(config))


if __name__ == "__main__":
    main()
