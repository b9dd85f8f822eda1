"""A protocol that is registered in two tables and nowhere else, at real nodes (see `tests/toy`)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.raw import Raw, connect
from tests.toy.frontend import ROW

LINE_TIMEOUT_S = 20.0


class Toy:
    """A client: lines out, lines in."""

    def __init__(self, address: str) -> None:
        self._stream = connect(address, LINE_TIMEOUT_S)
        self._lines = self._stream.makefile("rb")

    def send(self, *lines: bytes) -> None:
        """Send requests."""
        self._stream.sendall(b"".join(line + b"\n" for line in lines))

    def line(self) -> bytes:
        """Receive one reply."""
        line = self._lines.readline()
        assert line.endswith(b"\n"), f"the connection ended after {line!r}"
        return line[:-1]

    def ask(self, line: bytes) -> bytes:
        """Send a request and receive its reply."""
        self.send(line)
        return self.line()

    def close(self) -> None:
        """Break the connection."""
        self._lines.close()
        self._stream.close()


class ToyCluster(Cluster):
    """Three nodes that also speak the toy protocol."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._clients: list[Toy] = []
        for number, node in enumerate(self.nodes):
            line = (node.directory / "cmdline").read_text().split()
            assert line[:3] == [sys.executable, "-m", "beanpoled"]
            line[2] = "tests.toy.node"
            line += ["--listeners", f"{ROW.name}={self.toy(number)}"]
            (node.directory / "cmdline").write_text(" ".join(line))

    def client(self, number: int) -> Toy:
        """Connect a client of the toy protocol to a node."""
        self._clients.append(Toy(self.toy(number)))
        return self._clients[-1]

    def close(self, remove: bool = True) -> None:
        for client in self._clients:
            client.close()
        super().close(remove)

    def toy(self, number: int) -> str:
        """Return where a node speaks the toy protocol."""
        host, _, port = self.nodes[0].beanstalk.rpartition(":")
        return f"{host}:{int(port) + ROW.port_offset + number}"


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[ToyCluster]:
    cluster = ToyCluster(tmp_path / "cluster")
    try:
        cluster.start_all()
        yield cluster
    finally:
        cluster.close()


def test_a_job_is_put_at_one_node_and_taken_at_another(toys: ToyCluster) -> None:
    first, second = toys.client(0), toys.client(1)
    second.send(b"TAKE q", b"DONE 1", b"DONE 1", b"PUT r x", b"what", b"TAKE r")
    assert first.ask(b"PUT q hello") == b"OK 1"
    answers = [second.line() for _ in range(6)]
    assert answers == [b"JOB 1 hello", b"OK", b"NO", b"OK 2", b"HUH", b"JOB 2 x"]
    with Raw(toys.nodes[2].beanstalk) as beanstalk:
        beanstalk.ask(b"use q", b"USING q")
        beanstalk.ask(b"put 0 0 60 3\r\nabc", b"INSERTED 3")
        assert first.ask(b"TAKE q") == b"JOB 3 abc"
    metrics = http_get(toys.nodes[1].http, "/metrics")[1]
    assert 'beanpole_connections{protocol="toy"} 1\n' in metrics
    assert 'beanpole_connections{protocol="beanstalk"} 0\n' in metrics
    assert 'beanpole_commands_total{protocol="toy",command="take"} 2\n' in metrics


def test_a_take_outlives_the_leader(toys: ToyCluster) -> None:
    leader = toys.leader()
    one, other = (number for number in range(3) if number != leader)
    taker, putter = toys.client(one), toys.client(other)
    assert putter.ask(b"PUT other x") == b"OK 1"
    taker.send(b"TAKE q")
    toys.kill(leader)
    assert putter.ask(b"PUT q after") == b"OK 2"
    assert taker.line() == b"JOB 2 after"
    assert taker.ask(b"DONE 2") == b"OK"


def test_the_job_of_a_client_that_is_gone_returns(toys: ToyCluster) -> None:
    first, second = toys.client(0), toys.client(1)
    assert first.ask(b"PUT q x") == b"OK 1"
    assert first.ask(b"TAKE q") == b"JOB 1 x"
    second.send(b"TAKE q")
    first.close()
    assert second.line() == b"JOB 1 x"
