"""A follower whose user lee has a token and rights; clients of all other protocols."""

import hashlib
from typing import Any

import msgpack

from beanpole import commands as c
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import ANONYMOUS, EVERYWHERE
from beanpole.events import GEARMAN, QLESS, WORKQ
from beanpole.protocol.gearman import packets as p
from tests.unit.beanpoled import gearman_scene, qless_scene
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port

TOKEN = b"the-token-of-lee"
LEE = b"lee"
DENIED = b"-CLIENT-ERROR Denied\r\n"
JOB = b"D-00000000-0000-4000-8000-00000000000%d"
PACKET_DENIED = [(p.ERROR, (b"ACCESS_DENIED", b"The user may not do this"))]
NO_PERMISSION = b"-NOPERM this user has no permissions to do that\r\n"


def give_users(scene: FollowerScene, protocol: int, *rights: tuple[bytes, int]) -> None:
    """Give lee rights in queues of a protocol; other users have none."""
    prefix = SPACES[protocol].prefix
    named = tuple((name if name == EVERYWHERE else prefix + name, bits) for name, bits in rights)
    digest = hashlib.sha256(TOKEN).digest()
    scene.others(
        *((c.OPEN, 1), (c.SET_USER, 1, b"root", msgpack.packb(((EVERYWHERE, 15),)), 0, 0, 0)),
        *((c.SET_TOKEN, 1, b"root", b"r" * 32, 1), (c.AS_USER, 1, b"", b"r" * 32)),
        *((c.SET_USER, 1, LEE, msgpack.packb(named), 0, 0, 0), (c.SET_TOKEN, 1, LEE, digest, 1)),
        (c.SET_USER, 1, ANONYMOUS, msgpack.packb(()), 0, 0, 0),
    )
    assert LEE in scene.machine.users.rows


def change_rights(scene: FollowerScene, protocol: int, *rights: tuple[bytes, int]) -> None:
    named = tuple((SPACES[protocol].prefix + name, bits) for name, bits in rights)
    scene.others((c.SET_USER, 1, LEE, msgpack.packb(named), 0, 0, 0))


class Client:
    """A client of the stage's node."""

    def __init__(self, scene: FollowerScene, protocol: str) -> None:
        self.scene = scene
        self.port = Port()
        connection = scene.node.frontends[protocol].connected(self.port)
        assert connection is not None
        self.connection: Any = connection

    def say(self, data: bytes) -> bytes:
        self.connection.received(data)
        for _ in range(3):
            self.scene.commit_own()
        return self.port.take()


def workq(*rights: tuple[bytes, int]) -> tuple[FollowerScene, Client]:
    scene = FollowerScene()
    give_users(scene, WORKQ, *rights)
    return scene, Client(scene, "workq")


def gearman(*rights: tuple[bytes, int]) -> tuple[gearman_scene.Scene, gearman_scene.Client]:
    scene = gearman_scene.Scene()
    give_users(scene, GEARMAN, *rights)
    return scene, scene.connect()


def qless(*rights: tuple[bytes, int]) -> tuple[qless_scene.Scene, qless_scene.Client]:
    scene = qless_scene.Scene()
    give_users(scene, QLESS, *rights)
    return scene, scene.connect()


def add(number: int, queue: bytes = b"mail") -> bytes:
    job = (JOB % number)[2:]
    return b"add %b %b 1000 60000 1\r\nx\r\n" % (job, queue)
