"""A follower whose clients speak RESP; what they ask for is applied when a test says so."""

from typing import Any

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpoled.frontends.qless.connection import QlessConnection
from tests.unit.node.stage import Port, Stage

# What tells a dialect: the names of the calls, and of their arguments.
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
    """A request."""
    parts = [b"$%d\r\n%b\r\n" % (len(one), one) for one in arguments]
    return b"*%d\r\n%b" % (len(arguments), b"".join(parts))


class Client:
    """A client at the stage's node."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.port = Port()
        connection = scene.node.frontends["qless"].connected(self.port)
        assert isinstance(connection, QlessConnection)
        self.connection = connection

    def send(self, data: bytes) -> bytes:
        """Send bytes, and return what is answered without anything being applied."""
        self.connection.received(data)
        self.scene.run()
        return self.port.take()

    def ask(self, data: bytes) -> bytes:
        """Send bytes, apply what they ask for, and return what came."""
        said = self.send(data)
        self.scene.commit_own()
        return said + self.port.take()

    def call(self, *arguments: bytes) -> bytes:
        """Call the script, and return what came."""
        return self.ask(array(b"EVALSHA", self.scene.sha, b"0", *arguments))


class Scene(Stage):
    """A follower that serves, at the newest version; n1 is another node."""

    def __init__(self, **overrides: Any) -> None:
        super().__init__(**overrides)
        self.follow()
        self.number = 0
        self.apply_sections((c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),)))
        self.come_up_behind()
        loaded = Client(self).send(array(b"SCRIPT", b"LOAD", SCRIPT))
        assert loaded.startswith(b"$40\r\n"), loaded
        self.sha = loaded[5:-2]

    def connect(self, version: int = 2) -> Client:
        """Connect a client."""
        client = Client(self)
        if version == 3:
            assert client.send(b"HELLO 3\r\n").startswith(b"%7\r\n")
        return client

    def commit_own(self) -> int:
        """Apply what this node has sent, until nothing follows; returns how many commands."""
        commands = 0
        origin = self.node.origin
        self.run()
        while origin._numbered:
            sections = [(0, 1, number, b.payload) for number, b in sorted(origin._numbered.items())]
            commands += sum(len(c.unpack_commands(payload)) for *_, payload in sections)
            self.apply(c.encode_entry(0, self.machine.queue.now_us, 0, sections))
            self.run()
        return commands

    @property
    def machine(self) -> Machine:
        """The machine as applied here."""
        return self.node.context.machine
