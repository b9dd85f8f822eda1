"""A follower whose clients speak Gearman."""

from beanpole.protocol.gearman import packets as p
from beanpole.protocol.gearman.client import Reply, ReplyParser, request
from beanpoled.frontends.gearman.connection import GearmanConnection
from tests.unit.beanpoled.follower_scene import FollowerScene
from tests.unit.node.stage import Port

CLUSTER = "stage"


def handle(job: int) -> bytes:
    """Return the handle of a job."""
    return b"H:%b:%d" % (CLUSTER.encode(), job)


class Client:
    """A Gearman client of the stage's node."""

    def __init__(self, scene: "Scene") -> None:
        self.scene = scene
        self.port = Port()
        connection = scene.node.frontends["gearman"].connected(self.port)
        assert isinstance(connection, GearmanConnection)
        self.connection = connection
        self._parser = ReplyParser()

    def send(self, kind: int, *arguments: bytes) -> None:
        """Send a packet, and apply nothing."""
        self.connection.received(request(kind, *arguments))
        self.scene.run()

    def replies(self) -> list[Reply]:
        """Return the replies since the last call."""
        self._parser.feed(self.port.take())
        found = []
        while (reply := self._parser.next()) is not None:
            found.append(reply)
        return found

    def ask(self, kind: int, *arguments: bytes) -> list[Reply]:
        """Send a packet, apply its commands, and return the replies."""
        self.send(kind, *arguments)
        self.scene.commit_own()
        return self.replies()

    def text(self, line: bytes) -> bytes:
        """Send a line, apply its commands, and return the reply."""
        self.connection.received(line)
        self.scene.commit_own()
        return self.port.take()


class Scene(FollowerScene):
    """A follower with clients of Gearman."""

    def connect(self) -> Client:
        """Connect a client."""
        return Client(self)


NO_JOB: list[Reply] = [(p.NO_JOB, ())]
NOOP: list[Reply] = [(p.NOOP, ())]
NOT_FOUND: list[Reply] = [(p.ERROR, (b"JOB_NOT_FOUND", b"Job given in work result not found"))]


def created(job: int) -> list[Reply]:
    return [(p.JOB_CREATED, (handle(job),))]


def worker(scene: Scene, *functions: bytes) -> Client:
    """Connect a client that can do some functions."""
    made = scene.connect()
    for function in functions:
        assert made.ask(p.CAN_DO, function) == []
    return made


def submit(client: Client, kind: int = p.SUBMIT_JOB, unique: bytes = b"") -> list[Reply]:
    return client.ask(kind, b"f", unique, b"data")


def grab(client: Client) -> int:
    """Grab a job, and return its number, or 0."""
    ((kind, arguments),) = client.ask(p.GRAB_JOB)
    return int(arguments[0].rpartition(b":")[2]) if kind == p.JOB_ASSIGN else 0
