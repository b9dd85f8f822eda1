"""Rights that end while a client waits, listens or holds a job: nothing more is sent to it."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.jobs.job import READY
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import PUT, WORK
from beanpole.events import GEARMAN, QLESS, WORKQ
from beanpole.protocol.gearman import packets as p
from beanpoled.frontends.clients import NO_RIGHT
from tests.unit.beanpoled import gearman_scene
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
from tests.unit.beanpoled.follower_scene import FollowerScene

UUID = (JOB % 1)[2:]


# --- Workq ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", [b"result %b 60000\r\n", b"run %b mail 1000 60000 1\r\nx\r\n"])
@pytest.mark.parametrize("left", [(), ((b"other", PUT | WORK),)])
def test_a_wait_for_a_result_ends_with_the_right(
    waits: bytes, left: tuple[tuple[bytes, int], ...]
) -> None:
    scene, client = workq((b"mail", PUT | WORK), (b"other", PUT | WORK))
    client.say(b"auth %b\r\n" % TOKEN)
    if waits.startswith(b"result"):
        client.say(add(1))
    assert client.say(waits % UUID) == b""
    change_rights(scene, WORKQ, (b"mail", PUT))
    assert client.say(b"") == b"", "any right is enough"
    change_rights(scene, WORKQ, *left)
    assert client.say(b"") == DENIED
    assert scene.node.clients.auth_refused[NO_RIGHT] == 1
    (job,) = scene.machine.queue.jobs.values()
    assert job.state == READY, "its job stays"
    change_rights(scene, WORKQ, (b"mail", PUT | WORK))
    assert client.say(b"lease mail 0\r\n").startswith(b"+OK 1\r\n")
    assert client.say(b"complete %b 1\r\ny\r\n" % UUID) == b"+OK\r\n", "and nothing else is said"


def test_a_client_that_left_before_its_rights_are_looked_at() -> None:
    """The connections are looked at in parts, and some may end meanwhile: this ended the node."""
    scene, client = workq((b"mail", PUT | WORK))
    client.say(b"auth %b\r\n" % TOKEN)
    client.say(add(1))
    assert client.say(b"result %b 60000\r\n" % UUID) == b""
    client.connection.lost()
    change_rights(scene, WORKQ)
    assert client.connection.rights_changed() == 0


def test_a_client_that_waits_for_nothing_stays() -> None:
    scene, client = workq((b"mail", PUT))
    client.say(b"auth %b\r\n" % TOKEN)
    change_rights(scene, WORKQ)
    assert client.say(add(1)) == DENIED
    assert not client.port.closed


# --- a queue whose alias is removed ---------------------------------------------------------------


def watching(protocol: str, prefix: bytes, *lines: bytes) -> Client:
    """Let lee, who may work on a function, use it by an alias, and remove the alias."""
    scene = FollowerScene()
    give_users(scene, GEARMAN, (b"pics", PUT | WORK))
    scene.others((c.SET_ALIAS, 1, prefix + b"mail", b"\x02pics"))
    client = Client(scene, protocol)
    for line in (b"auth %b\r\n" % TOKEN, *lines):
        client.say(line)
    scene.others((c.SET_ALIAS, 1, prefix + b"mail", b""))
    return client


def test_a_client_that_watches_by_a_removed_alias_still_has_the_right() -> None:
    """The front ends asked for the right in the queue that the name has now."""
    lines = (b"use mail\r\n", b"put 0 0 60 1\r\nx\r\n", b"watch mail\r\n", b"ignore default\r\n")
    tubes = watching("beanstalk", b"", *lines)
    assert tubes.say(b"reserve-with-timeout 0\r\n") == b""
    assert tubes.connection.wait is not None, "the leader gives it the job"
    leases = watching("workq", SPACES[WORKQ].prefix, add(1), b"lease mail 0\r\n", add(2))
    assert b" pics 1000 1\r\nx\r\n" in leases.say(b"lease mail 0\r\n")


# --- Gearman --------------------------------------------------------------------------------------


def test_a_client_hears_nothing_of_a_job_without_a_right() -> None:
    scene, client = gearman((b"f", PUT | WORK), (b"g", PUT))
    client.text(b"auth %b\n" % TOKEN)
    gearman_scene.submit(client, p.SUBMIT_JOB)
    change_rights(scene, GEARMAN, (b"f", WORK))
    assert not client.port.closed
    change_rights(scene, GEARMAN, (b"g", PUT))
    assert client.replies() == []
    assert client.port.closed
    assert scene.node.clients.auth_refused[NO_RIGHT] == 1


def test_a_user_that_is_dropped_hears_nothing() -> None:
    scene, client = gearman((b"f", PUT | WORK))
    client.text(b"auth %b\n" % TOKEN)
    gearman_scene.submit(client, p.SUBMIT_JOB)
    scene.others((c.DROP_USER, 1, LEE))
    assert client.port.closed


@pytest.mark.parametrize("gives_up", [(p.CANT_DO, b"f"), (p.RESET_ABILITIES,)])
def test_a_function_that_is_given_up_without_the_right_returns_its_job(
    gives_up: tuple[int, bytes],
) -> None:
    scene, client = gearman((b"f", PUT | WORK))
    client.text(b"auth %b\n" % TOKEN)
    client.ask(p.CAN_DO, b"f")
    gearman_scene.submit(client, p.SUBMIT_JOB_BG)
    assert gearman_scene.grab(client)
    change_rights(scene, GEARMAN)
    assert client.ask(*gives_up) == []
    (job,) = scene.machine.queue.jobs.values()
    assert job.state == READY


def test_a_job_that_may_not_be_ended_returns() -> None:
    scene, client = gearman((b"f", PUT | WORK))
    client.text(b"auth %b\n" % TOKEN)
    client.ask(p.CAN_DO, b"f")
    gearman_scene.submit(client, p.SUBMIT_JOB_BG)
    assert gearman_scene.grab(client)
    change_rights(scene, GEARMAN)
    assert client.ask(p.WORK_COMPLETE, gearman_scene.handle(1), b"x") == PACKET_DENIED
    scene.commit_own()
    (job,) = scene.machine.queue.jobs.values()
    assert job.state == READY
    assert client.replies() == []


def test_a_sleeper_that_becomes_a_user_without_the_right_is_told() -> None:
    scene, client = gearman((b"f", PUT))
    scene.others((c.DROP_USER, 1, b"anonymous"))
    client.ask(p.CAN_DO, b"f")
    client.send(p.PRE_SLEEP)
    client.connection.received(b"auth %b\n" % TOKEN)
    scene.commit_own()
    scene.run()
    assert client.port.take().startswith(b"OK\r\n\0RES\0\0\0\x13")


# --- qless ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", [b"SUBSCRIBE ql:log\r\n", b"PSUBSCRIBE ql:*\r\n"])
def test_a_subscriber_without_a_right_loses_its_connection(said: bytes) -> None:
    scene, client = qless((b"mail", PUT | WORK))
    client.ask(b"AUTH %b\r\n" % TOKEN)
    assert client.ask(said).startswith(b"*3\r\n")
    change_rights(scene, QLESS, (b"mail", WORK))
    assert not client.port.closed
    change_rights(scene, QLESS)
    assert client.port.closed


@pytest.mark.parametrize(
    ("what", "hears"),
    [
        (((b"jid", b"m"), (b"event", b"put"), (b"queue", b"mail")), True),
        (((b"jid", b"m"), (b"event", b"put"), (b"queue", b"other")), False),
        (((b"jid", b"o"), (b"event", b"advanced"), (b"queue", b"other"), (b"to", b"mail")), True),
        (((b"jid", b"m"), (b"event", b"failed"), (b"message", b"text")), True),
        (((b"jid", b"o"), (b"event", b"failed"), (b"message", b"text")), False),
        (((b"jid", b"gone"), (b"event", b"failed"), (b"message", b"text")), False),
        (((b"event", b"config_set"), (b"option", b"a"), (b"value", b"b")), True),
        (b"m", True),
        (b"o", False),
        (b"gone", True),
    ],
)
def test_a_subscriber_hears_of_the_jobs_of_its_queues(what: Any, hears: bool) -> None:
    scene, client = qless((b"mail", PUT | WORK), (b"other", PUT | WORK))
    client.ask(b"AUTH %b\r\n" % TOKEN)
    for queue, jid in ((b"mail", b"m"), (b"other", b"o")):
        assert jid in client.call(b"put", b"1", b"w", queue, jid, b"k", b"{}", b"0")
    assert client.ask(b"PSUBSCRIBE *\r\n").startswith(b"*3\r\n")
    change_rights(scene, QLESS, (b"mail", PUT))
    scene.node.clients.publications.published([(b"log", what)])
    scene.node.clients.flush()
    assert bool(client.port.take()) == hears
    change_rights(scene, QLESS, (b"*", PUT))
    scene.node.clients.publications.published([(b"log", what)])
    scene.node.clients.flush()
    assert client.port.take()


def test_a_user_of_other_protocols_sees_nothing_of_qless() -> None:
    scene, client = qless((b"mail", PUT))
    client.ask(b"AUTH %b\r\n" % TOKEN)
    change_rights(scene, WORKQ, (b"mail", PUT | WORK))
    assert client.ask(b"SUBSCRIBE ql:log\r\n") == NO_PERMISSION
    for said in (b"HGETALL qmore:dynamic", b"LRANGE qmore:priority 0 -1", b"KEYS *", b"DBSIZE"):
        assert client.ask(said + b"\r\n") == NO_PERMISSION, said
    change_rights(scene, QLESS, (b"mail", PUT))
    for said in (b"HGETALL qmore:dynamic", b"LRANGE qmore:priority 0 -1", b"KEYS *", b"DBSIZE"):
        assert not client.ask(said + b"\r\n").startswith(b"-"), said
