"""Lists of all queues of a protocol for users without a right in those that only have an alias."""

from typing import Any

import msgpack

from beanpole import commands as c
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import PUT, WORK
from beanpole.events import GEARMAN, WORKQ
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply
from tests.unit.beanpoled.auth_scene import DENIED, LEE, TOKEN, Client, add, gearman, give_users
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.beanpoled.gearman_scene import handle

GEARMAN_PREFIX, WORKQ_PREFIX = SPACES[GEARMAN].prefix, SPACES[WORKQ].prefix
UNIQUE = b"invoice"


def also(scene: FollowerScene, prefix: bytes, tube: bytes | None) -> None:
    """Give lee rights in all queues of a protocol, and in one tube."""
    rights: list[Any] = [(prefix + b"*", PUT | WORK)]
    rights += [(tube, PUT | WORK)] if tube else []
    scene.others((c.SET_USER, 1, LEE, msgpack.packb(rights), 0, 0, 0))


def listed(text: bytes) -> list[bytes]:
    """Return the first columns of a list."""
    return [row.partition(b"\t")[0] for row in text.splitlines()[:-1]]


def test_lists_of_gearman() -> None:
    """They showed the counts, uniques and progress of a tube, in which every put is denied."""
    scene, client = gearman((b"*", PUT | WORK))
    scene.others((c.SET_ALIAS, 1, GEARMAN_PREFIX + b"al", b"secret"))
    client.text(b"auth %b\n" % TOKEN)
    also(scene, GEARMAN_PREFIX, b"secret")
    client.ask(p.SUBMIT_JOB_BG, b"f", b"own", b"x")
    client.ask(p.SUBMIT_JOB_BG, b"al", UNIQUE, b"x")

    def shown() -> tuple[list[bytes], ...]:
        lines = (b"status\n", b"prioritystatus\n", b"show unique jobs\n", b"show jobs\n")
        return tuple(listed(client.text(line)) for line in lines)

    def found(unique: bytes) -> list[Reply]:
        return client.ask(p.GET_STATUS_UNIQUE, unique)

    both = [b"f", b"al"]
    assert shown() == (both, both, [b"own", UNIQUE], [handle(1), handle(2)])
    ((_, status),) = found(UNIQUE)
    assert status[:2] == (UNIQUE, b"1")

    also(scene, GEARMAN_PREFIX, None)
    assert shown() == ([b"f"], [b"f"], [b"own"], [handle(1)])
    ((_, status),) = found(UNIQUE)
    assert status[:2] == (UNIQUE, b"0")
    ((_, status),) = found(b"own")
    assert status[:2] == (b"own", b"1")

    scene.others((c.SET_ALIAS, 1, GEARMAN_PREFIX + b"al", b""))  # the job stays in the tube
    client.ask(p.SUBMIT_JOB_BG, b"al", b"new", b"x")
    assert shown() == (both, both, [b"own", b"new"], [handle(1), handle(3)])
    ((_, status),) = found(UNIQUE)
    assert status[:2] == (UNIQUE, b"0")
    also(scene, GEARMAN_PREFIX, b"secret")
    assert shown() == (both, both, [b"own", UNIQUE, b"new"], [handle(1), handle(2), handle(3)])
    ((_, status),) = found(UNIQUE)
    assert status[:2] == (UNIQUE, b"1")


def test_lists_of_workq() -> None:
    scene = FollowerScene()
    give_users(scene, WORKQ, (b"*", PUT | WORK))
    scene.others((c.SET_ALIAS, 1, WORKQ_PREFIX + b"al", b"secret"))
    client = Client(scene, "workq")
    client.say(b"auth %b\r\n" % TOKEN)
    also(scene, WORKQ_PREFIX, b"secret")
    assert client.say(add(1, b"al") + add(2, b"own")) == b"+OK\r\n" * 2
    lines = client.say(b"inspect queues 0 10\r\n").split(b"\r\n")
    assert lines[0] == b"+OK 2" and lines[1] == b"al 2" and b"own 2" in lines
    also(scene, WORKQ_PREFIX, None)
    assert client.say(b"inspect queue al\r\n") == DENIED
    lines = client.say(b"inspect queues 0 10\r\n").split(b"\r\n")
    assert lines[:2] == [b"+OK 1", b"own 2"]
