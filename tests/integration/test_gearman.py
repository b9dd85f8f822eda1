"""Gearman at real nodes: across nodes, at its limits, and with misbehaving clients.

The comparison with gearmand is in test_gearman_scripts; tests with real clients are in
test_gearman_clients, those that kill nodes in test_gearman_failover.
"""

import random
import time
from collections.abc import Iterator

import pytest

from beanpole.constants import JOB_SIZE_MAX_BYTES, RESULT_MAX_BYTES, WATCHED_TUBES_MAX
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply, ReplyParser, request
from tests.integration.support.nodes import Cluster
from tests.integration.support.processes import answers
from tests.integration.support.raw import Address, connect
from tests.integration.support.waiting import wait_until

REPLY_TIMEOUT_S = 60.0
PORT_TIMEOUT_S = 60.0
FUNCTIONS = 10_000
PIPELINE = 500
DROPPERS = 20


class Client:
    """A connection that speaks Gearman's packets and administrative lines."""

    def __init__(self, address: Address) -> None:
        self._stream = connect(address, REPLY_TIMEOUT_S)
        self._parser = ReplyParser()

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._stream.sendall(data)

    def receive(self) -> Reply:
        """Receive a packet."""
        while (reply := self._parser.next()) is None:
            self._more()
        return reply

    def ask(self, kind: int, *arguments: bytes) -> Reply:
        """Send a packet and receive its reply."""
        self.send(request(kind, *arguments))
        return self.receive()

    def tell(self, kind: int, *arguments: bytes) -> None:
        """Send a packet that has no reply, and wait until the node has read it."""
        self.send(request(kind, *arguments))
        assert self.ask(p.ECHO_REQ, b"read") == (p.ECHO_RES, (b"read",))

    def rows(self, line: bytes) -> list[bytes]:
        """Send a line and receive the rows of a list."""
        self.send(line + b"\n")
        rows: list[bytes] = []
        while (row := self.line()) != b".\n":
            rows.append(row)
        return rows

    def line(self) -> bytes:
        """Receive a line."""
        while (line := self._parser.line()) is None:
            self._more()
        return line

    def ends(self) -> bool:
        """Whether the server closes the connection; earlier replies are discarded."""
        try:
            while self._stream.recv(65536):
                pass
        except ConnectionError:
            pass
        return True

    def close(self) -> None:
        """Break the connection."""
        self._stream.close()

    def _more(self) -> None:
        data = self._stream.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._parser.feed(data)


class Clients:
    """Clients of three nodes: of two followers and of the leader."""

    def __init__(self, cluster: Cluster) -> None:
        leader, followers = cluster.roles()
        numbers = [*followers, leader]
        self.addresses = [cluster.nodes[number].speaks("gearman") for number in numbers]
        wait_until(lambda: all(map(answers, self.addresses)), PORT_TIMEOUT_S, "Gearman's ports")
        self._made: list[Client] = []

    def connect(self, place: int = 0) -> Client:
        """Connect to one of the followers (0, 1), or to the leader (2)."""
        self._made.append(Client(self.addresses[place]))
        return self._made[-1]

    def worker(self, function: bytes, place: int = 1) -> Client:
        """Connect a worker for a function."""
        made = self.connect(place)
        made.tell(p.CAN_DO, function)
        return made

    def drop(self, functions: list[bytes]) -> None:
        """Drop functions that no worker has."""
        admins = [self.connect(place % 3) for place in range(DROPPERS)]
        for place, admin in enumerate(admins):
            lines = [b"drop function %b\n" % name for name in functions[place::DROPPERS]]
            admin.send(b"".join(lines))
        for place, admin in enumerate(admins):
            assert {admin.line() for _ in functions[place::DROPPERS]} == {b"OK\r\n"}

    def close(self) -> None:
        for client in self._made:
            client.close()


@pytest.fixture
def clients(shared: Cluster) -> Iterator[Clients]:
    made = Clients(shared)
    try:
        yield made
    finally:
        made.close()


def grab(worker: Client) -> Reply:
    """Take the next job, sleeping until there is one."""
    while (reply := worker.ask(p.GRAB_JOB))[0] == p.NO_JOB:
        assert worker.ask(p.PRE_SLEEP) == (p.NOOP, ())
    return reply


def error_of(reply: Reply) -> tuple[bytes, bytes]:
    kind, (code, text) = reply
    assert kind == p.ERROR
    return code, text


def test_news_of_a_job_come_to_other_nodes_in_order(clients: Clients) -> None:
    one, other = clients.connect(0), clients.connect(2)
    worker = clients.worker(b"news")
    _, (handle,) = one.ask(p.SUBMIT_JOB, b"news", b"u", b"body")
    assert other.ask(p.SUBMIT_JOB, b"news", b"u", b"body") == (p.JOB_CREATED, (handle,))
    assert grab(worker) == (p.JOB_ASSIGN, (handle, b"news", b"body"))
    news = []
    for number in range(100):
        news.append((p.WORK_DATA, (handle, b"%d" % number)))
        news.append((p.WORK_WARNING, (handle, b"%d" % number)))
    news.append((p.WORK_COMPLETE, (handle, b"end")))
    worker.send(b"".join(request(kind, *arguments) for kind, arguments in news))
    for client in (one, other):
        assert [client.receive() for _ in news] == news


def test_a_worker_sleeps_at_one_node_until_another_has_a_job(clients: Clients) -> None:
    worker = clients.worker(b"sleep")
    assert worker.ask(p.GRAB_JOB) == (p.NO_JOB, ())
    worker.tell(p.PRE_SLEEP)
    _, (handle,) = clients.connect(0).ask(p.SUBMIT_JOB_BG, b"sleep", b"", b"x")
    assert worker.receive() == (p.NOOP, ())
    assert worker.ask(p.GRAB_JOB) == (p.JOB_ASSIGN, (handle, b"sleep", b"x"))
    worker.tell(p.PRE_SLEEP)
    due_s = int(time.time()) + 2
    clients.connect(2).ask(p.SUBMIT_JOB_EPOCH, b"sleep", b"", b"%d" % due_s, b"y")
    assert worker.receive() == (p.NOOP, ())
    assert worker.ask(p.GRAB_JOB)[1][1:] == (b"sleep", b"y")
    assert time.time() >= due_s - 0.1, "the clocks of one machine agree"


@pytest.mark.long
def test_ten_thousand_functions(clients: Clients) -> None:
    client = clients.connect(0)
    names = [b"many%d" % number for number in range(FUNCTIONS)]
    for first in range(0, FUNCTIONS, PIPELINE):
        part = names[first : first + PIPELINE]
        client.send(b"".join(request(p.SUBMIT_JOB_BG, name, b"", name) for name in part))
        assert {client.receive()[0] for _ in part} == {p.JOB_CREATED}
    rows = clients.connect(1).rows(b"status")
    assert {row for row in rows if row.startswith(b"many")} == {
        name + b"\t1\t0\t0\n" for name in names
    }
    worker = clients.connect(1)
    worker.send(b"".join(request(p.CAN_DO, name) for name in names))
    for _ in range(FUNCTIONS - WATCHED_TUBES_MAX):
        code, text = error_of(worker.receive())
        assert (code, text) == (b"QUEUE_ERROR", b"A worker has 1024 functions at most")
    for name in names[:100]:
        assert worker.ask(p.GRAB_JOB)[1][1:] == (name, name), "the oldest first"
    unique = (b"many7", b"1", b"1", b"0", b"0", b"0")
    client.ask(p.SUBMIT_JOB_BG, names[-1], b"many7", b"x")
    found = clients.connect(2).ask(p.GET_STATUS_UNIQUE, b"many7")
    assert found == (p.STATUS_RES_UNIQUE, (*unique[:2], b"0", *unique[3:]))
    admin = clients.connect(2)
    worker.close()
    wait_until(
        lambda: b"many0\t1\t0\t0\n" in admin.rows(b"status"), PORT_TIMEOUT_S, "the worker's end"
    )
    clients.drop(names)
    assert not [row for row in admin.rows(b"status") if row.startswith(b"many")]


def test_the_largest_of_everything(clients: Clients) -> None:
    client, worker = clients.connect(0), clients.worker(b"large")
    body, result = bytes(JOB_SIZE_MAX_BYTES), bytes(RESULT_MAX_BYTES)
    _, (handle,) = client.ask(p.SUBMIT_JOB, b"large", b"", body)
    assert grab(worker) == (p.JOB_ASSIGN, (handle, b"large", body))
    for _ in range(3):
        worker.send(request(p.WORK_DATA, handle, result))
    worker.send(request(p.WORK_COMPLETE, handle, result))
    for _ in range(3):
        assert client.receive() == (p.WORK_DATA, (handle, result))
    assert client.receive() == (p.WORK_COMPLETE, (handle, result))
    assert error_of(client.ask(p.SUBMIT_JOB, b"large", b"", body + b"x"))[0] == (
        b"ARGUMENT_TOO_LARGE"
    )
    code, text = error_of(client.ask(p.SUBMIT_JOB, b"large", b"", body * 3))
    assert (code, text[:12]) == (b"ARGUMENT_TOO_LARGE", b"A packet has")
    assert client.ask(p.ECHO_REQ, b"still here")[0] == p.ECHO_RES
    client.send(p.HEADER.pack(p.REQUEST_MAGIC, p.SUBMIT_JOB, p.PACKET_SKIPPED_MAX_BYTES + 1))
    assert error_of(client.receive())[0] == b"ARGUMENT_TOO_LARGE"
    assert client.ends()


def test_a_result_that_is_too_large_fails_its_job(clients: Clients) -> None:
    client, worker = clients.connect(0), clients.worker(b"too-large")
    client.ask(p.OPTION_REQ, b"exceptions")
    _, (handle,) = client.ask(p.SUBMIT_JOB, b"too-large", b"", b"")
    grab(worker)
    worker.tell(p.WORK_COMPLETE, handle, bytes(RESULT_MAX_BYTES + 1))
    assert worker.ask(p.ECHO_REQ, b"on") == (p.ECHO_RES, (b"on",)), "libraries end on an ERROR"
    text = b"The result has more than 1048576 bytes"
    assert client.receive() == (p.WORK_EXCEPTION, (handle, text))


def test_a_client_that_reads_nothing_is_closed_and_holds_nobody_up(clients: Clients) -> None:
    client, worker = clients.connect(0), clients.worker(b"flood")
    _, (handle,) = client.ask(p.SUBMIT_JOB, b"flood", b"u-flood", b"")
    grab(worker)
    asker = clients.connect(2)

    def is_closed() -> bool:
        worker.tell(p.WORK_DATA, handle, bytes(RESULT_MAX_BYTES))
        state = asker.ask(p.GET_STATUS_UNIQUE, b"u-flood")[1]
        return state[-1] == b"0"

    wait_until(is_closed, REPLY_TIMEOUT_S, "the client is closed")
    worker.tell(p.WORK_COMPLETE, handle, b"done")
    assert client.ends()
    assert asker.ask(p.GET_STATUS, handle)[1][1] == b"0"


def test_garbage_on_the_port(clients: Clients) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")  # noqa: T201
    dice = random.Random(seed)
    watcher = clients.connect(0)
    for number in range(60):
        client = clients.connect(0)
        data = dice.randbytes(dice.randrange(1, 3000))
        if number % 3 == 0:  # after a valid magic, with a plausible size
            kind, size = dice.randrange(45), dice.randrange(len(data) + 10)
            data = p.HEADER.pack(p.REQUEST_MAGIC, kind, size) + data
        elif number % 3 == 1:
            data = b"\0" + data
        client.send(data)
        if number % 2:
            client.close()  # perhaps in the middle of a packet
    assert watcher.ask(p.ECHO_REQ, b"fine") == (p.ECHO_RES, (b"fine",))
    kind, _ = watcher.ask(p.SUBMIT_JOB_BG, b"after-garbage", b"", b"")
    assert kind == p.JOB_CREATED


def test_half_a_packet_is_waited_for(clients: Clients) -> None:
    client = clients.connect(0)
    whole = request(p.ECHO_REQ, b"halves") + b"version\n"
    for place in range(len(whole)):
        client.send(whole[place : place + 1])
    assert client.receive() == (p.ECHO_RES, (b"halves",))
    client.send(request(p.SUBMIT_JOB_BG, b"half", b"u-half", b"body")[:-2])
    client.close()
    found = clients.connect(0).ask(p.GET_STATUS_UNIQUE, b"u-half")
    assert found[1][1] == b"0", "a packet that never came was no job"
