"""A real node and the datagrams of a service manager: ready, status, watchdog, reload, stop."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from beanpoled import descriptors
from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.processes import Process
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0


class Manager:
    """The socket of a service manager, with the received lines in order."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(TIMEOUT_S)
        self.told: list[str] = []

    def wait_for(self, message: str) -> None:
        """Read until this message; TimeoutError if no datagram arrives."""
        while message not in (lines := self._socket.recv(4096).decode().split("\n")):
            self.told += lines
        self.told += lines

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["a path", "an abstract name"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Manager]]:
    """The value of NOTIFY_SOCKET, and the socket at that address."""
    name = f"beanpole-test-{os.getpid()}"
    path = str(tmp_path / "notify") if request.param == "a path" else f"@{name}"
    manager = Manager(f"\0{name}" if path.startswith("@") else path)
    yield path, manager
    manager.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path / "cluster", count=1)
    yield cluster
    cluster.close()


def start(cluster: Cluster, path: str) -> Process:
    """Start the only node with the environment of a service manager."""
    directory = cluster.nodes[0].directory
    environment = {"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "1000000"}
    return Process(cluster.command(0), directory / "output.log", environment)


def test_a_life_of_a_service(cluster: Cluster, manager: tuple[str, Manager]) -> None:
    path, told = manager
    process = start(cluster, path)
    try:
        told.wait_for("READY=1")
        assert http_get(cluster.nodes[0].http, "/livez")[0] == 200, "its ports are open"
        told.wait_for("STATUS=serving")
        told.wait_for("WATCHDOG=1")
        told.wait_for("WATCHDOG=1")
        configuration = cluster.nodes[0].directory / "node.toml"
        text = configuration.read_text()
        configuration.write_text(f'log_level = "debug"\njobs_max = 7\n{text}')
        process.signal(signal.SIGHUP)
        told.wait_for("RELOADING=1")
        told.wait_for("READY=1")
        process.wait_for_words("not reloaded, they take effect with a restart: jobs_max\n")
        process.wait_for_words("reloaded: log_level is debug, was info\n")
        configuration.write_text(f'log_level = "loud"\n{text}')
        process.signal(signal.SIGHUP)
        told.wait_for("READY=1")
        process.wait_for_words("not reloaded: log_level = 'loud'")
        process.signal(signal.SIGTERM)
        told.wait_for("STOPPING=1")
        assert process.wait() == 0
    finally:
        process.kill()


def test_a_node_that_still_waits_is_ready_and_says_for_whom(tmp_path: Path) -> None:
    """A manager that waited for a majority would time out before the others are started."""
    manager = Manager(str(tmp_path / "notify"))
    cluster = Cluster(tmp_path / "cluster")
    process = start(cluster, str(tmp_path / "notify"))
    try:
        manager.wait_for("READY=1")
        waits = "waiting for all members to found the cluster"
        first, second = (f"{node.id} {node.peer} refused" for node in cluster.nodes[1:])
        manager.wait_for(f"STATUS=starting: {waits}: {first}, {second}")
        process.signal(signal.SIGHUP)
        wait_until(lambda: "reloaded: no setting has" in process.log.read_text(), TIMEOUT_S)
        assert process.status() is None
    finally:
        process.kill()
        cluster.close()
        manager.close()


def test_what_the_system_lowered_is_no_change(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    limited = ["sh", "-c", 'ulimit -n 1000; exec "$@"', "sh", *cluster.command(0)]
    process = Process(limited, node.directory / "output.log")
    try:
        wait_until(lambda: http_get(node.http, "/readyz")[0] == 200, TIMEOUT_S)
        allowed = 1000 - descriptors.SPARE
        process.wait_for_words(f"connections_max = 16000 is lowered to {allowed}")
        process.signal(signal.SIGHUP)
        wait_until(lambda: "reloaded: " in process.log.read_text(), TIMEOUT_S)
        assert "not reloaded" not in process.log.read_text()
    finally:
        process.kill()


def test_without_a_manager_a_node_runs_as_ever(cluster: Cluster) -> None:
    process = start(cluster, "/nowhere/at/all")
    try:
        wait_until(lambda: http_get(cluster.nodes[0].http, "/readyz")[0] == 200, TIMEOUT_S)
        assert process.terminate() == 0
    finally:
        process.kill()
