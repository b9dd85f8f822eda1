"""The bound of the outbox: requests of clients wait while it is full."""

import pytest

from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from tests.unit.node.settling import settle
from tests.unit.node.stage import Port, Stage

BYTES_MAX = 64 * 1024
# Short requests, each of which is a command of less than 256 bytes.
ROW = 256
TIMES = 3000
INPUT = b"use aa\r\nuse default\r\n" * TIMES


@pytest.fixture
def stage() -> Stage:
    """Return a node without a leader: nothing leaves its outbox."""
    found = Stage()
    found.lead()
    found.come_up()
    found.client(b"use aa\r\n")
    settle(found)
    found.become("follower", None, 2)
    found.node.clients.outbox_bytes_max = BYTES_MAX
    return found


def connect(stage: Stage, count: int) -> list[tuple[BeanstalkConnection, Port]]:
    """Connect clients, each of which sends many requests in one read."""
    found = []
    for _ in range(count):
        found.append(stage.client())
        found[-1][0].received(INPUT)
        stage.run()
    return found


def drain(stage: Stage, clients: list[tuple[BeanstalkConnection, Port]]) -> None:
    """Commit everything."""
    for _ in range(1000):
        stage.pass_us(20_000)
        stage.commit()
        if all(port.reading and not one._buffered_bytes for one, port in clients):
            break
    settle(stage)


def test_input_in_memory_waits_while_the_outbox_is_full(stage: Stage) -> None:
    clients = connect(stage, 40)
    assert stage.node.origin.bytes < BYTES_MAX + ROW * 256
    stage.lead(3)
    most = 0
    for _ in range(20):
        stage.pass_us(20_000)
        stage.commit()
        most = max(most, stage.node.origin.bytes)
    assert most < BYTES_MAX + ROW * 256, "those that go on fill it once, not all of them"
    for connection, _ in clients[4:]:
        connection.lost()
    drain(stage, clients[:4])
    for connection, port in clients[:4]:
        assert port.output.count(b"USING") == 2 * TIMES
        assert port.reading and not connection._buffered_bytes
    assert not (stage.node.clients.paused or stage.node.clients._resuming)


def test_clients_that_end_while_others_go_on_are_not_kept(stage: Stage) -> None:
    clients = connect(stage, 100)
    node = stage.node
    assert len(node.clients.paused) == 100
    node.clients.outbox_bytes_max = 1 << 30
    node.clients.run_periodic()  # the first of them go on, the others in later steps of the loop
    assert len(node.clients._resuming) > 50
    for connection, _ in clients[1:]:
        connection.lost()
    stage.run()
    assert not node.clients._resuming
    stage.lead(3)
    drain(stage, clients[:1])
    assert clients[0][1].output.count(b"USING") == 2 * TIMES


def test_an_outbox_that_is_full_again_lets_nobody_wait_for_ever(stage: Stage) -> None:
    clients = connect(stage, 40)
    node = stage.node
    node.clients.outbox_bytes_max = node.origin.bytes + 4096
    node.clients.run_periodic()
    assert node.clients.outbox_is_full and not node.clients._resuming
    assert len(node.clients.paused) == 40
    node.clients.outbox_bytes_max = 1 << 30
    stage.lead(3)
    drain(stage, clients)
    assert all(port.output.count(b"USING") == 2 * TIMES for _, port in clients)


def test_a_client_that_has_sent_nothing_may_leave_while_the_outbox_is_full(stage: Stage) -> None:
    connection, port = stage.client()
    connect(stage, 1)
    assert stage.node.clients.outbox_is_full
    connection.half_closed()
    assert port.closed
