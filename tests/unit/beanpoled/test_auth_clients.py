"""Stock clients of qless and Gearman at a node with users, over real sockets.

The node is on the stage: commands are applied at once.
"""

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from typing import Any

import gearman
import msgpack
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from beanpole import commands as c
from beanpole.core.users import PUT, WORK
from beanpole.events import GEARMAN, QLESS
from beanpoled.frontends.requests import WRONG_TOKEN_DELAY_US
from tests.unit.beanpoled.auth_scene import TOKEN, give_users
from tests.unit.beanpoled.qless_scene import Scene
from tests.unit.node.stage import Port

TIMEOUT_S = 60.0


class SocketPort(Port):
    """A `ClientPort` with a client behind it."""

    def __init__(self, stream: socket.socket) -> None:
        super().__init__()
        self.stream = stream

    def write(self, data: bytes) -> None:
        self.stream.sendall(data)

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError):
            self.stream.shutdown(socket.SHUT_RDWR)

    abort = close


class Served:
    """A node on the stage that serves one protocol at a port, in a thread."""

    def __init__(self, scene: Scene, protocol: str) -> None:
        self._frontend = scene.node.frontends[protocol]
        self._scene = scene
        self._selector = selectors.DefaultSelector()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ, "end")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._wake.send(b"x")
        self._thread.join(TIMEOUT_S)
        for key in list(self._selector.get_map().values()):
            stream: Any = key.fileobj
            stream.close()
        self._selector.close()
        self._wake.close()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data == "end":
                    return
                self._take(key)
                for _ in range(3):
                    self._scene.commit_own()

    def _take(self, key: selectors.SelectorKey) -> None:
        stream: Any = key.fileobj
        if key.data is None:
            client, _ = self._listening.accept()
            connection = self._frontend.connected(SocketPort(client))
            self._selector.register(client, selectors.EVENT_READ, connection)
            return
        try:
            data = stream.recv(65536)
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(stream)
            stream.close()
            key.data.lost()
            return
        key.data.received(data)
        for _ in range(3):
            self._scene.commit_own()
        if b"wrong" in data:
            self._scene.pass_us(WRONG_TOKEN_DELAY_US + 10_000)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@contextlib.contextmanager
def serving(scene: Scene, protocol: str) -> Iterator[int]:
    served = Served(scene, protocol)
    try:
        yield served.port
    finally:
        served.close()


# The client tries again as often as its default says, but does not sleep between: 1 s and more.
RETRIES = Retry(NoBackoff(), 3)
PEEK = ("1", "mail", "10")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("user", ["lee", None])
def test_redis_py(scene: Scene, version: int, user: str | None) -> None:
    give_users(scene, QLESS, (b"mail", PUT | WORK))
    with serving(scene, "qless") as port:
        place: dict[str, Any] = {"host": "127.0.0.1", "port": port, "protocol": version}
        stranger = redis.Redis(**place, socket_timeout=TIMEOUT_S, retry=RETRIES)
        with pytest.raises(redis.exceptions.AuthenticationError, match="Authentication required"):
            stranger.evalsha(scene.sha.decode(), 0, "peek", *PEEK)
        assert stranger.ping()  # the connection stays open
        client = redis.Redis(
            **place,
            username=user,
            password=TOKEN.decode(),
            socket_timeout=TIMEOUT_S,
            retry=RETRIES,
        )
        client.evalsha(scene.sha.decode(), 0, "peek", *PEEK)
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.evalsha(scene.sha.decode(), 0, "peek", "1", "other", "10")
        with client.pubsub() as heard:
            heard.subscribe("ql:log")
            assert heard.get_message(timeout=TIMEOUT_S)["type"] == "subscribe"
        wrong = redis.Redis(**place, username=user, password="wrong", retry=None)
        with pytest.raises(redis.exceptions.AuthenticationError, match="invalid username"):
            wrong.ping()
        for one in (stranger, client, wrong):
            one.close()


def test_python3_gearman(scene: Scene) -> None:
    """It has no way to send the text command, so a rule must identify it. It only logs an ERROR."""
    give_users(scene, GEARMAN, (b"f", PUT | WORK))
    with serving(scene, "gearman") as port:
        client = gearman.GearmanClient([f"127.0.0.1:{port}"])
        done = client.submit_job(
            "f", "data", background=True, wait_until_complete=False, poll_timeout=0.5
        )
        assert done.job.handle is None
        client.shutdown()
        scene.others((c.SET_RULES, 1, msgpack.packb([(0, b"\x08\x0a\0\0\0", b"", b"lee")])))
        client = gearman.GearmanClient([f"127.0.0.1:{port}"])
        done = client.submit_job("f", "data", background=True, wait_until_complete=False)
        assert done.job.handle
        client.shutdown()
