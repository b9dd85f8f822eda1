"""A handler of a signal raises an OSError while a synchronous client computes."""

import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from beanpole.client import blocking
from beanpole.client.sansio import batches, nodes, session
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.nodes import RETURN_MAX_S
from beanpole.client.sansio.session import KEEP_RETRY_S
from beanpole.client.sansio.steps import Steps
from beanpole.protocol.beanstalk import replies, stats
from beanpole.protocol.beanstalk.client import ReplyParser
from tests.unit.client.kept import A, B, Cluster, interrupt, keeping
from tests.unit.client.pretended import World, server
from tests.unit.client.scripted import Node

PLAIN = server(
    {
        b"use": b"USING t\r\n",
        b"put": b"INSERTED 7\r\n",
        b"delete": b"DELETED\r\n",
        b"list-tube-used": b"USING t\r\n",
    }
)


class Parser:
    """A parser that is interrupted by a signal at the bytes which begin with `at`."""

    at = b""

    def __init__(self) -> None:
        self.whole = ReplyParser()
        self.next = self.whole.next

    @property
    def is_empty(self) -> bool:
        return self.whole.is_empty

    def feed(self, data: bytes) -> None:
        if self.at and data.startswith(self.at):
            Parser.at = b""
            signal.raise_signal(signal.SIGUSR1)
        self.whole.feed(data)


def interrupted(*_: object) -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.fixture(autouse=True)
def handled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def time_out(_: int, frame: FrameType | None) -> None:
        raise TimeoutError("my time-out")

    monkeypatch.setattr(session, "ReplyParser", Parser)
    before = signal.signal(signal.SIGUSR1, time_out)
    yield
    signal.signal(signal.SIGUSR1, before)
    Parser.at = b""


def check(world: World, steps: Steps[Any], at: bytes = b"") -> None:
    """Run a command that a signal interrupts, once; its error comes through as it is."""
    Parser.at = at
    before = len(world.said)
    with pytest.raises(TimeoutError, match=r"^my time-out$"):
        world.run(steps)
    assert Parser.at == b"", "it is interrupted"
    assert len({place for place, _ in world.said[before:]}) < 2, "and goes to no other node"


@pytest.mark.parametrize(
    ("ask", "at"),
    [
        (lambda client: client.put("x", 1, 0, 60, None), b"INSERTED"),
        (lambda client: client.using(), b"USING"),
        (lambda client: client.delete(7), b"DELETED"),
        (lambda client: batches.put_many(client, ["x", "y"], 1, 0, 60), b"INSERTED"),
        (lambda client: batches.delete_many(client, [7]), b"DELETED"),
        (lambda client: client.use("t"), b"USING"),
    ],
    ids=["put", "using", "delete", "put_many", "delete_many", "use"],
)
def test_a_command_is_not_repeated(
    world: World, ask: Callable[[Commands[str]], Steps[Any]], at: bytes
) -> None:
    world.nodes = {A: PLAIN, B: PLAIN}
    client = world.client("a:1,b:1")
    check(world, ask(client), at)
    assert world.run(client.using()) == "t"


def test_a_connection_is_not_begun_again(world: World) -> None:
    world.nodes = {A: PLAIN, B: PLAIN}
    client = world.client("a:1,b:1")
    client.set_tubes("t", ["default"])
    check(world, client.using(), b"USING")
    assert world.run(client.using()) == "t"


def test_a_look_for_a_node_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.nodes = {A: PLAIN}
    with monkeypatch.context() as patched:
        patched.setattr(nodes, "Resolve", interrupted)
        check(world, world.client("a:1,b:1").using())


def test_a_look_at_the_first_node_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.nodes = {B: PLAIN}
    client = world.client("a:1,b:1")
    world.run(client.using())
    world.nodes[A] = PLAIN
    world.now += RETURN_MAX_S
    monkeypatch.setattr(session, "Probe", interrupted)
    check(world, client.using())


def test_a_session_is_not_kept_later(world: World, cluster: Cluster, told: list[int]) -> None:
    unable = replies.ok(stats.format_list([b"put-unique"]))
    world.nodes[A] = lambda data: unable if data == b"extensions\r\n" else cluster(data)
    client = keeping(world, told)
    world.run(client.reserve(0))
    world.nodes[A] = cluster
    world.now += KEEP_RETRY_S
    check(world, client.touch(1), b"OK")


def test_jobs_of_a_lost_reply_are_left_to_the_next_reserve(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    world.run(client.connect())
    interrupt(world, client.reserve_up_to(2, 0), 1)
    with pytest.raises(TimeoutError, match=r"^my time-out$"):
        Parser.at = b"FOUND 2"
        world.run(client.reserve_up_to(2, 0))
    assert [job.id for job in world.run(client.reserve_up_to(2, 0))] == [1, 2]
    assert told == []


def test_an_end_is_not_finished(
    world: World, cluster: Cluster, told: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = keeping(world, told)
    world.run(client.reserve(0))
    with monkeypatch.context() as patched:
        patched.setattr(session, "Send", interrupted)
        check(world, client.session.quit())
    client = keeping(world, told)
    interrupt(world, client.reserve(0), 3)
    check(world, client.session.quit(), b"RESUMED")


def test_the_client_leaves_its_connection() -> None:
    """A `reserve` that is left there would still take a job."""
    node = Node([(b"list-tube-used\r\n", b"USING t\r\n")])
    with blocking.Client(node.address, patience_s=0) as client:
        Parser.at = b"USING"
        with pytest.raises(TimeoutError, match=r"^my time-out$"):
            client.using()
        node.finish()  # it reads the end of the connection
