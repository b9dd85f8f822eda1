"""Results that end no job: their node keeps them out of the log, and answers them by itself."""

import uuid
from typing import Any

import pytest

from beanpole import commands as c
from beanpole import qless as q
from beanpole.core.operations import qless as operations
from beanpole.core.users import PUT, WORK
from beanpole.events import GEARMAN, QLESS, WORKQ
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import request
from beanpoled.frontends.held_requests import HELD_BYTES_MIN
from beanpoled.origin.batches import NOT_DONE
from beanpoled.origin.outbox import LARGE_BYTES_MIN
from tests.unit.beanpoled import gearman_scene, qless_scene
from tests.unit.beanpoled.auth_scene import DENIED, TOKEN, change_rights, give_users
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port

JOB, OTHER_JOB, NO_JOB = (b"6ba7b810-9dad-41d1-80b4-00c04fd430c%d" % one for one in range(3))
BODY = b"x" * 512 * 1024
OK = b"+OK\r\n"
NOT_FOUND = b"-NOT-FOUND\r\n"
BEHIND, BEHIND_REPLY = b"nonsense\r\n", b"-CLIENT-ERROR Unknown command\r\n"
ENDS = ("complete", "fail")
# Reports of Gearman, and the answer to one of a job that the worker does not hold.
REPORTS = {
    p.WORK_DATA: replies.NO_JOB_OF_DATA,
    p.WORK_WARNING: replies.NO_JOB_OF_DATA,
    p.WORK_COMPLETE: replies.NO_JOB_OF_RESULT,
    p.WORK_EXCEPTION: replies.NO_JOB_OF_EXCEPTION,
}


def codes(logged: list[c.Command]) -> list[int]:
    """Return which commands were logged, and check that their bodies are small."""
    assert sum(len(c.pack_commands([command])) for command in logged) < 500, "a body was logged"
    return [command[0] for command in logged]


class Workq:
    """A client of Workq at a follower; the scene's first session is opened."""

    def __init__(self, scene: FollowerScene, token: bytes = b"") -> None:
        self.scene = scene
        self.port = Port()
        connection: Any = scene.node.frontends["workq"].connected(self.port)
        self.connection = connection
        connection.received(b"auth %b\r\n" % token if token else b"result %b 0\r\n" % JOB)
        scene.commit_own()
        self.port.take()

    def say(self, data: bytes) -> tuple[list[c.Command], bytes]:
        """Send requests; return the commands that were logged for them, and the replies."""
        self.connection.received(data)
        logged = self.scene.commit_own()
        return logged, self.port.take()


def end(how: str, body: bytes = BODY, job: bytes = JOB) -> bytes:
    return b"%b %b %d\r\n%b\r\n" % (how.encode(), job, len(body), body)


def add(body: bytes = b"x", job: bytes = JOB) -> bytes:
    return b"add %b mail 1000 60000 %d\r\n%b\r\n" % (job, len(body), body)


# --- Workq ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ENDS)
def test_a_result_of_no_job_is_not_logged(how: str) -> None:
    client = Workq(FollowerScene())
    client.connection.received(end(how) + BEHIND)
    assert client.port.take() == b"", "the job may exist at another node"
    assert codes(client.scene.commit_own()) == [c.PEEK]
    assert client.port.take() == NOT_FOUND + BEHIND_REPLY
    assert client.scene.node.clients.unfinished.bytes == 0


@pytest.mark.parametrize("how", ENDS)
def test_a_second_result_is_not_logged(how: str) -> None:
    client = Workq(FollowerScene())
    assert client.say(add() + end(how, b"y"))[1] == OK + OK
    logged, said = client.say(end(how))
    assert codes(logged) == [c.PEEK]
    assert said == b"-CLIENT-ERROR Duplicate result\r\n"


@pytest.mark.parametrize("how", ENDS)
def test_a_result_without_the_right_is_not_logged(how: str) -> None:
    scene = FollowerScene()
    give_users(scene, WORKQ, (b"mail", PUT))
    client = Workq(scene, TOKEN)
    assert client.say(add())[1] == OK
    logged, said = client.say(end(how))
    assert (codes(logged), said) == ([c.PEEK], DENIED)
    client.connection.received(end(how))
    scene.run()
    change_rights(scene, WORKQ, (b"mail", WORK))  # in the log before the barrier
    assert [command[0] for command in scene.commit_own()] == [c.PEEK, c.FINISH_NAMED]
    assert client.port.take() == OK


@pytest.mark.parametrize("how", ENDS)
def test_the_result_of_a_job_that_the_node_has_not_applied_is_taken(how: str) -> None:
    client = Workq(FollowerScene())
    client.connection.received(end(how) + BEHIND)
    client.scene.run()
    job = uuid.UUID(JOB.decode()).bytes
    client.scene.others(
        *((c.OPEN, 1), (c.SET_PROTOCOL, 1, WORKQ)),
        (c.ADD, 1, b"\x01mail", 2**31, 0, 1_000_000, 60_000_000, job, 0, 0, b"x"),
    )
    assert [command[0] for command in client.scene.commit_own()] == [c.PEEK, c.FINISH_NAMED]
    assert client.port.take() == OK + BEHIND_REPLY


def test_a_result_behind_its_own_large_job_is_taken() -> None:
    """The barrier does not overtake the job in the line of large commands."""
    scene = FollowerScene()
    client, other = Workq(scene), Workq(scene)
    large = b"x" * (LARGE_BYTES_MIN + 1)
    # One large command is in flight at a time, so that the second one waits in the line.
    client.connection.received(add(BODY * 2, OTHER_JOB) + add(large) + end("complete"))
    other.connection.received(end("fail", job=NO_JOB))
    scene.commit_own()
    assert client.port.take() == OK * 3
    assert other.port.take() == NOT_FOUND


@pytest.mark.parametrize("how", ENDS)
def test_a_result_of_a_known_job_and_a_small_one_do_not_wait(how: str) -> None:
    client = Workq(FollowerScene())
    logged, said = client.say(end(how, b"x" * (HELD_BYTES_MIN - 1)))
    assert ([command[0] for command in logged], said) == ([c.FINISH_NAMED], NOT_FOUND)
    client.say(add())
    logged, said = client.say(end(how))
    assert ([command[0] for command in logged], said) == ([c.FINISH_NAMED], OK)


def test_without_a_majority_a_held_result_is_not_done() -> None:
    client = Workq(FollowerScene())
    client.connection.received(end("complete") + BEHIND)
    client.scene.run()
    barrier = client.scene.node.clients.held_requests._barrier
    assert barrier is not None
    barrier.failed(0, NOT_DONE)
    client.scene.run()
    said = client.port.take()
    assert said.startswith(b"-SERVER-ERROR ") and said.endswith(BEHIND_REPLY)
    assert codes(client.scene.commit_own()) == [c.PEEK]


# --- Gearman --------------------------------------------------------------------------------------


def working(scene: gearman_scene.Scene) -> tuple[gearman_scene.Client, int]:
    """Return a worker, and the job that it holds."""
    client = scene.connect()
    gearman_scene.submit(client, p.SUBMIT_JOB_BG)
    worker = gearman_scene.worker(scene, b"f")
    return worker, gearman_scene.grab(worker)


def report(kind: int, job: int, body: bytes = BODY) -> bytes:
    return request(kind, gearman_scene.handle(job), body)


ECHO, ECHO_REPLY = request(p.ECHO_REQ, b"x"), replies.reply(p.ECHO_RES, b"x")


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_of_a_job_that_is_not_held_is_not_logged(kind: int) -> None:
    scene = gearman_scene.Scene()
    _, job = working(scene)
    client = gearman_scene.worker(scene, b"f")
    for other in (job, job + 1):  # held by another worker; unknown
        client.connection.received(report(kind, other) + ECHO)
        assert client.port.take() == b""
        assert codes(scene.commit_own()) == [c.PEEK]
        assert client.port.take() == REPORTS[kind] + ECHO_REPLY


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_of_a_held_job_does_not_wait(kind: int) -> None:
    scene = gearman_scene.Scene()
    worker, job = working(scene)
    worker.connection.received(report(kind, job))
    notifies = kind in (p.WORK_DATA, p.WORK_WARNING)
    assert [command[0] for command in scene.commit_own()] == [c.NOTIFY if notifies else c.FINISH]
    assert worker.port.take() == b""


@pytest.mark.parametrize("kind", REPORTS)
def test_a_report_without_the_right_is_not_logged_and_its_job_returns(kind: int) -> None:
    scene = gearman_scene.Scene()
    give_users(scene, GEARMAN, (b"f", PUT | WORK))
    worker = scene.connect()
    worker.text(b"auth %b\n" % TOKEN)
    worker.ask(p.CAN_DO, b"f")
    gearman_scene.submit(worker, p.SUBMIT_JOB_BG)
    job = gearman_scene.grab(worker)
    change_rights(scene, GEARMAN, (b"f", PUT))
    worker.connection.received(report(kind, job))
    ends = kind in (p.WORK_COMPLETE, p.WORK_EXCEPTION)
    assert codes(scene.commit_own()) == [c.PEEK] + [c.RETURN] * ends
    assert worker.port.take() == replies.DENIED
    assert (scene.machine.queue.jobs[job].holder is None) == ends


def test_a_failure_behind_a_refused_exception_has_no_answer() -> None:
    """It is the end of the same report, as where the machine refused the exception."""
    scene = gearman_scene.Scene()
    client = gearman_scene.worker(scene, b"f")
    failure = request(p.WORK_FAIL, gearman_scene.handle(7))
    for body in (b"x", BODY):
        client.connection.received(report(p.WORK_EXCEPTION, 7, body) + failure + ECHO)
        scene.commit_own()
        assert client.port.take() == replies.NO_JOB_OF_EXCEPTION + ECHO_REPLY


def test_without_a_majority_an_exception_is_no_end_of_its_job() -> None:
    scene = gearman_scene.Scene()
    client = gearman_scene.worker(scene, b"f")
    failure = request(p.WORK_FAIL, gearman_scene.handle(7))
    client.connection.received(report(p.WORK_EXCEPTION, 7) + failure)
    scene.run()
    barrier = scene.node.clients.held_requests._barrier
    assert barrier is not None
    barrier.failed(0, NOT_DONE)
    scene.commit_own()
    assert client.port.take() == replies.NO_MAJORITY + replies.NO_JOB_OF_RESULT


# --- qless ----------------------------------------------------------------------------------------

SCRIPT = (
    qless_scene.SCRIPT
    + b"""
QlessAPI.complete = function(now, jid, worker, queue, data, ...)
QlessAPI.retry = function(now, jid, queue, worker, delay, group, message)
QlessAPI.heartbeat = function(now, jid, worker, data)
QlessAPI.log = function(now, jid, message, data)
QlessAPI.tag = function(now, command, ...)
"""
)
# Calls about a job, with a text of any length.
CALLS = {
    "complete": (b"complete", b"1", b"jid", b"me", b"queue", b'"%b"'),
    "fail": (b"fail", b"1", b"jid", b"me", b"group", b"message", b'"%b"'),
    "retry": (b"retry", b"1", b"jid", b"queue", b"me", b"0", b"group", b"%b"),
    "heartbeat": (b"heartbeat", b"1", b"jid", b"me", b'"%b"'),
    "log": (b"log", b"1", b"jid", b"message", b'{"x":"%b"}'),
    "tag": (b"tag", b"1", b"add", b"jid", b"%b"),
}


class Qless:
    """A client of qless at a follower, with a script that knows more calls."""

    def __init__(self) -> None:
        self.scene = qless_scene.Scene()
        self.client = self.scene.connect()
        loaded = self.client.send(qless_scene.array(b"SCRIPT", b"LOAD", SCRIPT))
        self.sha = loaded[5:-2]

    def call(self, *arguments: bytes) -> tuple[list[c.Command], bytes]:
        """Call the script; return the commands that were logged for it, and the reply."""
        self.send(*arguments)
        logged = self.scene.commit_own()
        return logged, self.client.port.take()

    def send(self, *arguments: bytes) -> None:
        """Call the script, and apply nothing."""
        call = qless_scene.array(b"EVALSHA", self.sha, b"0", *arguments)
        self.client.connection.received(call)

    def put(self) -> None:
        self.call(b"put", b"1", b"other", b"queue", b"jid", b"klass", b"{}", b"0")

    def pop(self, worker: bytes) -> None:
        assert b"jid" in self.call(b"pop", b"1", b"queue", worker, b"1")[1]


def about(name: str, text: bytes) -> list[bytes]:
    """Return the arguments of a call with a text."""
    return [word % text if b"%b" in word else word for word in CALLS[name]]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_about_no_job_is_not_logged(name: str) -> None:
    it = Qless()
    said = [it.call(*about(name, b"x"))[1]]  # by the machine
    logged, reply = it.call(*about(name, b"x" * 2000))
    assert codes(logged) == [c.PEEK]
    assert reply.startswith(b"-ERR") and said == [reply]


@pytest.mark.parametrize("name", ["complete", "fail", "retry", "heartbeat"])
def test_a_call_about_a_run_that_is_not_its_workers_is_not_logged(name: str) -> None:
    it = Qless()
    it.put()
    for worker in (b"", b"other"):
        if worker:
            it.pop(worker)
        said = it.call(*about(name, b"x"))[1]
        logged, reply = it.call(*about(name, b"x" * 2000))
        assert codes(logged) == [c.PEEK]
        assert reply.startswith(b"-ERR") and said == reply


@pytest.mark.parametrize("name", CALLS)
def test_a_call_about_a_known_run_does_not_wait(name: str) -> None:
    it = Qless()
    it.put()
    it.pop(b"me")
    logged, reply = it.call(*about(name, b"x" * 2000))
    assert [command[0] for command in logged] == [c.QLESS]
    assert not reply.startswith(b"-ERR")


def test_a_call_about_a_run_that_the_node_has_not_applied_is_made() -> None:
    it = Qless()
    it.put()
    it.send(*about("complete", b"x" * 2000))
    it.scene.run()
    pop = operations.command(1, q.POP, q.CORE, 1.0, (b"queue", b"me", 1))
    it.scene.others((c.OPEN, 1), (c.SET_PROTOCOL, 1, QLESS), pop)  # in the log before the barrier
    assert [command[0] for command in it.scene.commit_own()] == [c.PEEK, c.QLESS]
    assert it.client.port.take() == b"$8\r\ncomplete\r\n"
