"""Kept sessions of a client while nodes are upgraded: some of them cannot keep sessions yet."""

import pytest

from beanpole.client.sansio import faults
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.session import KEEP_RETRY_S
from beanpole.client.sansio.shapes import Job
from beanpole.protocol.beanstalk import replies, stats
from tests.unit.client.kept import A, B, Cluster, interrupt, keeping
from tests.unit.client.pretended import World


class Behind:
    """A node that has not yet applied the version with `resume`, for the first connections."""

    def __init__(self, cluster: Cluster, connections: int) -> None:
        self.cluster = cluster
        self.left = connections

    def __call__(self, data: bytes) -> bytes | None:
        if data == b"extensions\r\n" and self.left:
            self.left -= 1
            return replies.ok(stats.format_list([b"put-unique"]))
        return self.cluster(data)


def unkept(world: World, cluster: Cluster, told: list[int]) -> tuple[Commands[str], Job[str]]:
    """Return a client with a job whose node could not keep sessions when it connected."""
    world.nodes[A] = Behind(cluster, 1)
    client = keeping(world, told)
    return client, world.run(client.reserve(0))


def test_a_node_that_is_behind_resumes_later(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    del world.nodes[A]
    world.nodes[B] = Behind(cluster, 2)
    world.run(client.touch(job))
    assert client.session.at == B
    assert told == []
    assert list(client.session.held) == [job.id]


def test_one_that_stays_behind_takes_no_reservation(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    behind = Behind(cluster, 1_000)
    world.nodes = {B: behind}
    with pytest.raises(faults.NoNodeError, match="b:1: it does not know 'resume' yet"):
        world.run(client.touch(job))
    assert told == []
    world.nodes[A] = cluster
    world.run(client.touch(job))
    assert client.session.at == A
    assert told == []


def test_a_session_is_kept_once_its_node_can(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    """It was kept only from the next connection on, which came weeks after an upgrade."""
    client, job = unkept(world, cluster, told)
    world.now += KEEP_RETRY_S - 1
    world.run(client.touch(job))
    assert not client.session.is_kept
    world.now += 1
    world.run(client.touch(job))
    assert client.session.is_kept
    del world.nodes[A]
    world.run(client.touch(job))
    assert (client.session.at, told, list(client.session.held)) == (B, [], [job.id])


@pytest.mark.parametrize("answer", [b"INTERNAL_ERROR\r\n", b"OUT_OF_MEMORY\r\n"])
@pytest.mark.parametrize("word", [b"extensions", b"keep"])
def test_a_session_that_is_not_kept_later_either_goes_on(
    world: World, cluster: Cluster, told: list[int], word: bytes, answer: bytes
) -> None:
    client, job = unkept(world, cluster, told)
    asked: list[bytes] = []

    def node(data: bytes) -> bytes | None:
        asked.append(data.split()[0])
        return answer if data.startswith(word) else cluster(data)

    world.nodes[A] = node
    for _ in range(3):
        world.now += KEEP_RETRY_S / 2
        world.run(client.touch(job))
    assert asked.count(word) == 1
    assert not client.session.is_kept
    assert (client.session.at, told) == (A, [])


def test_the_reply_to_a_late_keep_is_lost(world: World, cluster: Cluster, told: list[int]) -> None:
    """The session was kept, and the client began another one without its jobs."""
    client, job = unkept(world, cluster, told)
    cluster.silent = {b"keep"}
    world.now += KEEP_RETRY_S
    world.run(client.touch(job))
    assert (client.session.at, told, list(client.session.held)) == (B, [], [job.id])


def test_a_late_keep_that_is_interrupted_ends_with_the_client(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client, job = unkept(world, cluster, told)
    world.now += KEEP_RETRY_S
    interrupt(world, client.touch(job), 2)
    world.run(client.session.quit())
    assert world.said[-1] == (A, b"quit\r\n")


def test_a_node_that_is_lost_when_it_is_asked_again_loses_what_it_held(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client, job = unkept(world, cluster, told)

    def ends(_: bytes) -> bytes:
        cluster.loose.clear()
        return b""

    world.nodes[A] = ends
    world.now += KEEP_RETRY_S
    with pytest.raises(faults.NotFoundError):
        world.run(client.touch(job))
    assert (client.session.at, told) == (B, [job.id])
    assert client.session.is_kept, "the next session is"
