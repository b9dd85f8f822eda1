"""Puts of clients without the right: their node keeps them out of the log until it knows more."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.users import PUT
from beanpole.events import BEANSTALK, GEARMAN, QLESS, WORKQ
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import request
from beanpoled.frontends import held_requests, unfinished
from beanpoled.origin.batches import NOT_DONE
from tests.unit.beanpoled.auth_scene import DENIED, TOKEN, change_rights, give_users
from tests.unit.beanpoled.qless_scene import Scene as QlessScene
from tests.unit.beanpoled.qless_scene import array
from tests.unit.node.stage import Port

NUMBERS = {"beanstalk": BEANSTALK, "workq": WORKQ, "gearman": GEARMAN, "qless": QLESS}
BODY = b"x" * 1024 * 1024
AUTH = {
    "beanstalk": b"auth %b\r\n" % TOKEN,
    "workq": b"auth %b\r\n" % TOKEN,
    "gearman": b"auth %b\n" % TOKEN,
    "qless": array(b"AUTH", TOKEN),
}
# A request whose answer needs no command, and the answer.
BEHIND = {
    "beanstalk": (b"list-tube-used\r\n", b"USING default\r\n"),
    "workq": (b"nonsense\r\n", b"-CLIENT-ERROR Unknown command\r\n"),
    "gearman": (request(p.ECHO_REQ, b"x"), replies.reply(p.ECHO_RES, b"x")),
    "qless": (array(b"PING"), b"+PONG\r\n"),
}
REFUSALS = {
    "beanstalk": b"DENIED\r\n",
    "workq": DENIED,
    "gearman": replies.DENIED,
    "qless": b"-NOPERM this user has no permissions to do that\r\n",
}
NOT_ANSWERED = {
    "beanstalk": b"DRAINING\r\n",
    "workq": b"-SERVER-ERROR ",
    "gearman": replies.NO_MAJORITY,
    "qless": b"-ERR no majority of the nodes answers: it was not done\r\n",
}


def put(scene: QlessScene, protocol: str, body: bytes = BODY) -> list[bytes]:
    """Return requests that put a body, one of each kind."""
    size = len(body)
    at = b"2023-11-14T22:15:00Z"
    job, other = (b"6ba7b810-9dad-41d1-80b4-00c04fd430c%d" % number for number in (4, 5))
    call = (b"EVALSHA", scene.sha, b"0", b"put")
    submits = (*p.SUBMITS, p.SUBMIT_JOB_EPOCH)
    return {
        "beanstalk": [
            b"put 0 0 60 %d\r\n%b\r\n" % (size, body),
            b"put-unique key 0 0 60 %d\r\n%b\r\n" % (size, body),
        ],
        "workq": [
            b"add %b default 1000 60000 %d\r\n%b\r\n" % (job, size, body),
            b"schedule %b default 1000 60000 %b %d\r\n%b\r\n" % (other, at, size, body),
            b"run %b default 1000 100 %d\r\n%b\r\n" % (job, size, body),
        ],
        "gearman": [
            request(kind, b"default", b"", *_beside(kind), body) for kind in dict.fromkeys(submits)
        ],
        "qless": [
            array(*call, b"1", b"me", b"default", b"jid", b"klass", b'"%b"' % body[2:], b"0"),
        ],
    }[protocol]


def _beside(kind: int) -> tuple[bytes, ...]:
    if kind == p.SUBMIT_JOB_EPOCH:
        return (b"1700000100",)
    reduces = (p.SUBMIT_REDUCE_JOB, p.SUBMIT_REDUCE_JOB_BACKGROUND)
    return (b"reducer", b"") if kind in reduces else ()


class Scene(QlessScene):
    """A follower; lee has the right in no queue at first. It notes what it logs."""

    def __init__(self, protocol: str, *rights: tuple[bytes, int]) -> None:
        super().__init__(max_job_size=2 * len(BODY))
        self.protocol = protocol
        give_users(self, NUMBERS[protocol], *rights)
        self.logged: list[Any] = []

    def grant(self) -> None:
        """Apply an entry in which lee is given the right."""
        change_rights(self, NUMBERS[self.protocol], (b"default", PUT))

    def open(self) -> tuple[Any, Port]:
        """Return a client that is lee."""
        port = Port()
        connection = self.node.frontends[self.protocol].connected(port)
        assert connection is not None
        connection.received(AUTH[self.protocol])
        self.commit_own()
        port.take()
        return connection, port

    @property
    def jobs(self) -> int:
        """The number of jobs in the machine."""
        return len(self.machine.queue.jobs) + len(self.machine.qless.jobs)


@pytest.mark.parametrize("protocol", NUMBERS)
def test_a_denied_put_is_not_logged(protocol: str) -> None:
    scene = Scene(protocol)
    connection, port = scene.open()
    for one in put(scene, protocol):
        connection.received(one + BEHIND[protocol][0])
        assert port.take() == b"", "it is not known to be denied"
        logged = scene.commit_own()
        assert sum(len(c.pack_commands([command])) for command in logged) < 100, logged
        assert port.take() == REFUSALS[protocol] + BEHIND[protocol][1]
    assert scene.node.clients.unfinished.bytes == 0
    assert not port.closed


@pytest.mark.parametrize("protocol", NUMBERS)
def test_a_grant_that_the_node_has_not_applied_is_honoured(protocol: str) -> None:
    scene = Scene(protocol)
    connection, port = scene.open()
    connection.received(put(scene, protocol)[0] + BEHIND[protocol][0])
    scene.run()
    scene.grant()  # in the log before the barrier
    scene.commit_own()
    assert scene.jobs == 1
    said = port.take()
    assert REFUSALS[protocol] not in said
    assert said.endswith(BEHIND[protocol][1]) and len(said) > len(BEHIND[protocol][1])


def test_a_run_that_was_held_waits_for_its_job() -> None:
    scene = Scene("workq")
    connection, port = scene.open()
    connection.received(put(scene, "workq")[2])
    scene.run()
    scene.grant()
    scene.commit_own()
    assert scene.jobs == 1
    assert port.take() == b""
    for _ in range(4):
        scene.pass_us(100_000)
        scene.commit_own()
    assert port.take() == b"-TIMEOUT\r\n"


def test_replies_keep_their_order() -> None:
    """A request before the put is answered behind its own command."""
    scene = Scene("beanstalk")
    connection, port = scene.open()
    body = b"put 0 0 60 1\r\nx\r\n"
    connection.received(b"peek 7\r\n" + body + b"peek 8\r\n" + body + b"peek 9\r\n")
    scene.commit_own()
    denied = REFUSALS["beanstalk"]
    assert port.take() == b"NOT_FOUND\r\n" + denied + b"NOT_FOUND\r\n" + denied + b"NOT_FOUND\r\n"


def test_many_denied_puts_share_a_barrier() -> None:
    """One is in flight, and those that come meanwhile share the next."""
    scene = Scene("beanstalk")
    clients = [scene.open() for _ in range(held_requests.CLIENTS_IN_A_ROW_MAX + 44)]
    for connection, _ in clients:
        connection.received(b"put 0 0 60 1\r\nx\r\n" * 2)
    logged = scene.commit_own()
    assert [command[0] for command in logged] == [c.PEEK] * len(logged)
    assert len(logged) <= 5
    assert all(port.take() == REFUSALS["beanstalk"] * 2 for _, port in clients)


@pytest.mark.constants
@pytest.mark.parametrize("protocol", NUMBERS)
def test_a_put_that_waits_counts_with_the_unfinished_requests(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "UNFINISHED_BYTES_MAX", 3 * len(BODY) - 1)
    scene = Scene(protocol)
    clients = [scene.open() for _ in range(3)]
    for connection, _ in clients:
        connection.received(put(scene, protocol)[0])
    assert [port.closed for _, port in clients] == [True, False, False], "the oldest ends"
    assert scene.node.clients.unfinished.bytes >= 2 * len(BODY)
    clients[1][0].lost()
    scene.commit_own()
    assert scene.node.clients.unfinished.bytes == 0
    assert [port.take() for _, port in clients] == [b"", b"", REFUSALS[protocol]]


@pytest.mark.parametrize("protocol", NUMBERS)
def test_a_client_that_has_sent_its_last_is_answered(protocol: str) -> None:
    scene = Scene(protocol)
    connection, port = scene.open()
    connection.received(put(scene, protocol, b"x")[0])
    connection.half_closed()
    assert not port.closed
    scene.commit_own()
    assert port.take() == REFUSALS[protocol]
    assert port.closed


@pytest.mark.parametrize("protocol", NUMBERS)
def test_without_a_majority_a_held_put_is_not_done(protocol: str) -> None:
    scene = Scene(protocol)
    clients = [scene.open() for _ in range(2)]
    for connection, _ in clients:  # the second waits for the next barrier
        connection.received(put(scene, protocol, b"x")[0])
        scene.run()
    held = scene.node.clients.held_requests
    assert held._barrier is not None
    held._barrier.failed(0, NOT_DONE)
    scene.run()
    for _, port in clients:
        assert port.take().startswith(NOT_ANSWERED[protocol])
    assert not any(
        command[0] in (c.PUT, c.ADD, c.SUBMIT, c.QLESS) for command in scene.commit_own()
    )
    assert scene.jobs == 0
    clients[0][0].received(put(scene, protocol, b"x")[0])
    scene.commit_own()
    assert clients[0][1].take() == REFUSALS[protocol], "the next put has a barrier of its own"


def test_an_incarnation_that_ends_forgets_its_barrier() -> None:
    scene = Scene("beanstalk")
    connection, port = scene.open()
    connection.received(b"put 0 0 60 1\r\nx\r\n")
    scene.node.clients.drop_all()
    assert port.closed
    scene.node.origin.start(2)
    scene.apply_sections((0, 2, 1, ()))
    port = Port()
    again = scene.node.frontends["beanstalk"].connected(port)
    assert again is not None
    again.received(b"put 0 0 60 1\r\nx\r\n")
    barrier = scene.node.clients.held_requests._barrier
    assert barrier is not None and barrier.incarnation == 2


def test_a_call_of_qless_with_much_data_and_no_right_is_not_logged() -> None:
    scene = Scene("qless", (b"default", PUT))
    connection, port = scene.open()
    connection.received(put(scene, "qless", b"x")[0])
    scene.commit_own()
    assert scene.jobs == 1
    port.take()
    call = array(b"EVALSHA", scene.sha, b"0", b"fail", b"1", b"jid", b"me", b"group", BODY)
    connection.received(call)
    logged = scene.commit_own()
    assert [command[0] for command in logged] == [c.PEEK]
    assert port.take() == REFUSALS["qless"]
