"""A protocol that is only registered in two tables, at real nodes (see `tests/toy`)."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.processes import answers
from tests.integration.support.raw import Raw, connect
from tests.integration.support.waiting import wait_until
from tests.toy.frontend import ROW

LINE_TIMEOUT_S = 60.0


class Toy:
    """A client of the toy protocol: sends and receives lines."""

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
            line[line.index("--listeners") + 1] += f",{ROW.name}={self.toy(number)}"
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
        """Return the address at which a node speaks the toy protocol."""
        host, _, port = self.nodes[0].beanstalk.rpartition(":")
        return f"{host}:{int(port) + ROW.port_offset + number}"


@pytest.fixture
def toys(tmp_path: Path) -> Iterator[ToyCluster]:
    cluster = ToyCluster(tmp_path / "cluster")
    try:
        cluster.start_all()
        ports = [cluster.toy(number) for number in range(3)]
        wait_until(lambda: all(map(answers, ports)), LINE_TIMEOUT_S, "the ports of the protocol")
        yield cluster
    finally:
        cluster.close()


def test_a_job_is_put_at_one_node_and_taken_at_another(toys: ToyCluster) -> None:
    first, second = toys.client(0), toys.client(1)
    second.send(b"TAKE q", b"DONE 1 x", b"DONE 1 x", b"PUT r x", b"what", b"TAKE r")
    assert first.ask(b"PUT q hello") == b"OK 1"
    answers = [second.line() for _ in range(6)]
    assert answers == [b"JOB 1 hello", b"OK", b"NO", b"OK 2", b"HUH", b"JOB 2 x"]
    with Raw(toys.nodes[2].beanstalk) as beanstalk:
        beanstalk.ask(b"use q", b"USING q")
        beanstalk.ask(b"put 0 0 60 3\r\nabc", b"INSERTED 3")
        beanstalk.ask(b"delete 2", b"NOT_FOUND")
        assert first.ask(b"TRY q") == b"NO", "each protocol has queues of its own"
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
    assert taker.ask(b"DONE 2 well") == b"OK"


def test_the_job_of_a_client_that_is_gone_returns(toys: ToyCluster) -> None:
    first, second = toys.client(0), toys.client(1)
    assert first.ask(b"PUT q x") == b"OK 1"
    assert first.ask(b"TAKE q") == b"JOB 1 x"
    second.send(b"TAKE q")
    first.close()
    assert second.line() == b"JOB 1 x"


def test_a_result_is_pushed_to_a_client_of_another_node(toys: ToyCluster) -> None:
    putter, worker, listener = (toys.client(number) for number in range(3))
    assert putter.ask(b"PUT q a") == b"OK 1"
    assert putter.ask(b"PUT q b") == b"OK 2"
    assert listener.ask(b"LISTEN 1") == b"OK"
    assert listener.ask(b"LISTEN 9") == b"NO"
    assert worker.ask(b"TRY q") == b"JOB 1 a"
    assert worker.ask(b"TRY q") == b"JOB 2 b"
    assert worker.ask(b"TRY q") == b"NO"
    assert worker.ask(b"DONE 2 nobody-listens") == b"OK"
    assert worker.ask(b"TELL 1 half") == b"OK"
    assert worker.ask(b"DONE 1 forty-two") == b"OK"
    assert listener.line() == b"TOLD 1 half"
    assert listener.line() == b"RESULT 1 forty-two"
    assert [listener.ask(b"LISTEN 1"), listener.line()] == [b"OK", b"RESULT 1 forty-two"]


def test_a_listener_and_a_sleeper_outlive_the_leader(toys: ToyCluster) -> None:
    """The leader knows neither of them, so there is nothing to repeat at its successor."""
    leader = toys.leader()
    one, other = (number for number in range(3) if number != leader)
    putter, listener, sleeper = toys.client(one), toys.client(other), toys.client(other)
    sleeper.send(b"POLL q", b"TRY q", b"POLL q")
    assert putter.ask(b"PUT other x") == b"OK 1"
    assert listener.ask(b"LISTEN 1") == b"OK"
    toys.kill(leader)
    assert putter.ask(b"TRY other") == b"JOB 1 x"
    assert putter.ask(b"DONE 1 after") == b"OK"
    assert listener.line() == b"RESULT 1 after"
    assert putter.ask(b"PUT q y") == b"OK 2"
    assert [sleeper.line() for _ in range(2)] == [b"READY", b"JOB 2 y"]
    assert putter.ask(b"PUT q z") == b"OK 3"
    assert sleeper.line() == b"READY"
