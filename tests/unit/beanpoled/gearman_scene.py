"""A follower whose clients speak Gearman; what they ask for is applied when a test says so."""

from typing import Any

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply, ReplyParser, request
from beanpoled.frontends.gearman.connection import GearmanConnection
from tests.unit.node.stage import Port, Stage

CLUSTER = "stage"


def handle(job: int) -> bytes:
    """What clients call a job."""
    return b"H:%b:%d" % (CLUSTER.encode(), job)


class Client:
    """A Gearman client at the stage's node."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.port = Port()
        connection = scene.node.frontends["gearman"].connected(self.port)
        assert isinstance(connection, GearmanConnection)
        self.connection = connection
        self._parser = ReplyParser()

    def send(self, kind: int, *arguments: bytes) -> None:
        """Send a packet; nothing is applied."""
        self.connection.received(request(kind, *arguments))
        self.scene.run()

    def replies(self) -> list[Reply]:
        """What came since the last look."""
        self._parser.feed(self.port.take())
        found = []
        while (reply := self._parser.next()) is not None:
            found.append(reply)
        return found

    def ask(self, kind: int, *arguments: bytes) -> list[Reply]:
        """Send a packet, apply what it asks for, and return what came."""
        self.send(kind, *arguments)
        self.scene.commit_own()
        return self.replies()

    def text(self, line: bytes) -> bytes:
        """Send a line, apply what it asks for, and return what came."""
        self.connection.received(line)
        self.scene.commit_own()
        return self.port.take()


class Scene(Stage):
    """A follower that serves, at the newest version; n1 is another node with sessions."""

    def __init__(self, **overrides: Any) -> None:
        super().__init__(**overrides)
        self.follow()
        self.number = 0
        self.apply_sections((c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),)))
        self.come_up_behind()

    def connect(self) -> Client:
        """Connect a client."""
        return Client(self)

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

    def others(self, *commands: c.Command) -> None:
        """Apply an entry with a batch of n1."""
        self.number += 1
        self.apply_sections((1, 1, self.number, commands))

    def pass_cluster_us(self, us: int) -> None:
        """Let the cluster's time pass: an entry that only says so."""
        self.apply(c.encode_entry(0, self.machine.queue.now_us + us, 0, []))
        self.run()

    @property
    def machine(self) -> Machine:
        """The machine as applied here."""
        return self.node.context.machine


NO_JOB: list[Reply] = [(p.NO_JOB, ())]
NOOP: list[Reply] = [(p.NOOP, ())]
NOT_FOUND: list[Reply] = [(p.ERROR, (b"JOB_NOT_FOUND", b"Job given in work result not found"))]


def created(job: int) -> list[Reply]:
    return [(p.JOB_CREATED, (handle(job),))]


def worker(scene: Scene, *functions: bytes) -> Client:
    """A client that can do something."""
    made = scene.connect()
    for function in functions:
        assert made.ask(p.CAN_DO, function) == []
    return made


def submit(client: Client, kind: int = p.SUBMIT_JOB, unique: bytes = b"") -> list[Reply]:
    return client.ask(kind, b"f", unique, b"data")


def grab(client: Client) -> int:
    """Take a job, and return its number; 0 for none."""
    ((kind, arguments),) = client.ask(p.GRAB_JOB)
    return int(arguments[0].rpartition(b":")[2]) if kind == p.JOB_ASSIGN else 0
