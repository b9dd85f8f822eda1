"""Puts beyond a quota: their node keeps large ones out of the log until there is room."""

from typing import Any

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import PUT, WORK
from beanpole.events import BEANSTALK, GEARMAN, WORKQ
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman import replies
from beanpole.protocol.gearman.client import request
from tests.unit.beanpoled.auth_scene import LEE, TOKEN, give_users
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.beanpoled.gearman_scene import handle
from tests.unit.node.stage import Port

NUMBERS = {"beanstalk": BEANSTALK, "workq": WORKQ, "gearman": GEARMAN}
BODY = b"x" * 2048
AUTH = {
    "beanstalk": b"auth %b\r\n" % TOKEN,
    "workq": b"auth %b\r\n" % TOKEN,
    "gearman": b"auth %b\n" % TOKEN,
}
BEHIND = {
    "beanstalk": (b"list-tube-used\r\n", b"USING default\r\n"),
    "workq": (b"nonsense\r\n", b"-CLIENT-ERROR Unknown command\r\n"),
    "gearman": (request(p.ECHO_REQ, b"x"), replies.reply(p.ECHO_RES, b"x")),
}
REFUSALS = {
    "beanstalk": b"OUT_OF_MEMORY\r\n",
    "workq": b"-SERVER-ERROR Out of memory\r\n",
    "gearman": replies.QUEUE_FULL,
}
KNOWN = {
    "beanstalk": b"EXISTS 1\r\n",
    "workq": b"-CLIENT-ERROR Duplicate job\r\n",
    "gearman": replies.reply(p.JOB_CREATED, handle(1)),
}


def put(protocol: str, number: int, body: bytes = BODY) -> bytes:
    """Return a put; equal numbers are keys or names of one job."""
    if protocol == "beanstalk":
        return b"put-unique key-%d 0 0 60 %d\r\n%b\r\n" % (number, len(body), body)
    if protocol == "workq":
        job = b"6ba7b810-9dad-41d1-80b4-00c04fd430c%d" % number
        return b"add %b default 1000 60000 %d\r\n%b\r\n" % (job, len(body), body)
    return request(p.SUBMIT_JOB_BG, b"default", b"%d" % number, body)


class Scene(FollowerScene):
    """A follower; lee may have some jobs. It notes what this node logs."""

    def __init__(self, protocol: str, jobs_max: int) -> None:
        super().__init__()
        self.protocol = protocol
        give_users(self, NUMBERS[protocol], (b"default", PUT | WORK))
        self.limit(jobs_max)
        self.port = Port()
        connection: Any = self.node.frontends[protocol].connected(self.port)
        self.connection = connection
        self.say(AUTH[protocol])

    def limit(self, jobs_max: int) -> None:
        """Apply an entry in which lee may have this many jobs."""
        name = SPACES[NUMBERS[self.protocol]].prefix + b"default"
        rights = msgpack.packb(((name, PUT | WORK),))
        self.others((c.SET_USER, 1, LEE, rights, jobs_max, 0, 0))

    def say(self, data: bytes) -> tuple[list[int], bytes]:
        """Send requests; return the operations that were logged for them, and the replies."""
        self.connection.received(data)
        logged = [command[0] for command in self.commit_own()]
        return logged, self.port.take()


@pytest.mark.parametrize("protocol", NUMBERS)
def test_a_large_put_beyond_a_quota_is_not_logged(protocol: str) -> None:
    scene = Scene(protocol, 1)
    ask, reply = BEHIND[protocol]
    scene.say(put(protocol, 1))
    assert scene.say(put(protocol, 2) + ask) == ([c.PEEK], REFUSALS[protocol] + reply)
    logged, said = scene.say(put(protocol, 2, b"x"))
    assert len(logged) == 1 and logged != [c.PEEK], "a small one does not wait"
    assert said == REFUSALS[protocol]
    assert len(scene.machine.queue.jobs) == 1


@pytest.mark.parametrize("protocol", NUMBERS)
def test_room_that_the_node_does_not_know_of_is_used(protocol: str) -> None:
    scene = Scene(protocol, 1)
    scene.say(put(protocol, 1))
    scene.connection.received(put(protocol, 2))
    scene.run()
    scene.limit(2)  # in the log before the barrier
    logged = [command[0] for command in scene.commit_own()]
    assert logged[0] == c.PEEK and len(logged) == 2
    assert REFUSALS[protocol] not in scene.port.take()
    assert len(scene.machine.queue.jobs) == 2


@pytest.mark.parametrize("protocol", NUMBERS)
def test_a_put_of_a_known_job_needs_no_room(protocol: str) -> None:
    scene = Scene(protocol, 1)
    scene.say(put(protocol, 1))
    logged, said = scene.say(put(protocol, 1))
    assert c.PEEK not in logged
    assert said == KNOWN[protocol]


def test_an_equal_put_needs_no_room() -> None:
    scene = Scene("beanstalk", 1)
    scene.others((c.SET_POLICY, 1, b"default", *Policy(unique_window_us=60_000_000)))
    equal = b"put 0 0 60 %d\r\n%b\r\n" % (len(BODY), BODY)
    said = scene.say(equal)
    assert said == ([c.PUT], b"INSERTED 1\r\n")
    assert scene.say(equal) == said
