"""The graceful stop: connections closed at once, connections waited for, and the end of waiting."""

import pytest

from beanpole import commands as c
from tests.unit.node.settling import settle
from tests.unit.node.stage import SECOND, Port, Stage

KEEP = b"keep abcdefghijklmnopqrstuv 60\r\n"
TAKE = b"put 1 0 60 1\r\nx\r\nreserve\r\n"


@pytest.fixture
def stage() -> Stage:
    """Return a serving leader at the newest version, without a peer that could take over."""
    stage = Stage()
    stage.lead()
    stage.come_up()
    stage.node.leader.term.commands.append((c.RAISE, c.MACHINE_VERSION))
    stage.pass_us(20_000)
    stage.commit()
    assert stage.node.context.machine.version == c.MACHINE_VERSION
    return stage


def served(stage: Stage, *sent: bytes) -> Port:
    """Return a client of beanstalk, and its port."""
    connection, port = stage.client(b"")
    for data in sent:
        connection.received(data)
        stage.run()
        settle(stage)
    return port


def pass_quietly(stage: Stage, us: int) -> None:
    """Let time pass, and commit all proposals meanwhile."""
    for _ in range(us // 100_000):
        stage.pass_us(100_000)
        settle(stage)


def test_those_that_hold_nothing_are_closed_and_the_others_finish(stage: Stage) -> None:
    idle, waiting = (
        served(stage, b"use a\r\n"),
        served(stage, b"watch b\r\n", b"ignore default\r\n"),
    )
    connection, worker = stage.client(b"")
    connection.received(TAKE)
    stage.run()
    settle(stage)
    assert worker.take().endswith(b"RESERVED 1 1\r\nx\r\n")
    stage.node.stopping.stop()
    pass_quietly(stage, 300_000)
    assert not stage.host.clients_open
    assert idle.closed and waiting.closed and not worker.closed
    assert stage.node.condition.state == "stopping"
    assert stage.node.condition.waits_for() == "waiting for 1 client to finish their jobs"
    connection.received(b"put 1 0 60 1\r\ny\r\ndelete 1\r\n")
    stage.run()
    settle(stage)
    assert worker.take() == b"INSERTED 2\r\nDELETED\r\n"
    # It gets no other job, although one is ready.
    connection.received(b"reserve-with-timeout 0\r\n")
    pass_quietly(stage, 500_000)
    assert worker.closed and worker.take() == b""
    assert stage.host.lines[-2:] == ["stopped", "exit"]
    assert stage.node.context.machine.queue.ready == 1


def test_who_gets_free_late_is_closed_at_once(stage: Stage) -> None:
    """A Gearman worker would otherwise sleep next to a ready job until the node stops."""
    first, _ = stage.client(b"put 1 0 60 1\r\nx\r\n")
    second, _ = stage.client(b"put 1 0 60 1\r\nx\r\n")
    stage.node.stopping.stop()
    stage.pass_us(300_000)  # nothing is committed: both wait for replies, and hold no job
    settle(stage)
    second.received(b"put 1 0 60 1\r\nx\r\n")
    stage.run()
    stage.pass_us(200_000)
    assert first.closed and not second.closed
    pass_quietly(stage, 500_000)
    assert second.closed and stage.host.lines[-1] == "exit"


def test_the_limit_ends_it(stage: Stage) -> None:
    worker = served(stage, TAKE)
    stage.node.stopping.stop()
    pass_quietly(stage, 9_500_000)
    assert not worker.closed
    pass_quietly(stage, 1_500_000)
    assert worker.closed
    assert stage.host.lines[-1] == "exit"
    assert "the time to drain is over: the jobs of 1 client go to others" in stage.host.lines


def test_the_second_signal_ends_it(stage: Stage) -> None:
    worker = served(stage, TAKE)
    stage.node.stopping.stop()
    pass_quietly(stage, 300_000)
    assert not worker.closed
    stage.node.stopping.stop()
    pass_quietly(stage, 500_000)
    assert worker.closed and stage.host.lines[-1] == "exit"


def test_a_second_signal_during_the_hand_over_ends_the_wait_before_it_begins(stage: Stage) -> None:
    worker = served(stage, TAKE)
    stage.node.stopping.stop()
    for _ in range(2):
        stage.node.stopping.stop()
    pass_quietly(stage, 800_000)
    assert worker.closed and stage.host.lines[-1] == "exit"
    assert stage.host.lines.count("told again to stop: it will wait for no client") == 1


def test_each_order_to_stop_is_announced(stage: Stage) -> None:
    announced: list[str] = []
    stage.node.stopping.announce = lambda: announced.append("stop")
    served(stage, TAKE)
    stage.node.clients.stop()  # the order of a client: gearmand's `shutdown`
    pass_quietly(stage, 300_000)
    stage.node.stopping.stop()
    assert announced == ["stop", "stop"]


def test_a_kept_session_goes_on_elsewhere(stage: Stage) -> None:
    worker = served(stage, KEEP, TAKE)
    assert worker.take() == b"KEPT\r\nINSERTED 1\r\nRESERVED 1 1\r\nx\r\n"
    stage.node.stopping.stop()
    pass_quietly(stage, SECOND)
    assert worker.closed and stage.host.lines[-1] == "exit"
    # The session is detached, with its job.
    assert stage.node.context.machine.queue.reserved == 1


def test_a_job_on_its_way_is_waited_for(stage: Stage) -> None:
    """Its worker did not hold it when the stop began, but still finishes it."""
    connection, worker = stage.client(b"put 1 0 60 1\r\nx\r\n")
    settle(stage)
    connection.received(b"reserve-job 1\r\n")
    stage.run()
    stage.node.stopping.stop()
    stage.pass_us(500_000)  # nothing is committed
    pass_quietly(stage, 500_000)
    assert worker.take().endswith(b"RESERVED 1 1\r\nx\r\n") and not worker.closed
    connection.received(b"delete 1\r\n")
    stage.run()
    pass_quietly(stage, 500_000)
    assert worker.take() == b"DELETED\r\n" and worker.closed


def test_an_election_ends_no_drain(stage: Stage) -> None:
    worker = served(stage, TAKE)
    stage.node.stopping.stop()
    pass_quietly(stage, 300_000)
    stage.become("follower", None, 2)
    stage.pass_us(1_000_000)
    stage.become("leader", stage.node.context.name, 3)
    pass_quietly(stage, 500_000)
    assert not worker.closed


def test_nobody_is_waited_for_without_a_majority(stage: Stage) -> None:
    worker = served(stage, TAKE)
    stage.become("follower", None, 2)
    stage.node.stopping.stop()
    stage.pass_us(3 * SECOND)
    assert worker.closed and stage.host.lines[-1] == "exit"
    words = "no answer of a majority for 2 s: the jobs of 1 client go to others"
    assert words in stage.host.lines


def test_who_holds_a_job_gets_no_other(stage: Stage) -> None:
    """Its reserves time out: at once if they may not wait, otherwise at their deadlines."""
    producer, _ = stage.client(b"put 1 0 60 1\r\ny\r\n")
    connection, worker = stage.client(b"")
    connection.received(TAKE)
    stage.run()
    settle(stage)
    taken = worker.take()
    stage.node.stopping.stop()
    pass_quietly(stage, 300_000)
    assert taken.endswith(b"RESERVED 1 1\r\ny\r\n") and producer.closed
    # Jobs 2 and 3 stay ready.
    connection.received(b"put 1 0 60 1\r\nz\r\n" + b"reserve-with-timeout 0\r\n" * 3)
    pass_quietly(stage, 100_000)
    assert worker.take() == b"INSERTED 3\r\n" + b"TIMED_OUT\r\n" * 3
    connection.received(b"reserve-with-timeout 2\r\nlist-tube-used\r\n")
    pass_quietly(stage, 1_900_000)
    assert worker.take() == b""
    pass_quietly(stage, 200_000)
    assert worker.take() == b"TIMED_OUT\r\nUSING default\r\n"
    connection.received(b"delete 1\r\n")
    pass_quietly(stage, 500_000)
    assert worker.closed and stage.host.lines[-1] == "exit"
    assert stage.node.context.machine.queue.ready == 2


def test_a_wait_of_a_holder_is_taken_back(stage: Stage) -> None:
    """It began before the stop, and ends as if there were no job."""
    connection, worker = stage.client(b"")
    connection.received(b"put 1 0 4 1\r\nx\r\nreserve\r\n")
    stage.run()
    settle(stage)
    assert worker.take() == b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\n"
    other, maker = stage.client(b"put 1 0 60 1\r\nx\r\nreserve\r\n")
    settle(stage)
    connection.received(b"reserve-with-timeout 60\r\n")
    stage.run()
    stage.node.stopping.stop()
    pass_quietly(stage, 300_000)
    # If the leader still had the wait, this put would end it.
    other.received(b"put 1 0 60 1\r\nz\r\n")
    pass_quietly(stage, 300_000)
    assert maker.take().endswith(b"INSERTED 3\r\n")
    assert worker.take() == b""
    pass_quietly(stage, 3_000_000)
    assert worker.take() == b"DEADLINE_SOON\r\n"
    assert stage.node.context.machine.queue.ready == 1
