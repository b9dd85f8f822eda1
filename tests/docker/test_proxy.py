"""HAProxy with our configuration, in front of doubles of three nodes: where new clients go."""

import http.server
import re
import socket
import socketserver
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_until

CONFIGURATION: Final = Path(__file__).resolve().parents[2] / "deploy/docker/haproxy.cfg"
NAMES: Final = ("n1", "n2", "n3")
# The ports of clients that any node serves, and the others that the configuration names.
ANY: Final = (11300, 9922, 4730, 6380)
OTHERS: Final = (11301, 11330, 8404)
PROXY: Final = "127.0.0.9"
TIMEOUT_S: Final = 20.0


class Greeting(socketserver.BaseRequestHandler):
    """Sends the address at which it was reached, and waits for the end of the connection."""

    def handle(self) -> None:
        self.request.sendall(f"{self.request.getsockname()[0]}\n".encode())
        self.request.recv(1)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


class Nodes:
    """Doubles of nodes: alive, and ready if they are in `ready`."""

    def __init__(self, base: int) -> None:
        self.ready: set[str] = set()
        self.ports = {port: base + at for at, port in enumerate((*ANY, *OTHERS))}
        self._servers: list[Any] = []
        nodes = self

        class Pages(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                host = self.connection.getsockname()[0]
                name = next(name for name in NAMES if nodes.address(name) == host)
                good = self.path == "/livez" or (self.path == "/readyz" and name in nodes.ready)
                self.send_response(200 if good else 503)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        for name in NAMES:
            for port in (*ANY, 11330):
                handler: Any = Pages if port == 11330 else Greeting
                place = (self.address(name), self.ports[port])
                self._servers.append(Server(place, handler))
        for server in self._servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()

    def address(self, name: str) -> str:
        return f"127.0.0.{11 + NAMES.index(name)}"

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def configuration(self) -> str:
        """Return ours with the addresses and ports of the doubles."""
        text = CONFIGURATION.read_text()
        text = re.sub(
            r"(?<!maxconn )\b\d{4,5}\b", lambda found: str(self.ports[int(found[0])]), text
        )
        for name in NAMES:
            text = text.replace(f" {name}:", f" {self.address(name)}:")
        text = text.replace("bind :", f"bind {PROXY}:")
        return text.replace("init-addr none resolvers dns resolve-prefer ipv4 ", "")

    def states(self) -> dict[str, str]:
        """Return the state of each server of the backend `ready`, as the proxy reports it."""
        url = f"http://{PROXY}:{self.ports[8404]}/;csv"
        rows = urllib.request.urlopen(url, timeout=5).read().decode().splitlines()
        table = [row.split(",") for row in rows if row.startswith("ready,")]
        return {row[1]: row[17] for row in table if row[1] in NAMES}

    def reached(self, port: int) -> str:
        """Return the address of the node that a new client gets; empty if none takes it."""
        with (
            socket.create_connection((PROXY, self.ports[port]), TIMEOUT_S) as client,
            client.makefile() as lines,
        ):
            return lines.readline().strip()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    found = Nodes(free_block())
    path = tmp_path / "haproxy.cfg"
    path.write_text(found.configuration())
    process = Process(["haproxy", "-db", "-f", str(path)], tmp_path / "haproxy.log")
    try:
        process.wait_until_serving(f"{PROXY}:{found.ports[8404]}")
        yield found
    finally:
        process.kill()
        found.close()


def test_clients_of_all_protocols_find_a_node_that_is_alive_while_none_is_ready(
    nodes: Nodes,
) -> None:
    """As in an election: the node keeps their commands until there is a leader."""
    wait_until(
        lambda: all("NOLB" in state for state in nodes.states().values()),
        TIMEOUT_S,
        "none is ready",
    )
    addresses = {nodes.address(name) for name in NAMES}
    assert {port: nodes.reached(port) in addresses for port in ANY} == dict.fromkeys(ANY, True)


def test_dead_peers_are_noticed_as_by_a_node(nodes: Nodes) -> None:
    """The system's own keepalive begins after two hours, in which a dead worker keeps its job."""
    with (
        socket.create_connection((PROXY, nodes.ports[11300]), TIMEOUT_S) as client,
        client.makefile() as lines,
    ):
        node = f"{lines.readline().strip()}:{nodes.ports[11300]}"
        peers = {"{}:{}".format(*client.getsockname()), node}
        command = ["ss", "--no-header", "--tcp", "--numeric", "--options", "--processes"]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    of_proxy = [line for line in found.splitlines() if '"haproxy"' in line]
    timers = {line.split()[4]: line for line in of_proxy if line.split()[4] in peers}
    assert set(timers) == peers, found
    for line in timers.values():
        assert re.search(r"keepalive,(1min|[0-9]+sec)", line), line


def test_a_node_that_is_ready_gets_all_new_clients(nodes: Nodes) -> None:
    nodes.ready.add("n2")
    wanted = {"n1": "NOLB", "n2": "UP", "n3": "NOLB"}
    wait_until(
        lambda: all(nodes.states()[name].startswith(state) for name, state in wanted.items()),
        TIMEOUT_S,
        "one is ready",
    )
    for port in ANY * 3:
        assert nodes.reached(port) == nodes.address("n2")
