"""Clients of Workq, Gearman and qless that authenticate, and their rights afterwards."""

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.users import ADMIN, EVERYWHERE, PUT, WORK
from beanpole.events import GEARMAN, QLESS, WORKQ
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import request
from beanpoled.audit.entry import Entry
from beanpoled.frontends.requests import WRONG_TOKEN_DELAY_US, WRONG_TOKENS_MAX
from tests.unit.beanpoled import gearman_scene, qless_scene
from tests.unit.beanpoled.auth_scene import (
    DENIED,
    JOB,
    LEE,
    NO_PERMISSION,
    PACKET_DENIED,
    TOKEN,
    Client,
    add,
    change_rights,
    gearman,
    give_users,
    qless,
    workq,
)

# --- Workq ----------------------------------------------------------------------------------------


def test_workq_before_and_behind_auth() -> None:
    _, client = workq((b"mail", PUT | WORK))
    assert client.say(add(1)) == DENIED
    assert client.say(b"lease mail 0\r\n") == DENIED
    assert client.say(b"inspect queue mail\r\n") == DENIED
    assert client.say(b"auth %b\r\n" % TOKEN + add(1)) == b"+OK\r\n+OK\r\n"
    assert client.say(b"lease mail 0\r\n").startswith(b"+OK 1\r\n")
    assert client.say(add(2, b"other")) == DENIED
    assert client.say(b"lease mail other 0\r\n") == DENIED
    assert client.say(b"inspect queues 0 10\r\n") == DENIED
    assert client.say(b"inspect queue mail\r\n").startswith(b"+OK 1\r\n")
    assert client.say(b"inspect job %b\r\n" % (JOB % 1)[2:]).startswith(b"+OK 1\r\n")
    assert client.say(b"complete %b 1\r\nx\r\n" % (JOB % 1)[2:]) == b"+OK\r\n"
    assert client.say(b"inspect server\r\n").startswith(b"+OK 1\r\n")
    assert client.say(b"auth\r\n") == b"-CLIENT-ERROR Invalid command args\r\n"
    assert not client.port.closed


def test_workq_a_job_of_another_queue() -> None:
    scene, client = workq((b"mail", PUT | WORK), (b"other", PUT))
    job = (JOB % 1)[2:]
    assert client.say(b"auth %b\r\n" % TOKEN + add(1, b"other")) == b"+OK\r\n+OK\r\n"
    assert client.say(b"delete %b\r\n" % job) == DENIED
    assert client.say(b"fail %b 1\r\nx\r\n" % job) == DENIED
    change_rights(scene, WORKQ, (b"mail", PUT))
    assert client.say(b"lease mail 0\r\n") == DENIED
    assert client.say(b"inspect job %b\r\n" % job) == DENIED


def test_workq_a_run_of_a_client_that_may_only_put() -> None:
    """Its job stays, and its wait ends."""
    scene, client = workq((b"mail", PUT))
    client.say(b"auth %b\r\n" % TOKEN)
    assert client.say(b"run %b mail 1000 100 1\r\nx\r\n" % (JOB % 1)[2:]) == b""
    for _ in range(4):
        scene.pass_us(100_000)
        scene.commit_own()
    assert client.port.take() == b"-TIMEOUT\r\n"
    assert scene.machine.queue.jobs


WRONG_PASSWORD = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"


@pytest.mark.parametrize(
    ("protocol", "said", "refused"),
    [
        ("workq", b"auth wrong\r\n", DENIED),
        ("gearman", b"auth wrong\n", b"ERR ACCESS_DENIED Unknown+token\r\n"),
        ("qless", b"AUTH wrong\r\n", WRONG_PASSWORD),
        ("qless", b"AUTH root %b\r\n" % TOKEN, WRONG_PASSWORD),
        ("qless", b"HELLO 3 AUTH lee no\r\n", WRONG_PASSWORD),
    ],
)
def test_wrong_tokens_are_answered_late_and_the_last_ends_the_connection(
    protocol: str, said: bytes, refused: bytes
) -> None:
    scene, _ = workq((b"mail", PUT))
    client = Client(scene, protocol)
    for number in range(WRONG_TOKENS_MAX):
        assert client.say(said) == b""
        scene.pass_us(WRONG_TOKEN_DELAY_US + 10_000)
        scene.node.clients.flush()
        assert client.port.take() == refused
        assert client.port.closed == (number == WRONG_TOKENS_MAX - 1)


# --- Gearman --------------------------------------------------------------------------------------


TEXT_DENIED = b"ERR ACCESS_DENIED The+user+may+not+do+this\r\n"


def test_gearman_before_and_behind_auth() -> None:
    _, client = gearman((b"f", PUT | WORK))
    assert client.ask(p.CAN_DO, b"f") == PACKET_DENIED
    assert gearman_scene.submit(client, p.SUBMIT_JOB_BG) == PACKET_DENIED
    assert client.ask(p.GET_STATUS_UNIQUE, b"u") == PACKET_DENIED
    for line in (
        b"status\n",
        b"workers\n",
        b"show jobs\n",
        b"maxqueue f 1\n",
        b"drop function f\n",
    ):
        assert client.text(line) == TEXT_DENIED
    assert client.text(b"auth %b\n" % TOKEN) == b"OK\r\n"
    assert client.ask(p.CAN_DO, b"f") == []
    assert client.ask(p.CAN_DO, b"other") == PACKET_DENIED
    ((kind, _),) = gearman_scene.submit(client, p.SUBMIT_JOB_BG)
    assert kind == p.JOB_CREATED
    assert gearman_scene.grab(client)
    assert client.connection.functions == [b"f"]
    assert not client.port.closed


def test_gearman_a_token_and_packets_behind_it_in_one_piece() -> None:
    scene, client = gearman((b"f", PUT | WORK))
    client.connection.received(b"auth %b\n" % TOKEN + request(p.SUBMIT_JOB_BG, b"f", b"", b"x"))
    scene.commit_own()
    assert client.port.take().startswith(b"OK\r\n" + replies.reply(p.JOB_CREATED)[:8])


@pytest.mark.parametrize("sleeps", [True, False])
def test_gearman_a_worker_whose_right_ends_is_told_once_when_it_sleeps(sleeps: bool) -> None:
    scene, client = gearman((b"f", PUT | WORK), (b"g", WORK))
    client.text(b"auth %b\n" % TOKEN)
    client.ask(p.CAN_DO, b"f")
    client.ask(p.CAN_DO, b"g")
    if sleeps:
        client.send(p.PRE_SLEEP)
    change_rights(scene, GEARMAN, (b"f", PUT), (b"g", WORK))
    gearman_scene.submit(client, p.SUBMIT_JOB_BG)
    assert client.replies() == [], "it sleeps for the other function"
    change_rights(scene, GEARMAN, (b"f", PUT))
    assert client.replies() == PACKET_DENIED * sleeps
    client.send(p.PRE_SLEEP)
    assert client.replies() == PACKET_DENIED * (not sleeps)
    for _ in range(3):
        client.send(p.PRE_SLEEP)
        assert client.replies() == []
    change_rights(scene, GEARMAN, (b"f", PUT | WORK))
    assert client.replies() == gearman_scene.NOOP, "it waited for that"
    change_rights(scene, GEARMAN, (b"f", PUT))
    assert client.ask(p.GRAB_JOB) == gearman_scene.NO_JOB
    change_rights(scene, GEARMAN, (b"f", PUT | WORK))
    assert gearman_scene.grab(client)
    change_rights(scene, GEARMAN, (b"f", PUT))
    assert client.ask(p.WORK_COMPLETE, gearman_scene.handle(1), b"x") == PACKET_DENIED


def test_gearman_administrators() -> None:
    scene, client = gearman((b"f*", PUT | WORK | ADMIN), (b"*", WORK))
    told: list[Entry] = []
    scene.node.clients.audit = told.append
    client.text(b"auth %b\n" % TOKEN)
    gearman_scene.submit(client, p.SUBMIT_JOB_BG)
    assert client.text(b"status\n") == b"f\t1\t0\t0\n.\n"
    assert client.text(b"maxqueue f 10\n") == b"OK\r\n"
    assert client.text(b"maxqueue g 10\n") == TEXT_DENIED
    assert client.text(b"cancel job H:stage:1\n") == b"OK\r\n"
    assert [(one.user, one.outcome[:3]) for one in told] == [
        ("lee", "OK"),
        ("lee", "ERR"),
        ("lee", "OK"),
    ]


def test_gearman_shutdown_needs_a_right_everywhere() -> None:
    scene = gearman_scene.Scene(gearman_shutdown="on")
    give_users(scene, GEARMAN, (EVERYWHERE, ADMIN))
    client = scene.connect()
    assert client.text(b"shutdown\n") == TEXT_DENIED
    assert client.text(b"auth %b\n" % TOKEN) == b"OK\r\n"
    stopped: list[int] = []
    scene.node.clients.stop = lambda: stopped.append(1)
    assert client.text(b"shutdown\n") == b"OK\r\n"
    assert stopped


# --- qless ----------------------------------------------------------------------------------------


NO_AUTH = b"-NOAUTH Authentication required.\r\n"
PEEK = (b"peek", b"1", b"mail", b"10")


@pytest.mark.parametrize(
    "said", [b"AUTH %b\r\n", b"AUTH lee %b\r\n", b"AUTH default %b\r\n"], ids=repr
)
def test_qless_before_and_behind_auth(said: bytes) -> None:
    _, client = qless((b"mail", PUT | WORK))
    assert client.call(*PEEK) == NO_AUTH
    assert client.ask(b"SUBSCRIBE ql:log\r\n") == NO_AUTH
    assert client.ask(b"PSUBSCRIBE ql:*\r\n") == NO_AUTH
    assert client.ask(said % TOKEN) == b"+OK\r\n"
    assert client.call(*PEEK).startswith((b"*", b"$"))
    assert client.call(b"peek", b"1", b"other", b"10") == NO_PERMISSION
    assert client.call(b"config.set", b"1", b"heartbeat", b"9") == NO_PERMISSION
    assert client.ask(b"SUBSCRIBE ql:log\r\n").startswith(b"*3\r\n")


def test_qless_hello_with_auth_changes_nothing_before_it_is_accepted() -> None:
    scene, client = qless((b"mail", PUT | WORK))
    said = client.ask(b"HELLO 3 AUTH lee %b SETNAME me\r\nCLIENT GETNAME\r\n" % TOKEN)
    assert said.startswith(b"%7\r\n") and said.endswith(b"$2\r\nme\r\n")
    assert client.connection.user == LEE
    other = scene.connect()
    assert other.ask(b"HELLO 3 AUTH lee wrong SETNAME me\r\n") == b""
    scene.pass_us(WRONG_TOKEN_DELAY_US + 10_000)
    other.port.take()
    assert (other.connection.version, other.connection.name) == (2, b"")


def test_qless_reads_no_large_call_of_a_client_without_any_right() -> None:
    """A mebibyte of JSON takes a node 0.2 s, and the rights in a queue are only then checked."""
    _, client = qless((b"mail", PUT | WORK))
    put = (b"put", b"1", b"w", b"mail", b"jid", b"K", b"[" + b"0," * 10_000 + b"x", b"0")
    assert client.call(*put) == NO_AUTH
    packed = qless_scene.array(b"BEANPOLE.IMPORT", b"job", b"x" * 10_000)
    assert client.ask(packed) == NO_AUTH
    client.ask(b"AUTH %b\r\n" % TOKEN)
    assert client.call(*put).startswith(b"-ERR") and not client.ask(packed).startswith(NO_AUTH)


def test_qless_reset_forgets_the_user() -> None:
    scene, client = qless((b"mail", PUT | WORK))
    client.ask(b"AUTH lee %b\r\n" % TOKEN)
    peek = qless_scene.array(b"EVALSHA", scene.sha, b"0", *PEEK)
    said = client.ask(peek + b"RESET\r\n" + peek)
    assert said.endswith(b"+RESET\r\n" + NO_AUTH) and not said.startswith(b"-")
    assert client.connection.user == b""
    assert client.ask(b"SUBSCRIBE ql:log\r\n") == NO_AUTH
    assert client.ask(b"RESET\r\nAUTH %b\r\n" % TOKEN) == b"+RESET\r\n+OK\r\n"
    assert client.call(*PEEK).startswith((b"*", b"$"))
    client.connection.received(b"RESET\r\n")
    client.connection.lost()
    scene.commit_own()
    sessions = [one for some in scene.machine.origins.values() for one in some.sessions.values()]
    assert LEE not in [session.user for session in sessions]


def test_qless_by_a_rule_is_not_a_later_user_of_the_name() -> None:
    """The node answers SUBSCRIBE by itself, and so it has to know that as well."""
    scene, client = qless((b"mail", PUT | WORK))
    subscribe = b"SUBSCRIBE ql:log\r\n"
    rule = msgpack.packb(((QLESS, b"", b"", LEE),))
    scene.others((c.SET_RULES, 1, rule))
    assert client.call(*PEEK).startswith((b"*", b"$"))
    assert client.ask(b"RESET\r\n") == b"+RESET\r\n"
    assert client.connection.user == LEE, "the rule would apply again"
    scene.others((c.SET_RULES, 1, msgpack.packb(())), (c.DROP_USER, 1, LEE))
    assert client.ask(subscribe) == client.call(*PEEK) == NO_PERMISSION
    change_rights(scene, QLESS, (b"mail", PUT | WORK))
    assert client.ask(subscribe) == client.call(*PEEK) == NO_PERMISSION
    scene.others((c.SET_RULES, 1, rule))
    newcomer = scene.connect()
    assert newcomer.call(*PEEK).startswith((b"*", b"$"))
    assert newcomer.ask(subscribe).startswith(b"*3\r\n")
    assert client.ask(subscribe) == NO_PERMISSION


def test_qless_as_redis_is_where_there_are_no_users() -> None:
    client = qless_scene.Scene().connect()
    assert client.ask(b"AUTH x\r\n").startswith(b"-ERR AUTH <password> called")
    assert client.ask(b"AUTH default x\r\n") == b"+OK\r\n"
    assert client.ask(b"AUTH other x\r\n").startswith(b"-WRONGPASS ")
    assert client.ask(b"SUBSCRIBE ql:log\r\n").startswith(b"*3\r\n")


def test_qless_a_user_that_can_have_no_name() -> None:
    _, client = qless((b"mail", PUT))
    assert client.ask(b"AUTH a!b x\r\n").startswith(b"-WRONGPASS ")
    assert not client.port.closed
