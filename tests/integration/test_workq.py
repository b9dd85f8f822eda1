"""Workq at real nodes: its transcripts at a single node and through followers; large results."""

import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beanpole.client.workq import Client, Result, State
from tests.integration.support.nodes import Cluster, http_get
from tests.integration.support.processes import answers
from tests.integration.support.raw import Raw
from tests.integration.support.waiting import wait_until
from tests.integration.support.workq_scripts import PAGE, SCRIPTS, Player, read_script

CLIENTS = 300
TIMEOUT_S = 60.0
MIB = 1 << 20


def wait_for_ports(cluster: Cluster) -> list[str]:
    """Return the nodes' Workq addresses, once the version is raised and the ports are open."""
    ports = [node.speaks("workq") for node in cluster.nodes]
    wait_until(lambda: all(map(answers, ports)), TIMEOUT_S, "the ports of the protocol")
    return ports


def test_transcripts_at_one_node(tmp_path: Path) -> None:
    with Cluster(tmp_path / "one", count=1).running() as node:
        ports = wait_for_ports(node)
        for script in SCRIPTS:
            Player(ports).play(script)


def test_transcripts_through_followers(cluster: Cluster) -> None:
    ports = wait_for_ports(cluster)
    followers = [ports[number] for number in cluster.followers()]
    for script in SCRIPTS:
        Player(followers).play(script)


def test_every_deviation_is_explained() -> None:
    used = {step.deviation for script in SCRIPTS for step in read_script(script)} - {""}
    explained = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(SCRIPTS) > 3
    assert used <= set(explained), "docs/protocols/workq.md has the reasons"


@pytest.fixture
def connect(shared: Cluster) -> Iterator[Callable[[int], Client]]:
    ports = wait_for_ports(shared)
    clients: list[Client] = []

    def begin(number: int) -> Client:
        clients.append(Client([ports[number]]))
        return clients[-1]

    yield begin
    for client in clients:
        client.close()


def name() -> bytes:
    """The name of a queue that only this test uses."""
    return b"q-%b" % uuid.uuid4().hex.encode()


def test_hundreds_wait_for_one_large_result_at_every_node(
    shared: Cluster, connect: Callable[[int], Client]
) -> None:
    ports = wait_for_ports(shared)
    job = connect(0).add(name(), b"x")
    result = os.urandom(MIB)
    waiting = [Raw(ports[number % 3], timeout_s=60) for number in range(CLIENTS)]
    try:
        for client in waiting:
            client.send(b"result %b 60000\r\n" % str(job).encode())
        text = f'beanpole_commands_total{{protocol="workq",command="result"}} {CLIENTS // 3}\n'
        for node in shared.nodes:
            wait_until(lambda at=node.http: text in http_get(at, "/metrics")[1], TIMEOUT_S)  # type: ignore[misc]
        connect(1).complete(job, result)
        for client in waiting:
            client.expect(b"+OK 1", b"%b 1 %d" % (str(job).encode(), MIB))
            assert client.body(MIB) == result
    finally:
        for client in waiting:
            client.close()


def test_payloads_and_results_of_a_mebibyte(connect: Callable[[int], Client]) -> None:
    queue, payload = name(), os.urandom(MIB)
    producer, worker = connect(0), connect(1)
    job = producer.add(queue, payload)
    leased = worker.lease([queue], 20_000)
    assert leased is not None
    assert (leased.id, leased.payload) == (job, payload)
    worker.complete(job, payload[::-1])
    assert producer.result(job) == Result(True, payload[::-1])
    assert connect(2).inspect_job(job).payload == payload


def test_a_run_at_one_node_is_worked_on_at_another(connect: Callable[[int], Client]) -> None:
    queue = name()
    worker = connect(1)

    def work() -> None:
        for _ in range(2):
            leased = worker.lease([queue], 20_000)
            assert leased is not None
            done = worker.complete if leased.payload == b"good" else worker.fail
            done(leased.id, leased.payload[::-1])

    thread = threading.Thread(target=work)
    thread.start()
    client = connect(2)
    assert client.run(queue, b"good", wait_ms=20_000) == Result(True, b"doog")
    assert client.run(queue, b"bad", wait_ms=20_000) == Result(False, b"dab")
    thread.join()
    assert client.run(queue, b"x", wait_ms=10) is None


def test_queues_of_protocols_are_apart(shared: Cluster, connect: Callable[[int], Client]) -> None:
    queue = name()
    client = connect(0)
    job = client.add(queue, b"x")
    with Raw(shared.nodes[0].beanstalk) as beanstalk:
        beanstalk.ask(b"watch " + queue, b"WATCHING 2")
        beanstalk.ask(b"ignore default", b"WATCHING 1")
        beanstalk.ask(b"reserve-with-timeout 0", b"TIMED_OUT")
    assert client.inspect_job(job).state == State.NEW


def test_a_client_goes_on_when_the_leader_dies(cluster: Cluster) -> None:
    """The leader is the clients' node. Added jobs are completed once, and `run` gets its result."""
    leader = cluster.leader()
    ports = wait_for_ports(cluster)
    others = [port for number, port in enumerate(ports) if number != leader]
    added, run = name(), name()
    results: list[Result | None] = []
    with Client([ports[leader], *others], patience_s=60) as producer, Client(others) as worker:

        def wait() -> None:
            with Client([ports[leader], *others], patience_s=60) as runner:
                results.append(runner.run(run, b"x", wait_ms=60_000))

        thread = threading.Thread(target=wait)
        thread.start()
        wait_until(lambda: (found := worker.inspect_queue(run)) and found.ready == 1, TIMEOUT_S)
        jobs = [producer.add(added, b"%d" % number) for number in range(100)]
        cluster.kill(leader)
        jobs += [producer.add(added, b"%d" % number) for number in range(100, 200)]
        leased = worker.lease([run], 60_000)
        assert leased is not None
        worker.complete(leased.id, b"done")
        thread.join()
        assert results == [Result(True, b"done")]
        for _ in jobs:
            leased = worker.lease([added], 20_000)
            assert leased is not None
            worker.complete(leased.id, leased.payload)
        assert worker.lease([added], 0) is None, "no job was added twice"
        expected = [Result(True, b"%d" % number) for number in range(200)]
        assert [producer.result(job, 0) for job in jobs] == expected
