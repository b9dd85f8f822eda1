"""A follower whose clients speak RESP."""

from typing import Any

from beanpoled.frontends.qless.connection import QlessConnection
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port

# The names of the calls and of their arguments, by which dialects are recognised.
SCRIPT = b"""
QlessAPI.put = function(now, me, queue, jid, klass, data, delay, ...)
QlessAPI.pop = function(now, queue, worker, count)
QlessAPI.get = function(now, jid)
QlessAPI.peek = function(now, queue, count)
QlessAPI.requeue = function(now, me, queue, jid, ...)
QlessAPI.fail = function(now, jid, worker, group, message, data)
QlessAPI['config.set'] = function(now, key, value)
"""


def array(*arguments: bytes) -> bytes:
    """Encode a request."""
    parts = [b"$%d\r\n%b\r\n" % (len(one), one) for one in arguments]
    return b"*%d\r\n%b" % (len(arguments), b"".join(parts))


class Client:
    """A client of the stage's node."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.port = Port()
        connection = scene.node.frontends["qless"].connected(self.port)
        assert isinstance(connection, QlessConnection)
        self.connection = connection

    def send(self, data: bytes) -> bytes:
        """Send bytes, and return the replies before anything is applied."""
        self.connection.received(data)
        self.scene.run()
        return self.port.take()

    def ask(self, data: bytes) -> bytes:
        """Send bytes, apply their commands, and return the replies."""
        said = self.send(data)
        self.scene.commit_own()
        return said + self.port.take()

    def call(self, *arguments: bytes) -> bytes:
        """Call the script, and return the reply."""
        return self.ask(array(b"EVALSHA", self.scene.sha, b"0", *arguments))


class Scene(FollowerScene):
    """A follower with clients of qless that knows their script."""

    def __init__(self, **overrides: Any) -> None:
        super().__init__(**overrides)
        loaded = Client(self).send(array(b"SCRIPT", b"LOAD", SCRIPT))
        assert loaded.startswith(b"$40\r\n"), loaded
        self.sha = loaded[5:-2]

    def connect(self, version: int = 2) -> Client:
        """Connect a client."""
        client = Client(self)
        if version == 3:
            assert client.send(b"HELLO 3\r\n").startswith(b"%7\r\n")
        return client
