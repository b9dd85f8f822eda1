"""Authentication of beanstalk clients, and the replies to clients without rights."""

import hashlib

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ANONYMOUS, EVERYWHERE, USERS_SINCE, User
from beanpoled.frontends import user_changes
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from beanpoled.frontends.requests import WRONG_TOKEN_DELAY_US, WRONG_TOKENS_MAX
from tests.unit.core.cluster import copy_of
from tests.unit.node.settling import settle
from tests.unit.node.stage import Port, Stage, put

TOKEN = b"the-token-of-lee"
LEE = b"lee"
MAIL = (b"mail", 15)
WRONG = b"auth wrong\r\n"


class Scene(Stage):
    """A leader at version 4; session 1 of n1 is an administrator's, and lee has a token."""

    def __init__(self, *rights: tuple[bytes, int]) -> None:
        super().__init__()
        self.lead()
        self.come_up()
        self.node.leader.term.commands.append((c.RAISE, USERS_SINCE))
        self.number = 0
        self.do((c.OPEN, 1), put(tube=b"other"), first=True)
        self.do(self.user(b"root", (EVERYWHERE, 15)), (c.SET_TOKEN, 1, b"root", b"r" * 32, 1))
        self.do((c.AS_USER, 1, b"", b"r" * 32), self.user(LEE, *rights))
        digest = hashlib.sha256(TOKEN).digest()
        self.do((c.SET_TOKEN, 1, LEE, digest, 1), self.user(ANONYMOUS))

    def user(self, name: bytes, *rights: tuple[bytes, int]) -> c.Command:
        return c.SET_USER, 1, name, msgpack.packb(rights), 0, 0, 0

    def do(self, *commands: c.Command, first: bool = False) -> None:
        self.number += 1
        self.batch("n1", self.number, *commands, first=first)
        settle(self)

    def say(self, data: bytes) -> tuple[BeanstalkConnection, Port]:
        connection, port = self.client(data)
        settle(self)
        return connection, port


@pytest.fixture
def stage() -> Scene:
    return Scene(MAIL)


def test_a_token_is_accepted_and_what_stands_behind_it_is_allowed(stage: Scene) -> None:
    _, port = stage.say(b"auth %b\r\nuse mail\r\nput 0 0 60 1\r\nx\r\n" % TOKEN)
    assert port.output == b"ACCEPTED\r\nUSING mail\r\nINSERTED 2\r\n"


def test_a_client_that_says_nothing_is_denied_each_command_and_stays(stage: Scene) -> None:
    commands = (
        *(b"put 0 0 60 1\r\nx", b"use mail", b"use other", b"watch other", b"delete 1", b"peek 1"),
        *(b"release 1 0 0", b"kick 1", b"kick-job 1", b"reserve-job 1", b"pause-tube other 1"),
        *(b"stats-job 1", b"stats-tube other", b"peek-ready", b"reserve", b"bury 1 0", b"touch 1"),
        b"reserve-with-timeout 0",
    )
    connection, port = stage.say(b"")
    for command in commands:
        connection.received(command + b"\r\n")
        settle(stage)
        assert port.take() == b"DENIED\r\n", command
    connection.received(b"list-tube-used\r\nlist-tubes\r\nignore none\r\ndelete 99\r\n")
    settle(stage)
    assert port.take() == b"USING default\r\nOK 4\r\n---\n\r\nWATCHING 1\r\nNOT_FOUND\r\n"
    assert not port.closed


def test_the_default_tube_that_is_watched_by_itself_is_passed_over(stage: Scene) -> None:
    """A stock client that watches its own tube need not ignore the default tube."""
    stage.do(put(body=b"no"), put(tube=b"mail", body=b"y"))
    _, port = stage.say(b"auth %b\r\nwatch mail\r\nreserve-with-timeout 0\r\n" % TOKEN)
    assert port.output == b"ACCEPTED\r\nWATCHING 2\r\nRESERVED 3 1\r\ny\r\n"


def test_a_reserve_is_refused_when_a_watched_tube_is_closed(stage: Scene) -> None:
    stage.do(stage.user(LEE, MAIL, (b"other", 2)))
    connection, port = stage.say(b"auth %b\r\nwatch mail\r\nwatch other\r\n" % TOKEN)
    stage.do(stage.user(LEE, MAIL))
    port.take()
    connection.received(b"reserve\r\nreserve\r\nignore other\r\nreserve-with-timeout 0\r\n")
    settle(stage)
    assert port.take() == b"DENIED\r\nDENIED\r\nWATCHING 2\r\nTIMED_OUT\r\n"


def test_a_wait_by_a_removed_alias_ends_with_the_right_in_its_queue(stage: Scene) -> None:
    """It was never answered, since the machine gives that client no job."""
    pics = (b"\x02pics", 15)
    stage.do(stage.user(LEE, pics, MAIL), (c.SET_ALIAS, 1, b"mail", pics[0]))
    _, port = stage.say(b"auth %b\r\nwatch mail\r\nignore default\r\nreserve\r\n" % TOKEN)
    assert port.take() == b"ACCEPTED\r\nWATCHING 2\r\nWATCHING 1\r\n"
    stage.do((c.SET_ALIAS, 1, b"mail", b""))
    assert port.take() == b""
    stage.do(stage.user(LEE, MAIL))
    assert port.take() == b"DENIED\r\n"


@pytest.mark.parametrize("command", [b"reserve", b"reserve-with-timeout 60"])
@pytest.mark.parametrize("ends", ["right", "token", "user"])
def test_a_worker_that_waits_is_told_when_its_right_ends(
    stage: Scene, ends: str, command: bytes
) -> None:
    connection, port = stage.say(b"auth %b\r\nwatch mail\r\n%b\r\n" % (TOKEN, command))
    assert port.take() == b"ACCEPTED\r\nWATCHING 2\r\n"
    stage.do(stage.user(b"other", MAIL))  # another user's right has no effect for lee
    assert port.take() == b""
    stage.do(
        {
            "right": stage.user(LEE),
            "token": (c.SET_TOKEN, 1, LEE, hashlib.sha256(TOKEN).digest(), 0),
            "user": (c.DROP_USER, 1, LEE),
        }[ends]
    )
    assert port.take() == b"DENIED\r\n"
    stage.do(put(tube=b"mail"))
    stage.pass_us(61_000_000)
    assert port.take() == b"", "it is told once"
    connection.received(b"list-tube-used\r\nreserve-with-timeout 0\r\n")
    settle(stage)
    assert port.take() == b"USING default\r\nDENIED\r\n"


def test_a_worker_that_waits_for_the_default_tube_as_well_waits_on(stage: Scene) -> None:
    stage.do(stage.user(LEE, MAIL, (b"default", 2)))
    _, port = stage.say(b"auth %b\r\nwatch mail\r\nreserve\r\n" % TOKEN)
    port.take()
    stage.do(stage.user(LEE, MAIL))
    assert port.take() == b""
    stage.do(put(tube=b"mail", body=b"y"))
    assert port.take() == b"RESERVED 2 1\r\ny\r\n"


def test_a_job_that_is_given_before_the_wait_has_ended_is_not_lost(stage: Scene) -> None:
    """One entry makes a job in each of two tubes, and ends the right to work on one of them."""
    stage.do(stage.user(LEE, MAIL, (b"other", 2)), (c.DELETE, 1, 1))
    _, port = stage.say(b"auth %b\r\nwatch mail\r\nwatch other\r\nreserve\r\n" % TOKEN)
    port.take()
    stage.do(stage.user(LEE, MAIL), put(tube=b"other", body=b"n"), put(tube=b"mail", body=b"y"))
    assert port.take() == b"RESERVED 3 1\r\ny\r\n"
    job = stage.node.context.machine.queue.jobs.get(2)
    assert job is not None and job.reserves == 0


@pytest.mark.constants
def test_many_workers_are_told_in_several_turns(
    stage: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_changes, "LOOKS_PER_TURN_MAX", 4)
    command = b"auth %b\r\nwatch mail\r\nreserve\r\n" % TOKEN
    ports = [stage.client(command)[1] for _ in range(10)]
    settle(stage)
    for port in ports:
        port.take()
    stage.do(stage.user(LEE))
    settle(stage)
    assert {port.take() for port in ports} == {b"DENIED\r\n"}


def test_a_snapshot_in_which_the_right_is_gone_tells_a_worker(stage: Scene) -> None:
    _, port = stage.say(b"auth %b\r\nwatch mail\r\nreserve\r\n" % TOKEN)
    port.take()
    machine = copy_of(stage.node.context.machine)
    lee = User(LEE, (), (), birth=machine.users.rows[LEE].birth)
    machine.users.change({**machine.users.rows, LEE: lee})
    stage.load(machine)
    stage.pass_us(20_000)
    settle(stage)
    assert port.take() == b"DENIED\r\n"


def test_a_right_that_is_there_and_not_yet_known_here_counts(stage: Scene) -> None:
    """An administrator granted the right at another node a moment ago."""
    connection, port = stage.say(b"auth %b\r\n" % TOKEN)
    stage.number += 1
    stage.batch("n1", stage.number, stage.user(LEE, (b"*", 15)))
    connection.received(b"watch other\r\nreserve\r\n")
    settle(stage)
    assert port.take() == b"ACCEPTED\r\nWATCHING 2\r\nRESERVED 1 1\r\nx\r\n"


def test_wrong_tokens_cost_time_and_then_the_connection(stage: Scene) -> None:
    connection, port = stage.say(b"")
    for wrong in range(1, WRONG_TOKENS_MAX + 1):
        connection.received(WRONG + b"list-tube-used\r\n" * (wrong == 1))
        settle(stage)
        assert port.take() == b""
        stage.pass_us(WRONG_TOKEN_DELAY_US + 1)
        assert port.take().startswith(b"DENIED\r\n")
        assert port.closed == (wrong == WRONG_TOKENS_MAX)
    assert stage.node.clients.auth_refused["unknown_token"] == WRONG_TOKENS_MAX
    assert not any("wrong" in line for line in stage.host.lines)


def test_a_client_that_goes_while_it_is_held_up_leaves_nothing(stage: Scene) -> None:
    connection, port = stage.say(WRONG)
    connection.lost()
    stage.pass_us(WRONG_TOKEN_DELAY_US + 1)
    assert port.output == b""
    assert not stage.node.clients.connections


def test_a_token_that_is_dropped_ends_the_rights_of_its_connection(stage: Scene) -> None:
    connection, port = stage.say(b"auth %b\r\nuse mail\r\n" % TOKEN)
    stage.do((c.SET_TOKEN, 1, LEE, hashlib.sha256(TOKEN).digest(), 0))
    port.take()
    connection.received(b"put 0 0 60 1\r\nx\r\n")
    settle(stage)
    assert port.take() == b"DENIED\r\n"


@pytest.mark.parametrize(
    ("rule", "user"),
    [
        *(((0, b"\x08\x0a\0\0\0", b"", LEE), LEE), ((1, b"", b"", LEE), LEE)),
        *(((0, b"", b"lee.example", LEE), LEE), ((3, b"", b"", LEE), b"")),
        *(((0, b"\x08\x0b\0\0\0", b"", LEE), b""), ((0, b"", b"other.example", LEE), b"")),
    ],
)
def test_a_rule_makes_a_client_a_user_at_its_first_command(
    stage: Scene, rule: tuple[int, bytes, bytes, bytes], user: bytes
) -> None:
    stage.do((c.SET_RULES, 1, msgpack.packb([rule])))
    port = Port()  # from 10.0.0.1
    port.client_names = (b"Lee.Example",)  # a rule has it in lower case
    connection = stage.node.frontends["beanstalk"].connected(port)
    assert connection is not None
    connection.received(b"watch mail\r\nreserve-with-timeout 0\r\n")
    settle(stage)
    allowed = b"WATCHING 2\r\nTIMED_OUT\r\n"
    assert port.take() == (allowed if user else b"DENIED\r\nDENIED\r\n")
    session = stage.node.clients.session(connection.number)
    assert session is not None
    assert (session.user, connection.user) == (user, user)


@pytest.mark.parametrize("line", [b"auth \r\n", b"auth a b\r\n", b"auth %b\r\n" % (b"x" * 129)])
def test_what_is_no_token_is_malformed(stage: Scene, line: bytes) -> None:
    assert stage.say(line)[1].output == b"BAD_FORMAT\r\n"


def test_below_its_version_the_word_is_unknown() -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    _, port = stage.client(b"auth %b\r\nextensions\r\n" % TOKEN)
    assert port.take() == b"UNKNOWN_COMMAND\r\nOK 17\r\n---\n- put-unique\n\r\n"
