"""The rate of a user at a node: shared by all its connections, beside the rates of addresses."""

import hashlib

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ANONYMOUS, EVERYWHERE
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.frontends.connection import Connection
from tests.unit.node.settling import settle
from tests.unit.node.stage import Port, Stage

LEE, TOKEN = b"lee", b"the-token-of-lee"
ASK = b"list-tube-used\r\n"
ANSWER = b"USING default\r\n"
TENTH_US = 100_000
ALL = msgpack.packb([(EVERYWHERE, 15)])


class Scene(Stage):
    """A leader at version 4; session 1 of n1 is an administrator's, lee has a token and a rate."""

    def __init__(self, rate: int = 100, host_rate: int = 0) -> None:
        super().__init__(commands_per_second_max=host_rate)
        self.lead()
        self.come_up()
        self.node.leader.term.commands.append((c.RAISE, 4))
        self.number = 0
        self.do((c.OPEN, 1))
        self.do((c.SET_USER, 1, b"root", ALL, 0, 0, 0), (c.SET_TOKEN, 1, b"root", b"r" * 32, 1))
        self.do((c.AS_USER, 1, b"", b"r" * 32), (c.SET_USER, 1, LEE, ALL, 0, 0, rate))
        self.do((c.SET_TOKEN, 1, LEE, hashlib.sha256(TOKEN).digest(), 1))

    def do(self, *commands: c.Command) -> None:
        self.number += 1
        self.batch("n1", self.number, *commands, first=self.number == 1)
        settle(self)

    def limit(self, rate: int, user: bytes = LEE) -> None:
        self.do((c.SET_USER, 1, user, ALL, 0, 0, rate))

    def lee(self, host: bytes = b"10.0.0.1") -> tuple[BeanstalkConnection, Port]:
        return self.connected(host, b"auth %b\r\n" % TOKEN)

    def flooding(self, number: int) -> list[tuple[BeanstalkConnection, Port]]:
        """Return clients of one user that have sent 100 requests each."""
        made = [self.lee(b"10.0.0.%d" % at) for at in range(number)]
        for connection, _ in made:
            connection.received(ASK * 100)
        return made

    def connected(self, host: bytes, data: bytes = b"") -> tuple[BeanstalkConnection, Port]:
        port = Port(host)
        connection = self.node.frontends["beanstalk"].connected(port)
        assert isinstance(connection, BeanstalkConnection)
        connection.received(data)
        settle(self)
        assert port.take() == b"ACCEPTED\r\n" * bool(data)
        return connection, port

    def answers(self, port: Port) -> int:
        """Return the number of replies since the last call."""
        settle(self)
        self.pass_us(1000)
        found = port.take()
        assert found == ANSWER * (len(found) // len(ANSWER))
        return len(found) // len(ANSWER)


def test_a_user_above_its_rate_is_not_read_and_gets_every_answer_later() -> None:
    scene = Scene()
    connection, port = scene.lee()
    other, other_port = scene.connected(b"10.0.0.1")
    connection.received(ASK * 150)
    assert scene.answers(port) == 100
    assert connection.throttled and not port.reading
    other.received(ASK * 200)
    assert scene.answers(other_port) == 200, "of the same address, and of another user"
    for _ in range(4):
        scene.pass_us(TENTH_US)
        assert 9 <= scene.answers(port) <= 11
    scene.pass_us(2 * TENTH_US)
    scene.answers(port)
    assert port.reading and not connection.throttled
    assert scene.node.clients.rates.throttled_total >= 1


def test_connections_of_a_user_share_its_rate_whatever_their_addresses() -> None:
    scene = Scene()
    made = [scene.lee(b"10.0.0.%d" % number) for number in range(3)]
    for connection, _ in made:
        connection.received(ASK * 200)
    assert sorted(scene.answers(port) for _, port in made) == [0, 0, 100]
    scene.pass_us(3_000_000)
    counts = [scene.answers(port) for _, port in made]
    assert 270 <= sum(counts) <= 330
    assert max(counts) - min(counts) <= 12


def test_reserves_in_a_row_are_charged_one_by_one() -> None:
    scene = Scene(rate=10)
    scene.do(*[(c.PUT, 1, b"default", 0, 0, 60, b"x")] * 50)
    connection, port = scene.lee()
    connection.received(b"reserve-with-timeout 0\r\n" * 40)
    for _ in range(40):
        settle(scene)
    assert port.take().count(b"RESERVED ") == 10
    assert connection.throttled


@pytest.mark.parametrize("by_rule", [False, True])
@pytest.mark.parametrize("looks", [0, 1])
def test_the_first_reserves_of_a_client_are_charged_one_by_one(looks: int, by_rule: bool) -> None:
    """All that came in one piece took jobs together, as the one request that does not wait."""
    scene = Scene(rate=2)
    scene.do(*[(c.PUT, 1, b"default", 0, 0, 60, b"x")] * 50)
    if by_rule:
        scene.do((c.SET_RULES, 1, msgpack.packb(((0, b"", b"", LEE),))))
    else:
        scene.limit(2, ANONYMOUS)
    for already in (0, 1):  # the number of connections before it, which use up the rate
        connection, port = client_of(scene, "beanstalk", b"10.0.0.1")
        connection.received(b"extensions\r\n" * looks + b"reserve-with-timeout 0\r\n" * 40)
        for _ in range(40):
            settle(scene)
        allowed = 1 if already else 2
        assert port.take().count(b"RESERVED ") == allowed
        assert connection.throttled


def test_those_that_say_nothing_have_the_rate_of_anonymous() -> None:
    scene = Scene()
    scene.limit(10, ANONYMOUS)
    connection, port = scene.connected(b"unix")
    connection.received(ASK * 20)
    assert scene.answers(port) == 10 and connection.throttled
    again, port = scene.connected(b"unix")
    again.received(ASK * 20)
    assert scene.answers(port) == 1, "only what opens its session does not wait"
    assert again.throttled
    connection, port = scene.lee()  # authenticates without waiting for the replies
    connection.received(ASK * 90)
    assert scene.answers(port) == 90


def test_those_with_a_user_by_rule_have_its_rate_from_their_second_command_on() -> None:
    """A client could connect again and again, and send a row of commands each time."""
    scene = Scene(rate=10)
    scene.do((c.SET_RULES, 1, msgpack.packb(((0, b"", b"", LEE),))))
    counts = []
    for _ in range(5):
        connection, port = scene.connected(b"10.0.0.1")
        connection.received(ASK * 200)
        counts.append(scene.answers(port))
        assert connection.user == LEE
    assert counts == [10, 1, 1, 1, 1]


# Requests of each protocol that open no session.
WITHOUT_SESSION = [
    ("beanstalk", b"nonsense\r\n", b"UNKNOWN_COMMAND\r\n"),
    ("workq", b"nonsense\r\n", b"-CLIENT-ERROR Unknown command\r\n"),
    ("qless", b"PING\r\n", b"+PONG\r\n"),
    ("qless", b"ECHO x\r\n", b"$1\r\nx\r\n"),
    ("gearman", b"version\n", b"OK "),
    ("gearman", b"\0REQ\0\0\0\x10\0\0\0\x04abcd", b"\0RES\0\0\0\x11\0\0\0\x04abcd"),
]


def client_of(scene: Scene, protocol: str, host: bytes) -> tuple[Connection, Port]:
    port = Port(host)
    connection = scene.node.frontends[protocol].connected(port)
    assert connection is not None
    return connection, port


@pytest.mark.parametrize("by_rule", [False, True])
@pytest.mark.parametrize(("protocol", "request_data", "reply"), WITHOUT_SESSION)
def test_requests_that_open_no_session_have_a_rate_too(
    protocol: str, request_data: bytes, reply: bytes, by_rule: bool
) -> None:
    """A client of `anonymous` could send them without a pause."""
    scene = Scene(rate=10)
    if by_rule:
        scene.do((c.SET_RULES, 1, msgpack.packb(((0, b"", b"", LEE),))))
    else:
        scene.limit(10, ANONYMOUS)
    counts = []
    for _ in range(3):
        connection, port = client_of(scene, protocol, b"10.0.0.1")
        connection.received(request_data * 40)
        settle(scene)
        counts.append(port.take().count(reply))
        assert connection.throttled and not connection.number
    assert counts == [10, 1, 1], "the first one may authenticate the connection"
    scene.pass_us(30 * TENTH_US)
    assert 8 <= port.take().count(reply) <= 12
    connection.lost()
    meters = scene.node.clients.rates._throttled
    assert len(meters) == 1 and not any(connection in meter.throttled for meter in meters)


def test_the_token_behind_a_reset_waits_for_no_rate_either() -> None:
    """Pools of connections send RESET between two users."""
    scene = Scene()
    scene.limit(1, ANONYMOUS)
    connection, port = client_of(scene, "qless", b"10.0.0.1")
    connection.received(b"PING\r\n")
    scene.pass_us(10 * TENTH_US)
    connection.received(b"AUTH %b\r\n" % TOKEN)
    settle(scene)
    scene.pass_us(10 * TENTH_US)
    connection.received(b"RESET\r\n")
    settle(scene)
    assert port.take() == b"+PONG\r\n+OK\r\n+RESET\r\n"
    other, _ = client_of(scene, "qless", b"10.0.0.2")
    other.received(b"PING\r\n" * 20)
    settle(scene)
    assert other.throttled
    connection.received(b"AUTH %b\r\n" % TOKEN)
    settle(scene)
    assert port.take() == b"+OK\r\n" and connection.user == LEE


def test_the_token_behind_extensions_waits_for_no_rate_either() -> None:
    """Clients ask first whether the node knows `auth`, and send it when they have the answer."""
    scene = Scene()
    scene.limit(1, ANONYMOUS)
    connection, port = client_of(scene, "beanstalk", b"10.0.0.1")
    connection.received(b"extensions\r\n")
    settle(scene)
    assert port.take().startswith(b"OK ")
    other, _ = scene.connected(b"10.0.0.2")
    other.received(ASK * 20)
    settle(scene)
    assert other.throttled
    connection.received(b"auth %b\r\n" % TOKEN)
    settle(scene)
    assert port.take() == b"ACCEPTED\r\n" and connection.user == LEE
    connection, port = client_of(scene, "beanstalk", b"10.0.0.1")
    connection.received(b"extensions\r\n" * 5)
    settle(scene)
    assert port.take().count(b"OK ") == 2, "only the first one is not counted"


def test_a_client_without_a_session_has_the_rate_of_the_rules_as_they_are() -> None:
    scene = Scene(rate=10)
    scene.do((c.SET_RULES, 1, msgpack.packb(((0, b"", b"", LEE),))))
    connection, port = client_of(scene, "qless", b"10.0.0.1")
    connection.received(b"PING\r\n")
    settle(scene)
    scene.do((c.SET_RULES, 1, msgpack.packb(())))
    scene.limit(5, ANONYMOUS)
    scene.do((c.DROP_USER, 1, LEE))
    connection.received(b"PING\r\n" * 40)
    settle(scene)
    assert port.take().count(b"+PONG\r\n") <= 7 and connection.throttled


@pytest.mark.parametrize("ends", ["rate", "user"])
def test_a_rate_that_ends_lets_its_connections_go_on(ends: str) -> None:
    scene = Scene(rate=10)
    connection, port = scene.lee()
    connection.received(ASK * 500)
    before = scene.answers(port)
    assert before < 20
    if ends == "rate":
        scene.limit(0)
    else:
        scene.do((c.DROP_USER, 1, LEE))
    scene.pass_us(2 * TENTH_US)
    assert before + scene.answers(port) == 500
    assert port.reading and not connection.throttled


def test_the_end_of_a_rate_reads_no_client_in_its_own_step() -> None:
    """Thousands may be throttled, each with a row of requests: they go on a few at a time."""
    scene = Scene(rate=1)
    made = scene.flooding(20)
    settle(scene)
    assert sum(connection.throttled for connection, _ in made) >= 19
    for _, port in made:
        port.take()
    scene.limit(0)
    assert not any(port.output for _, port in made)
    assert not any(connection.throttled for connection, _ in made)
    scene.pass_us(2 * TENTH_US)
    assert sum(port.output.count(ANSWER) for _, port in made) >= 19 * 99


@pytest.mark.constants
def test_throttled_clients_cost_nothing_until_their_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands may be paused: a look at each of them ten times a second would delay all others."""
    scene = Scene(rate=1)
    made = scene.flooding(20)
    settle(scene)
    throttled = sum(connection.throttled for connection, _ in made)
    assert throttled == len(scene.node.clients.paused) >= 19
    calls = [0]
    room_again = BeanstalkConnection.room_again

    def count(connection: BeanstalkConnection) -> None:
        calls[0] += 1
        room_again(connection)

    monkeypatch.setattr(BeanstalkConnection, "room_again", count)
    scene.pass_us(30 * TENTH_US)
    assert 2 <= calls[0] <= 4, "one command in each second"


@pytest.mark.constants
def test_clients_that_end_in_the_turn_of_another_do_nothing_in_theirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long request of one client may end others, whose own are unfinished."""
    scene = Scene(rate=10)
    made = scene.flooding(3)
    scene.answers(made[0][1])
    (meter,) = scene.node.clients.rates._throttled
    assert len(meter.throttled) == 3
    first = next(iter(meter.throttled))
    room_again = BeanstalkConnection.room_again
    turns: list[BeanstalkConnection] = []

    def end_others(connection: BeanstalkConnection) -> None:
        turns.append(connection)
        for other, port in made:
            if other is not first:
                other.abort()
                port.take()
        room_again(connection)

    monkeypatch.setattr(BeanstalkConnection, "room_again", end_others)
    scene.node.clients.rates.run_periodic(scene.node.clients.now_us + 10 * TENTH_US)
    settle(scene)
    assert turns[0] is first and list(meter.throttled) in ([], [first])
    assert not any(port.output for connection, port in made if connection is not first)


def test_a_rate_that_changes_counts_for_connections_that_wait() -> None:
    scene = Scene(rate=10)
    connection, port = scene.lee()
    connection.received(ASK * 900)
    scene.answers(port)
    scene.limit(1000)
    scene.pass_us(10 * TENTH_US)
    assert scene.answers(port) > 500
    scene.do((c.SET_USER, 1, b"other", ALL, 0, 0, 0))
    assert scene.answers(port) < 20, "another change pays nothing"


def test_the_slower_of_both_rates_counts() -> None:
    scene = Scene(rate=50, host_rate=200)
    connection, port = scene.lee()
    connection.received(ASK * 900)
    scene.answers(port)
    scene.pass_us(2_000_000)
    assert 85 <= scene.answers(port) <= 115
    scene.limit(10_000)
    scene.pass_us(1_000_000)
    scene.answers(port)
    scene.pass_us(1_000_000)
    assert 170 <= scene.answers(port) <= 230


def test_no_connection_waits_for_two_rates_for_ever() -> None:
    """Many clients of a user share one address: turns of the two rates might never coincide."""
    scene = Scene(rate=100, host_rate=100)
    made = [scene.lee() for _ in range(5)]
    for connection, _ in made:
        connection.received(ASK * 500)
    for _, port in made:
        scene.answers(port)
    scene.pass_us(5_000_000)
    counts = [scene.answers(port) for _, port in made]
    assert sum(counts) >= 350
    assert min(counts) >= 20


def test_a_throttled_client_that_goes_leaves_nothing() -> None:
    scene = Scene(rate=10)
    connection, _ = scene.lee()
    connection.received(ASK * 50)
    assert connection.throttled
    connection.lost()
    assert not connection.throttled
    assert not scene.node.clients.rates._throttled
    scene.pass_us(TENTH_US)
    assert not scene.node.clients.connections


def test_a_worker_that_waits_is_not_throttled() -> None:
    """The node must notice a lost client: the client would be given a job."""
    scene = Scene(rate=10)
    connection, port = scene.lee()
    scene.pass_us(2_000_000)
    connection.received(b"ignore x\r\n" * 9 + b"reserve\r\n")
    assert port.reading and not connection.throttled and connection.wait is not None
