"""The limits of one client address at a node: its connections, and its commands per second."""

from collections import OrderedDict
from typing import Any

import pytest

from beanpole.addresses import UNIX
from beanpoled.frontends import client_hosts
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.frontends.client_hosts import REFUSED_MAX, ClientHosts
from beanpoled.frontends.connection import Connection
from tests.unit.node.stage import Port, Stage, config

ONE, TWO = b"10.0.0.1", b"10.0.0.2"
ASK = b"list-tube-used\r\n"
ANSWER = b"USING default\r\n"
TENTH_US = 100_000
# The first command of a client beyond the limit, and the refusal, by protocol.
REFUSALS = {
    "beanstalk": (b"list-tubes\r\n", b"OUT_OF_MEMORY\r\n"),
    "workq": (b"inspect queues 0 10\r\n", b"-SERVER-ERROR Too many clients\r\n"),
    "gearman": (
        b"status\n",
        b"ERR QUEUE_ERROR The+node+has+as+many+connections+as+it+may\r\n",
    ),
    "qless": (b"PING\r\n", b"-ERR max number of clients reached\r\n"),
}


class Scene(Stage):
    """A leader with clients of two addresses."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(**limits)
        self.lead()
        self.come_up()

    def connect(
        self, host: bytes = ONE, protocol: str = "beanstalk"
    ) -> tuple[Connection | None, Port]:
        port = Port(host)
        return self.node.frontends[protocol].connected(port), port

    def client(self, data: bytes = b"", host: bytes = ONE) -> tuple[BeanstalkConnection, Port]:
        """Connect, and send."""
        connection, port = self.connect(host)
        assert isinstance(connection, BeanstalkConnection)
        if data:
            self.send(connection, data)
        return connection, port

    def send(self, connection: BeanstalkConnection, data: bytes) -> None:
        connection.received(data)
        self.pass_us(1000)  # flushes the replies

    @property
    def hosts(self) -> object:
        return self.node.clients.hosts._hosts


def answers(port: Port) -> int:
    """Return the number of replies since the last call."""
    found = port.take()
    assert found == ANSWER * (len(found) // len(ANSWER))
    return len(found) // len(ANSWER)


@pytest.mark.parametrize("protocol", REFUSALS)
def test_one_client_too_many_of_an_address_has_the_refusal_of_its_protocol(protocol: str) -> None:
    scene = Scene(connections_per_address_max=1)
    scene.connect()
    asked, refusal = REFUSALS[protocol]
    other, port = scene.connect(protocol=protocol)
    assert other is not None and other.refused
    other.received(asked)
    scene.run()
    assert port.take() == refusal and port.closed
    fine, _ = scene.connect(TWO, protocol)
    assert fine is not None and not fine.refused
    figures = scene.node.frontends.figures()[protocol]
    assert (figures.refused_of_address_total, figures.refused_total) == (1, 0)


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    """A host that has one of its addresses usually has all of them."""
    scene = Scene(connections_per_address_max=1, commands_per_second_max=10)
    _, port = scene.client(ASK * 20, b"2001:db8::1")
    assert answers(port) == 10
    other, _ = scene.client(host=b"2001:db8::2")
    fine, port = scene.client(ASK * 20, host=b"2001:db8:0:1::1")
    assert other.refused and not fine.refused
    assert answers(port) == 10
    for connection in (other, fine):
        connection.lost()
    assert scene.node.clients.hosts.connections_most() == 1


def test_clients_above_the_limit_that_say_nothing_are_few() -> None:
    scene = Scene(connections_per_address_max=1)
    found = [scene.connect()[0] for _ in range(REFUSED_MAX + 2)]
    assert found[-1] is None and None not in found[:-1]
    assert scene.connect(TWO)[0] is not None
    assert scene.node.clients.hosts.connections_most() == REFUSED_MAX + 1
    assert scene.node.frontends["beanstalk"].figures().refused_of_address_total == REFUSED_MAX + 1


def test_a_client_that_left_makes_room_and_its_address_is_forgotten() -> None:
    scene = Scene(connections_per_address_max=1)
    for _ in range(3):
        connection, _ = scene.client()
        assert not connection.refused
        connection.lost()
    assert scene.hosts
    scene.pass_us(2_000_000)
    assert not scene.hosts


def test_many_addresses_that_left_are_forgotten_in_one_step() -> None:
    """The front of a plain dict is searched for behind all that was removed: 100,000 take 7 s."""
    hosts = ClientHosts(config())
    for index in range(100_000):
        connection = Connection("beanstalk", b"%d" % index)  # type: ignore[abstract]
        hosts.add(connection)
        hosts.forget(connection, 0)
    hosts.run_periodic(10_000_000)
    assert not hosts._hosts
    assert isinstance(hosts._left_us, OrderedDict)  # its first item is linked, and not searched for


def test_sockets_of_the_machine_have_no_limit() -> None:
    scene = Scene(connections_per_address_max=1, commands_per_second_max=10)
    for _ in range(5):
        connection, port = scene.client(ASK * 100, UNIX.encode())
        assert not connection.refused and answers(port) == 100
    assert not scene.hosts


def test_a_client_above_its_rate_is_not_read_and_gets_every_answer_later() -> None:
    scene = Scene(commands_per_second_max=100)
    scene.pass_us(2_000_000)
    connection, port = scene.client(ASK * 150)
    assert answers(port) == 100  # the tokens that its address had saved
    assert not port.reading
    other, other_port = scene.client(ASK * 20, TWO)
    assert answers(other_port) == 20 and other_port.reading and not other.throttled
    for _ in range(4):
        scene.pass_us(TENTH_US)
        assert 9 <= answers(port) <= 11
    scene.pass_us(2 * TENTH_US)
    answers(port)
    assert port.reading and not connection.throttled
    assert scene.node.clients.rates.throttled_total >= 1


def test_clients_of_one_address_share_its_rate_in_turns() -> None:
    scene = Scene(commands_per_second_max=100)
    ports = [scene.client(ASK * 200)[1] for _ in range(3)]
    assert [answers(port) for port in ports] == [100, 0, 0]
    scene.pass_us(3_000_000)
    counts = [answers(port) for port in ports]
    assert 290 <= sum(counts) <= 310
    assert max(counts) - min(counts) <= 10


def test_more_clients_than_commands_have_their_turns_one_after_the_other() -> None:
    scene = Scene(commands_per_second_max=10)
    ports = [scene.client(ASK * 4)[1] for _ in range(30)]
    for port in ports:
        answers(port)
    scene.pass_us(3_200_000)
    assert all(1 <= answers(port) <= 2 for port in ports[3:])


def test_another_connection_has_no_new_rate() -> None:
    scene = Scene(commands_per_second_max=100)
    connection, port = scene.client(ASK * 100)
    assert answers(port) == 100
    connection.lost()
    connection, port = scene.client(ASK * 100)
    assert answers(port) <= 1


def test_an_address_is_known_until_its_allowance_is_full_again() -> None:
    scene = Scene(commands_per_second_max=100)
    connection, port = scene.client(ASK * 100)
    assert answers(port) == 100
    connection.lost()
    scene.pass_us(200_000)
    connection, port = scene.client(ASK * 100)
    assert 19 <= answers(port) <= 21


@pytest.mark.constants
def test_no_command_waits_until_an_address_of_ipv6_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It took three times as long as the command itself."""
    scene = Scene(commands_per_second_max=100)
    connection, port = scene.client(host=b"2001:db8::1")

    def parsed(_host: bytes) -> bytes:
        raise AssertionError("it was parsed when the client came")

    monkeypatch.setattr(client_hosts, "network_of_host", parsed)
    scene.send(connection, ASK * 120)
    assert answers(port) == 100 and connection.throttled
    connection.lost()


def test_the_end_of_a_throttled_client() -> None:
    scene = Scene(commands_per_second_max=10)
    connection, port = scene.client(ASK * 12)
    connection.half_closed()
    answers(port)
    assert not port.closed
    scene.pass_us(400_000)
    assert answers(port) == 2 and port.closed
    gone, _ = scene.client(ASK * 40)
    gone.lost()
    scene.pass_us(2_000_000)
    assert not scene.hosts


def test_a_wait_is_not_throttled() -> None:
    """The node must notice a lost client: the client would be given a job."""
    scene = Scene(commands_per_second_max=10)
    connection, port = scene.client(b"ignore x\r\n" * 9 + b"reserve\r\n")
    assert port.reading and not connection.throttled and connection.is_waiting


def test_limits_that_change_while_clients_are_there() -> None:
    scene = Scene(commands_per_second_max=10)
    _, port = scene.client(ASK * 500)
    answers(port)
    scene.node.clients.take_limits(config(connections_per_address_max=2))
    scene.run()
    scene.pass_us(200_000)
    assert answers(port) == 490 and port.reading
    scene.client()
    assert scene.client()[0].refused
