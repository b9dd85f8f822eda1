"""Workq clients that wait for the end of a job, by run and by result, entry by entry."""

import msgpack
import pytest

from beanpole import commands as c
from beanpole.core.jobs.job import DONE, FAILED
from beanpole.core.jobs.spaces import SPACES
from beanpole.core.users import ANONYMOUS, EVERYWHERE
from beanpole.events import WORKQ
from beanpole.protocol.workq import replies
from tests.unit.core.cluster import copy_of
from tests.unit.node.settling import settle
from tests.unit.node.stage import SECOND
from tests.unit.node.workq_scene import (
    ADD,
    JOB,
    JOB_ID,
    LEASED,
    MS,
    NOT_FOUND,
    OK,
    OTHER,
    OTHERS,
    RUN,
    TIMEOUT,
    Client,
    Scene,
    ended,
)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def client(scene: Scene) -> Client:
    return Client(scene)


# --- result ---------------------------------------------------------------------------------------


def test_every_client_that_waits_for_a_result_has_it(scene: Scene, client: Client) -> None:
    waiting = [Client(scene) for _ in range(300)]
    assert client.ask(ADD) == OK
    for one in waiting:
        assert one.send(b"result %b 60000\r\n" % JOB) == b""
    settle(scene)
    scene.others(scene.finish(FAILED, b"\r\n" * 9))
    assert {one.port.take() for one in waiting} == {ended(0, b"\r\n" * 9)}
    assert client.ask(b"result %b 1\r\n" % JOB) == ended(0, b"\r\n" * 9)
    assert scene.listened == []


def test_no_result_is_said_when_a_barrier_is_answered(scene: Scene, client: Client) -> None:
    assert client.ask(ADD + b"result %b 1000\r\n" % JOB) == OK
    scene.pass_us(2 * SECOND)
    assert client.port.take() == b"", "this node may not know what others have done"
    settle(scene)
    assert client.port.take() == TIMEOUT
    assert scene.listened == []


def test_a_result_in_the_entry_of_the_barrier_is_the_answer(scene: Scene, client: Client) -> None:
    assert client.ask(ADD + b"result %b 1000\r\n" % JOB) == OK
    scene.pass_us(1100 * MS)
    scene.commit_own(scene.finish())
    assert client.port.take() == ended(1, b"r")


def test_a_barrier_is_not_answered_twice(scene: Scene, client: Client) -> None:
    """A result arrives with the barrier in flight; its answer must not go to a later request."""
    assert client.ask(ADD + b"result %b 1000\r\n" % JOB) == OK
    scene.pass_us(1100 * MS)
    scene.replica.proposed.clear()
    scene.number += 1
    scene.apply_sections((1, 1, scene.number, (scene.finish(),)))
    assert client.port.take() == ended(1, b"r")
    assert client.send(b"run %b q 1000 5000 4\r\npong\r\n" % OTHER) == b""
    scene.commit_own()
    settle(scene)
    assert client.port.take() == b""
    scene.after(6 * SECOND)
    assert client.port.take() == TIMEOUT


def test_a_wait_that_is_over_before_its_request_is_applied(scene: Scene, client: Client) -> None:
    """Life 97279: its node was behind, and the result was in time, but later in the log."""
    assert client.ask(ADD) == OK
    assert client.send(b"result %b 1000\r\n" % JOB) == b""
    scene.pass_us(2 * SECOND)
    scene.commit_own()
    assert client.port.take() == b"", "this node may not know what others have done"
    scene.commit_own(scene.finish())
    assert client.port.take() == ended(1, b"r")


def test_a_result_without_a_wait_needs_no_barrier(scene: Scene, client: Client) -> None:
    assert client.ask(ADD) == OK
    assert client.send(b"result %b 0\r\n" % JOB) == b""
    scene.pass_us(2 * SECOND)
    scene.commit_own()
    assert client.port.take() == TIMEOUT


def test_a_result_of_a_job_that_is_not_there(client: Client) -> None:
    assert client.ask(b"result %b 60000\r\n" % JOB) == NOT_FOUND


def test_a_result_of_a_job_that_is_deleted(scene: Scene, client: Client) -> None:
    assert client.ask(ADD + b"result %b 60000\r\n" % JOB) == OK
    scene.others((c.DELETE_NAMED, OTHERS, JOB_ID))
    assert client.port.take() == NOT_FOUND


def test_a_result_after_a_retry(scene: Scene, client: Client) -> None:
    add = ADD.replace(b" 4\r\n", b" 4 -max-fails=2\r\n")
    assert client.ask(add + b"result %b 60000\r\n" % JOB) == OK
    scene.others(scene.finish(FAILED))
    assert client.port.take() == b""
    scene.others(scene.finish(FAILED))
    assert client.port.take() == ended(0, b"r")


def test_a_result_from_a_snapshot(scene: Scene, client: Client) -> None:
    """The entry with the result never reaches this node by itself."""
    assert client.ask(ADD + b"result %b 60000\r\n" % JOB) == OK
    machine = copy_of(scene.node.context.machine)
    scene.become("follower", "n1", 2)
    number = scene.number + 1
    machine.apply(
        machine.index + 9, 0, machine.queue.now_us, 0, [(1, 1, number, (scene.finish(),))]
    )
    scene.load(machine)
    assert client.port.take() == ended(1, b"r")


# --- run ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "success"), [(DONE, 1), (FAILED, 0)])
def test_a_run_returns_the_result_and_the_job_is_gone(
    scene: Scene, client: Client, state: int, success: int
) -> None:
    assert client.ask(RUN + b"inspect job %b\r\n" % JOB) == b""
    assert Client(scene).ask(RUN) == replies.DUPLICATE_JOB
    scene.others(scene.finish(state, b"pong"))
    assert client.port.take() == ended(success, b"pong") + NOT_FOUND
    assert scene.listened == []


def test_a_run_times_out_and_the_job_is_gone(scene: Scene, client: Client) -> None:
    assert client.ask(RUN) == b""
    scene.after(6 * SECOND)
    assert client.port.take() == TIMEOUT
    assert client.ask(b"inspect job %b\r\n" % JOB) == NOT_FOUND


def test_a_client_that_sends_nothing_more_still_has_its_results(
    scene: Scene, client: Client
) -> None:
    """As with `printf ... | nc`. The client may also be gone, with its reply: the job stays."""
    other = Client(scene)
    assert client.ask(RUN) == b""
    assert other.ask(b"result %b 60000\r\n" % JOB) == b""
    for one in (client, other):
        one.connection.half_closed()
    scene.others(scene.finish())
    for one in (client, other):
        assert one.port.take() == ended(1, b"r")
        assert one.port.closed
    settle(scene)
    assert Client(scene).ask(b"result %b 0\r\n" % JOB) == ended(1, b"r")
    scene.pass_us(70 * SECOND, step_us=200 * MS)
    settle(scene)
    assert Client(scene).ask(b"result %b 0\r\n" % JOB) == NOT_FOUND


def test_a_time_out_deletes_the_job_of_a_client_that_sends_nothing_more(
    scene: Scene, client: Client
) -> None:
    """A client that still reads takes the time-out for the end of its job."""
    assert client.ask(RUN) == b""
    client.connection.half_closed()
    scene.after(6 * SECOND)
    assert client.port.take() == TIMEOUT
    assert client.port.closed
    assert Client(scene).ask(b"result %b 0\r\n" % JOB) == NOT_FOUND


def test_the_job_of_a_run_outlives_its_client_for_a_while(scene: Scene, client: Client) -> None:
    assert client.ask(RUN) == b""
    client.connection.lost()
    other = Client(scene)
    assert other.ask(b"lease q 0\r\ncomplete %b 1\r\nx\r\n" % JOB) == LEASED + OK
    assert other.ask(b"result %b 0\r\n" % JOB) == ended(1, b"x")
    scene.pass_us(70 * SECOND, step_us=200 * MS)
    settle(scene)
    assert other.ask(b"result %b 0\r\n" % JOB) == NOT_FOUND


def test_a_run_without_a_wait(client: Client) -> None:
    assert client.ask(RUN.replace(b" 5000 ", b" 0 ")) == TIMEOUT
    assert client.ask(b"inspect job %b\r\n" % JOB) == NOT_FOUND


def test_a_run_waits_for_the_end_of_a_lease(scene: Scene, client: Client) -> None:
    worker = Client(scene)
    assert client.ask(RUN.replace(b" 5000 ", b" 500 ")) == b""
    assert worker.ask(b"lease q 0\r\n") == LEASED
    scene.after(700 * MS)
    assert client.port.take() == b"", "a worker has it"
    assert worker.ask(b"complete %b 1\r\nx\r\n" % JOB) == OK
    assert client.port.take() == ended(1, b"x")


def test_but_no_longer(scene: Scene, client: Client) -> None:
    worker = Client(scene)
    assert client.ask(RUN.replace(b" 5000 ", b" 500 ")) == b""
    assert worker.ask(b"lease q 0\r\n") == LEASED
    scene.after(3 * SECOND)
    assert client.port.take() == TIMEOUT
    assert worker.ask(b"complete %b 1\r\nx\r\n" % JOB) == NOT_FOUND


def test_nor_for_the_lease_behind_it(scene: Scene, client: Client) -> None:
    """In the entry of the barrier the TTR ends, and the job is leased again."""
    scene.others((c.WATCH, OTHERS, b"\x01q"))
    assert client.ask(RUN.replace(b" 5000 ", b" 500 ")) == b""
    scene.others((c.TAKE, OTHERS))
    scene.after(700 * MS)
    scene.pass_us(500 * MS)
    scene.commit_own((c.TAKE, OTHERS), after_us=2 * SECOND)
    assert client.port.take() == b""
    assert scene.deleting()
    settle(scene)
    assert client.port.take() == TIMEOUT


def test_nor_for_a_worker_of_another_protocol_behind_it(scene: Scene, client: Client) -> None:
    """A job that such a worker holds cannot be deleted: the run had no answer until its end."""
    scene.others((c.OPEN, 2), (c.SET_ALIAS, OTHERS, b"\x01q", b"tube"), (c.WATCH, 2, b"tube"))
    assert client.ask(RUN.replace(b" 5000 ", b" 500 ")) == b""
    scene.others((c.TAKE, 2))
    scene.after(700 * MS)
    scene.pass_us(500 * MS)
    scene.commit_own((c.TAKE, 2), after_us=2 * SECOND)
    assert client.port.take() == b""
    assert scene.deleting()
    settle(scene)
    assert client.port.take() == TIMEOUT
    assert client.state() != b"", "its job stays"
    scene.others((c.DELETE, 2, 1))
    assert client.port.take() == b""


def test_but_as_long_as_the_cluster_says(scene: Scene, client: Client) -> None:
    """By cluster time the lease lasts longer than this node estimated."""
    worker = Client(scene)
    assert client.ask(RUN.replace(b" 5000 ", b" 500 ")) == b""
    assert worker.ask(b"lease q 0\r\n") == LEASED
    scene.after(700 * MS)
    scene.pass_us(500 * MS)
    scene.commit_own()
    assert not scene.deleting()
    assert worker.ask(b"complete %b 1\r\nx\r\n" % JOB) == OK
    assert client.port.take() == ended(1, b"x")


def test_a_run_that_ends_within_a_snapshot(scene: Scene, client: Client) -> None:
    """It is then unknown whether the job had a result before its deletion."""
    assert client.ask(RUN) == b""
    scene.pass_us(5 * SECOND)
    scene.commit(1)  # the barrier
    scene.pass_us(10 * MS)
    assert scene.deleting()
    machine = copy_of(scene.node.context.machine)
    scene.become("follower", "n1", 2)
    deleted = [(1, 1, scene.number + 1, ((c.DELETE_NAMED, OTHERS, JOB_ID),))]
    machine.apply(machine.index + 9, 0, machine.queue.now_us, 0, deleted)
    scene.load(machine)
    assert client.port.take() == b""
    assert client.port.closed


def test_a_lease_behind_the_last_wait_of_a_client_that_sends_nothing_more(
    scene: Scene, client: Client
) -> None:
    assert client.ask(ADD + b"result %b 1000\r\nlease p 60000\r\n" % JOB) == OK
    client.connection.half_closed()
    scene.after(2 * SECOND)
    assert client.port.take() == TIMEOUT * 2
    assert client.port.closed


def test_a_result_between_the_time_out_and_the_deletion(scene: Scene, client: Client) -> None:
    """In the log the result precedes the deletion, so it is the answer."""
    assert client.ask(RUN) == b""
    scene.pass_us(5 * SECOND)
    scene.commit(1)  # the barrier
    scene.pass_us(10 * MS)
    assert client.port.take() == b""
    assert scene.deleting()
    scene.commit_own(scene.finish())
    assert JOB_ID not in scene.node.context.machine.queue.spaces[WORKQ].external_ids
    assert client.port.take() == ended(1, b"r")


def test_a_run_whose_job_somebody_deletes(scene: Scene, client: Client) -> None:
    assert client.ask(RUN) == b""
    assert Client(scene).ask(b"delete %b\r\n" % JOB) == OK
    assert client.port.take() == NOT_FOUND


# --- lease ----------------------------------------------------------------------------------------


def with_rights(*names: bytes) -> c.Command:
    """Return the command that leaves clients without a token their rights in these queues only."""
    queues = [SPACES[WORKQ].prefix + name for name in names]
    packed = msgpack.packb([(queue, 15) for queue in queues])
    return c.SET_USER, OTHERS, ANONYMOUS, packed, 0, 0, 0


def add_users(scene: Scene, *names: bytes) -> None:
    """Make a user of everything at the other node, and leave other clients these queues."""
    root = msgpack.packb([(EVERYWHERE, 15)])
    scene.others(
        (c.SET_USER, OTHERS, b"root", root, 0, 0, 0), (c.SET_TOKEN, OTHERS, b"root", b"r" * 32, 1)
    )
    scene.others((c.AS_USER, OTHERS, b"root", b"r" * 32), with_rights(*names))


def test_a_lease_that_waits_is_told_when_its_right_ends(scene: Scene, client: Client) -> None:
    add_users(scene, b"q", b"r")
    assert client.ask(b"lease q r 60000\r\n") == b""
    scene.others(with_rights(b"q"))
    assert client.port.take() == replies.DENIED
    scene.after(61 * SECOND)
    assert client.port.take() == b""
    assert client.ask(b"lease q r 60000\r\n") == replies.DENIED
    assert client.ask(b"lease q 1\r\n") == b""
    scene.after(50 * MS)
    assert client.port.take() == TIMEOUT
    assert scene.node.clients.auth_refused["no_right"] == 2


def test_a_lease_whose_right_ends_before_its_watch_is_told_once(
    scene: Scene, client: Client
) -> None:
    """Life 90437: a second refusal would be taken for the reply to the next request."""
    add_users(scene, b"q", b"r")
    assert client.ask(b"lease q 0\r\n") == TIMEOUT
    assert client.send(b"lease q r 60000\r\n") == b""
    scene.commit_own(with_rights(b"q"), is_own_later=True)
    wait = client.connection.wait
    assert wait is not None and wait.ending
    # A leader that has applied more than this node answers before this node knows why.
    scene.node.origin._waits.none(client.connection.number, wait.request, 0)
    scene.run()
    assert client.port.take() == replies.DENIED
    scene.commit_own()
    assert client.port.take() == b""
    assert client.port.closed, "it watches less than it believes"
