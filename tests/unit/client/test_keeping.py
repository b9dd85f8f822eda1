"""Sessions that a client keeps across connections, and puts with a key; without sockets."""

from collections.abc import Callable

import pytest

from beanpole.client import aio, blocking
from beanpole.client.patience import CONNECT_TIMEOUT_S, REPLY_TIMEOUT_S
from beanpole.client.sansio import batches, faults
from beanpole.client.sansio.commands import Commands
from beanpole.client.sansio.session import TRIES_MAX
from beanpole.client.sansio.steps import Close, Send
from tests.unit.client.kept import A, B, Cluster, interrupt, keeping
from tests.unit.client.pretended import World, server


def test_a_reservation_outlives_its_node(world: World, cluster: Cluster, told: list[int]) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    assert client.session.is_kept
    del world.nodes[A]
    world.run(client.touch(job))
    assert client.session.at == B
    assert list(client.session.held) == [job.id]
    world.run(client.delete(job))
    assert told == []
    assert not client.session.held


def test_a_session_that_has_ended_is_told_and_another_begins(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    del world.nodes[A]
    (first,) = cluster.sessions
    cluster.sessions.clear()
    with pytest.raises(faults.NotFoundError):
        world.run(client.touch(job))
    assert told == [job.id]
    (second,) = cluster.sessions
    assert first != second
    assert len(first) == 32


def test_the_job_of_a_reply_that_was_lost_is_not_lost(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    first = world.run(client.reserve(0))
    cluster.silent = {b"reserve-with-timeout"}
    second = world.run(client.reserve(0))
    assert (second.id, second.body) == (first.id + 1, "y"), "it is read again by its id"
    assert sorted(client.session.held) == [first.id, second.id]
    assert cluster.next == 3, "and no third one is taken"


def test_the_first_reserve_is_not_repeated_either(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    cluster.silent = {b"reserve-with-timeout"}
    assert world.run(client.reserve(0)).id == 1
    assert cluster.next == 2, "no second job is taken"


def test_a_job_that_is_read_again_is_held_whatever_its_body_is(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    world.run(client.connect())
    cluster.silent, cluster.body = {b"reserve-with-timeout"}, b"\xff"
    with pytest.raises(UnicodeDecodeError):
        world.run(client.reserve(0))
    assert list(client.session.held) == [1], "the cluster has it reserved for this client"
    world.run(client.delete(1))


def lost_jobs(world: World, cluster: Cluster, told: list[int], count: int) -> Commands[str]:
    """Return a client whose session holds jobs at the cluster that the client does not know."""
    client = keeping(world, told)
    world.run(client.connect())
    cluster.sessions[cluster.token] = list(range(1, count + 1))
    cluster.next = count + 1
    world.run(client.session.drop())
    return client


def test_one_job_that_cannot_be_decoded_does_not_keep_the_others_back(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = lost_jobs(world, cluster, told, 3)
    cluster.peeks[2] = b"FOUND 2 1\r\n\xff\r\n"
    with pytest.raises(faults.BatchError) as caught:
        world.run(batches.reserve_many(client, 3, 0))
    first, second, third = caught.value.results
    assert (first.id, type(second), third.id) == (1, UnicodeDecodeError, 3)
    assert list(client.session.held) == [1, 2, 3]


def test_jobs_that_were_read_again_before_a_failure_are_returned(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = lost_jobs(world, cluster, told, 2)
    cluster.peeks[2] = b"INTERNAL_ERROR\r\n"
    assert [job.id for job in world.run(batches.reserve_many(client, 2, 0))] == [1]
    with pytest.raises(faults.InternalError):
        world.run(client.reserve(0))
    cluster.peeks.clear()
    assert world.run(client.reserve(0)).id == 2, "it is not forgotten"
    assert cluster.next == 3, "and no other one is taken"


def test_jobs_that_are_lost_while_others_are_read_again_are_not_returned(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = lost_jobs(world, cluster, told, 2)
    cluster.peeks[2] = b"NOT_FOUND\r\n"

    def ends(data: bytes) -> bytes | None:
        if data == b"peek 2\r\n":
            cluster.sessions.clear()
            del world.nodes[B]
            return b""
        return cluster(data)

    world.nodes[B] = ends  # the next node, because A was left
    jobs = world.run(batches.reserve_many(client, 2, 0))
    assert told == [1]
    assert [job.id for job in jobs] == [3, 4]


def test_a_kept_wait_outlives_any_number_of_nodes(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    answers = [b"", b"TIMED_OUT\r\n"] * TRIES_MAX + [b"RESERVED 9 1\r\nx\r\n"]

    def node(data: bytes) -> bytes | None:
        return answers.pop(0) if data.startswith(b"reserve") else cluster(data)

    world.nodes = {A: node, B: node}
    assert world.run(keeping(world, told).reserve(None)).id == 9


def test_a_delete_whose_reply_was_lost(world: World, cluster: Cluster, told: list[int]) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    cluster.silent = {b"delete"}
    with pytest.raises(faults.MayBeDoneError):
        world.run(client.delete(job))
    assert told == []
    assert not client.session.held


def test_a_batch_forgets_only_the_jobs_that_are_gone(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    jobs = world.run(batches.reserve_many(client, 4, 0))
    cluster.sessions[cluster.token].remove(3)
    answers = {b"delete 2": b"INTERNAL_ERROR\r\n"}

    def node(data: bytes) -> bytes | None:
        lines = data.split(b"\r\n")[:-1]
        said = [answers.get(line) or cluster(line + b"\r\n") or b"" for line in lines[:3]]
        if lines[0].startswith(b"delete"):
            world.nodes.clear()
        return b"".join(said)

    world.nodes[A] = node
    with pytest.raises(faults.BatchError) as caught:
        world.run(batches.delete_many(client, jobs))
    done, refused, missing, open_ = caught.value.results
    assert (done, type(refused), missing) == (True, faults.InternalError, False)
    assert isinstance(open_, faults.MayBeDoneError)
    assert list(client.session.held) == [2, 4]
    assert not client.session.ending


def test_an_interrupted_delete_leaves_no_job_to_report_as_lost(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    interrupt(world, client.delete(job), 1)
    world.run(client.connect())
    assert (told, cluster.sessions[cluster.token]) == ([], [])
    assert not client.session.held


def test_an_interrupted_batch_leaves_no_job_to_report_as_lost(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    """The replies to its first window were read, those to the second not; the third is not sent."""
    client = keeping(world, told)
    jobs = world.run(batches.reserve_many(client, 2 * batches.WINDOW_REQUESTS + 1, 0))
    interrupt(world, batches.delete_many(client, jobs), 2)
    assert not client.session.ending
    world.run(client.connect())
    assert (told, cluster.sessions[cluster.token]) == ([], [jobs[-1].id])
    assert not client.session.held
    assert world.run(client.reserve(0)).id == jobs[-1].id, "the job is still there"


def test_a_delete_that_reaches_no_node_forgets_no_kept_job(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    world.nodes.clear()
    with pytest.raises(faults.NoNodeError):
        world.run(client.delete(job))
    assert list(client.session.held) == [job.id]


def test_closing_says_quit(world: World, told: list[int]) -> None:
    client = keeping(world, told)
    world.run(client.reserve(0))
    world.run(client.session.quit())
    assert world.said[-1] == (A, b"quit\r\n")
    assert world.at is None
    assert not client.session.held


@pytest.mark.parametrize("is_done", [True, False], ids=["done", "not done"])
def test_closing_after_an_interrupted_command_ends_the_session(
    world: World, told: list[int], is_done: bool
) -> None:
    client = keeping(world, told)
    world.run(client.reserve(0))
    steps = client.reserve(5)
    step = next(steps)
    while not isinstance(step, Send):
        step = steps.send(world.do(step))
    if is_done:
        world.do(step)
    world.do(Close())
    steps.close()
    assert client.session.at is None
    (token,) = [data.split()[1] for _, data in world.said if data.startswith(b"keep ")]
    del world.said[:]
    world.run(client.session.quit())
    assert world.said == [
        (A, b"extensions\r\n"),
        (A, b"resume " + token + b"\r\n"),
        (A, b"quit\r\n"),
    ]
    assert world.at is None
    assert not client.session.held
    with pytest.raises(faults.ClosedError):
        world.run(client.reserve(0))


def test_closing_after_the_node_is_lost_ends_the_session_at_another(
    world: World, told: list[int]
) -> None:
    client = keeping(world, told)
    world.run(client.reserve(0))
    del world.nodes[A]
    world.run(client.session.quit())
    assert world.said[-1] == (B, b"quit\r\n")
    assert world.at is None
    assert not told, "the client gives the job back itself"


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "gone"])
def test_closing_does_not_wait_for_a_node_that_does_not_answer(
    world: World, told: list[int], silent: bool
) -> None:
    client = keeping(world, told)
    world.run(client.reserve(0))
    world.run(client.session.drop())
    world.nodes = {A: lambda _: None, B: lambda _: None} if silent else {}
    before = world.now
    world.run(client.session.quit())
    assert world.now - before <= 2 * CONNECT_TIMEOUT_S
    assert not client.session.is_kept
    world.nodes = {A: Cluster()}
    world.run(client.connect())
    assert client.session.is_kept, "a session of its own"
    world.nodes[A] = lambda _: None
    before = world.now
    with pytest.raises(faults.MayBeDoneError):
        world.run(client.using())
    assert world.now - before >= REPLY_TIMEOUT_S, "commands wait for their replies as before"


def test_nothing_is_kept_where_nobody_can(told: list[int]) -> None:
    here = World()
    plain = server(
        {
            b"extensions": b"UNKNOWN_COMMAND\r\n",
            b"reserve-with-timeout": b"RESERVED 7 1\r\nx\r\n",
            b"touch": b"NOT_FOUND\r\n",
        }
    )
    here.nodes = {A: plain, B: plain}
    client = keeping(here, told)
    job = here.run(client.reserve(0))
    assert not client.session.is_kept
    del here.nodes[A]
    with pytest.raises(faults.NotFoundError):
        here.run(client.touch(job))
    assert told == [7]


def test_what_cannot_be_kept_any_more_is_given_up(
    world: World, cluster: Cluster, told: list[int]
) -> None:
    client = keeping(world, told)
    job = world.run(client.reserve(0))
    world.now += 1_000  # a job may take long: the time counts from the loss
    world.nodes = {B: server({b"extensions": b"UNKNOWN_COMMAND\r\n", b"use": b"USING x\r\n"})}
    with pytest.raises(faults.NoNodeError):
        world.run(client.touch(job))
    assert told == []
    world.now += 60
    world.run(client.use("x"))
    assert told == [job.id]
    assert not client.session.is_kept


def test_a_put_with_a_key_is_repeated(world: World, cluster: Cluster) -> None:
    client = world.client("a:1,b:1")
    cluster.silent = {b"put-unique"}
    assert world.run(client.put("x", 1, 0, 60, "order-1")) == 1
    assert world.run(client.put("x", 1, 0, 60, "order-1")) == 1
    assert world.run(client.put("x", 1, 0, 60, "order-2")) == 2
    assert [data.split(b" ")[0] for _, data in world.said][:4] == [
        b"extensions\r\n",
        b"put-unique",
        b"extensions\r\n",
        b"put-unique",
    ]


def test_a_plain_server_never_sees_a_put_with_a_key() -> None:
    """It would read the body as commands."""
    here = World()
    here.nodes = {A: server({b"extensions": b"UNKNOWN_COMMAND\r\n"})}
    with pytest.raises(faults.NotAvailableError, match="a:1 does not know 'put-unique'"):
        here.run(here.client("a:1").put("delete 1", 1, 0, 60, "k"))
    assert [data for _, data in here.said] == [b"extensions\r\n"]


def test_a_put_that_was_never_sent_is_not_said_to_be_done() -> None:
    here = World()
    here.nodes = {A: lambda _: b""}
    with pytest.raises(faults.NoNodeError, match="no node answers: a:1"):
        here.run(here.client("a:1").put("x", 1, 0, 60, "k"))
    assert [data for _, data in here.said] == [b"extensions\r\n"] * TRIES_MAX


def test_a_repeated_put_that_meets_an_older_node_is_open(world: World, cluster: Cluster) -> None:
    world.nodes[B] = server({b"extensions": b"UNKNOWN_COMMAND\r\n"})
    client = world.client("a:1,b:1")
    world.run(client.connect())
    cluster.silent = {b"put-unique"}

    def gone(data: bytes) -> bytes | None:
        answer = cluster(data)
        if answer == b"":
            del world.nodes[A]
        return answer

    world.nodes[A] = gone
    with pytest.raises(faults.MayBeDoneError, match="does not know"):
        world.run(client.put("x", 1, 0, 60, "k"))


@pytest.mark.parametrize("keep", [-1, 301])
@pytest.mark.parametrize("client", [blocking.Client, aio.Client])
def test_a_time_that_no_cluster_keeps_is_refused_before_a_connection(
    client: Callable[..., object], keep: int
) -> None:
    with pytest.raises(ValueError, match="keep must be from 0 to 300 seconds"):
        client("127.0.0.1:1", keep=keep)


@pytest.mark.parametrize("client", [blocking.Client, aio.Client])
def test_a_client_that_watches_nothing_is_refused(client: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match="needs a tube to watch"):
        client("127.0.0.1:1", watch=[])


@pytest.mark.parametrize(
    ("is_done", "has_ended", "holds"),
    [(False, False, True), (True, False, False), (False, True, False)],
    ids=["refused", "done", "over"],
)
def test_whether_a_job_is_held_after_a_delete_without_an_answer(
    world: World, cluster: Cluster, told: list[int], is_done: bool, has_ended: bool, holds: bool
) -> None:
    commands = keeping(world, told)
    job = world.run(commands.reserve(1))
    if is_done:
        cluster.sessions[cluster.token].remove(job.id)
    world.nodes[A] = world.nodes[B] = lambda _: b""
    with pytest.raises(faults.MayBeDoneError):
        world.run(commands.delete(job))
    if has_ended:
        cluster.sessions.clear()
    world.nodes[A] = world.nodes[B] = cluster
    assert world.run(commands.holds(job)) == holds
    assert (job.id in commands.session.held) == holds
    if holds:
        world.run(commands.delete(job))
        assert not any(cluster.sessions.values())


def test_a_job_of_a_session_that_is_not_kept_is_not_held_after_that(
    world: World, cluster: Cluster
) -> None:
    commands = world.client("a:1,b:1")
    job = world.run(commands.reserve(1))
    assert world.run(commands.holds(job))
    world.nodes[A] = world.nodes[B] = lambda _: b""
    with pytest.raises(faults.MayBeDoneError):
        world.run(commands.delete(job))
    said = len(world.said)
    assert not world.run(commands.holds(job))
    assert len(world.said) == said
