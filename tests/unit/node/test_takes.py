"""Pipelined reserves take all ready jobs in one entry; the remaining ones wait."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.constants import JOB_SIZE_DEFAULT_BYTES
from beanpole.protocol.beanstalk import requests as r
from beanpoled.config.settings import MIB
from beanpoled.frontends.beanstalk import takes
from beanpoled.frontends.beanstalk.connection import BeanstalkConnection
from tests.unit.node.settling import settle
from tests.unit.node.stage import SECOND, Port, Stage, put

RESERVE = b"reserve\r\n"


def reserved(*jobs: int) -> bytes:
    """Return the replies with these jobs."""
    return b"".join(b"RESERVED %d 1\r\nx\r\n" % job for job in jobs)


def commands(stage: Stage) -> list[int]:
    """Return the operations of clients that are proposed and not committed."""
    return [
        command[0]
        for entry in stage.replica.proposed
        for origin, _, _, section in c.decode_entry(entry)[3]
        if origin != c.LEADER
        for command in section
    ]


def raised(**overrides: Any) -> Stage:
    """Return a serving leader at version 3; n1 has a session that puts."""
    stage = Stage(**overrides)
    stage.lead()
    stage.come_up()
    stage.node.leader.term.commands.append((c.RAISE, 3))
    stage.batch("n1", 1, (c.OPEN, 1), first=True)
    stage.commit()
    return stage


@pytest.fixture
def stage() -> Stage:
    return raised()


def fill(stage: Stage, count: int) -> None:
    """Put ready jobs, without a GRANT in between."""
    number = stage.node.context.machine.origins[1].next_number
    stage.batch("n1", number, *([put()] * count))
    stage.commit()


def client(stage: Stage) -> tuple[BeanstalkConnection, Port]:
    """Connect a client whose session is applied."""
    connection, port = stage.client(b"watch default\r\n")
    settle(stage)
    port.take()
    return connection, port


def test_each_reserve_of_a_row_has_a_job_after_one_commit(stage: Stage) -> None:
    fill(stage, 5)
    connection, port = client(stage)
    connection.received(4 * RESERVE + b"reserve-with-timeout 0\r\n")
    stage.run()
    assert commands(stage) == [c.TAKE] * 5
    stage.commit(1)
    assert port.take() == reserved(1, 2, 3, 4, 5)
    assert connection.is_worker and not connection.blocked


def test_what_stands_behind_is_not_looked_at_before(stage: Stage) -> None:
    fill(stage, 2)
    connection, port = client(stage)
    connection.received(2 * RESERVE + b"delete 1\r\nput 0 0 60 1\r\ny\r\nstats-tube x\r\n")
    stage.run()
    assert commands(stage) == [c.TAKE] * 2
    stage.commit(1)
    assert commands(stage) == [c.DELETE, c.PUT, c.STATS_TUBE]
    stage.commit()
    assert port.take() == reserved(1, 2) + b"DELETED\r\nINSERTED 3\r\nNOT_FOUND\r\n"


def test_what_stands_before_is_answered_before(stage: Stage) -> None:
    fill(stage, 2)
    connection, port = client(stage)
    connection.received(b"peek 1\r\nuse default\r\n" + 2 * RESERVE + b"nonsense\r\n")
    stage.run()
    settle(stage)
    found = b"FOUND 1 1\r\nx\r\nUSING default\r\n"
    assert port.take() == found + reserved(1, 2) + b"UNKNOWN_COMMAND\r\n"


def test_no_more_are_taken_than_jobs_are_ready(stage: Stage) -> None:
    fill(stage, 3)
    connection, port = client(stage)
    connection.received(5 * RESERVE + b"delete 1\r\n")
    stage.run()
    assert commands(stage) == [c.TAKE] * 3
    stage.commit(1)
    assert port.take() == reserved(1, 2, 3)
    assert connection.wait is not None, "the fourth waits in line"
    fill(stage, 1)
    settle(stage)
    assert port.take() == reserved(4)
    fill(stage, 1)
    settle(stage)
    assert port.take() == reserved(5) + b"DELETED\r\n"


def test_one_reserve_or_one_job_is_a_wait_as_ever(stage: Stage) -> None:
    fill(stage, 1)
    connection, port = client(stage)
    connection.received(2 * RESERVE)
    stage.run()
    assert commands(stage) == []
    settle(stage)
    assert port.take() == reserved(1)
    fill(stage, 4)
    settle(stage)
    assert port.take() == reserved(2)
    connection.received(RESERVE)
    stage.run()
    assert commands(stage) == []
    settle(stage)
    assert port.take() == reserved(3)


def test_at_version_2_each_waits() -> None:
    stage = Stage()
    stage.lead()
    stage.come_up()
    stage.batch("n1", 1, (c.OPEN, 1), first=True)
    stage.commit()
    fill(stage, 3)
    connection, port = client(stage)
    connection.received(3 * RESERVE)
    stage.run()
    assert commands(stage) == []
    settle(stage)
    assert port.take() == reserved(1, 2, 3)


def test_jobs_that_others_took_first_are_waited_for(stage: Stage) -> None:
    """The oldest reserves get the jobs; the timeout of the next one began when it arrived."""
    fill(stage, 3)
    connection, port = client(stage)
    other, other_port = client(stage)
    other.received(2 * RESERVE)
    connection.received(b"reserve-with-timeout 9\r\nreserve-with-timeout 2\r\n" + RESERVE)
    stage.run()
    assert commands(stage) == [c.TAKE] * 5
    stage.pass_us(SECOND // 2)
    stage.commit(1)
    assert other_port.take() == reserved(1, 2)
    assert port.take() == reserved(3)
    stage.pass_us(SECOND)
    settle(stage)
    assert port.take() == b""
    stage.pass_us(SECOND // 2)
    settle(stage)
    assert port.take() == b"TIMED_OUT\r\n"
    stage.pass_us(5 * SECOND)
    settle(stage)
    assert port.take() == b"", "the third one has no time-out"
    assert connection.is_waiting
    fill(stage, 1)
    settle(stage)
    assert port.take() == reserved(4)


def test_the_first_that_got_none_is_no_take_again(stage: Stage) -> None:
    """It waits in line like the others, however many jobs become ready meanwhile."""
    fill(stage, 2)
    connection, port = client(stage)
    other, other_port = client(stage)
    other.received(2 * RESERVE)
    connection.received(3 * RESERVE)
    stage.run()
    number = stage.node.context.machine.origins[1].next_number
    stage.batch("n1", number, *([put()] * 4))
    stage.commit(1)
    assert other_port.take() == reserved(1, 2)
    settle(stage)
    assert port.take() == reserved(3, 4, 5)


def test_requests_are_counted_when_they_are_acted_on(stage: Stage) -> None:
    fill(stage, 2)
    connection, _ = client(stage)
    other, _ = client(stage)
    before = list(connection._counts)
    other.received(2 * RESERVE)
    connection.received(2 * RESERVE + b"delete 9\r\n")
    stage.run()
    stage.commit(1)
    counts = [now - then for now, then in zip(connection._counts, before, strict=True)]
    assert (counts[r.RESERVE], counts[r.DELETE]) == (3, 0), "one of them waits, one comes later"


@pytest.mark.parametrize("how", ["lost", "half_closed"])
def test_a_client_that_is_gone_leaves_no_job_behind(stage: Stage, how: str) -> None:
    fill(stage, 4)
    connection, port = client(stage)
    connection.received(3 * RESERVE)
    stage.run()
    getattr(connection, how)()
    settle(stage)
    queue = stage.node.context.machine.queue
    assert (queue.ready, queue.reserved) == (4, 0)
    assert port.take() == (b"" if how == "lost" else reserved(1, 2, 3))
    assert connection.closed


def test_after_the_end_of_sending_those_without_a_job_are_told(stage: Stage) -> None:
    fill(stage, 2)
    connection, port = client(stage)
    connection.received(3 * RESERVE + b"put 0 9 60 1\r\nx\r\n")
    connection.half_closed()
    stage.run()
    settle(stage)
    assert port.take() == reserved(1, 2) + b"TIMED_OUT\r\nINSERTED 3\r\n"
    assert connection.closed


def test_takes_that_were_never_sent_wait_instead(stage: Stage) -> None:
    """No leader received them, so they certainly had no effect."""
    fill(stage, 3)
    connection, port = client(stage)
    stage.become("follower", None, 2)
    connection.received(2 * RESERVE + b"reserve-with-timeout 1\r\n")
    stage.run()
    stage.pass_us((stage.node.context.config.command_timeout_ms + 200) * 1000)
    assert port.take() == b"" and not connection.closed
    assert connection.wait is not None
    stage.become("leader", "n0", 3)
    settle(stage)
    assert port.take() == reserved(1, 2, 3)


def test_takes_of_which_nobody_knows_end_the_connection(stage: Stage) -> None:
    fill(stage, 3)
    connection, port = client(stage)
    connection.received(2 * RESERVE)
    stage.run()
    assert commands(stage) == [c.TAKE] * 2
    stage.pass_us((stage.node.context.config.command_timeout_ms + 200) * 1000)
    assert connection.closed and port.closed
    settle(stage)
    assert port.take() == b""
    queue = stage.node.context.machine.queue
    assert (queue.ready, queue.reserved) == (3, 0)


def test_bodies_are_taken_in_bounded_portions() -> None:
    stage = raised(client_output_bytes_max=2 * JOB_SIZE_DEFAULT_BYTES + 1)
    fill(stage, 6)
    connection, port = client(stage)
    connection.received(6 * RESERVE)
    stage.run()
    assert commands(stage) == [c.TAKE] * 2
    settle(stage)
    assert port.take() == reserved(1, 2, 3, 4, 5, 6)


def test_what_is_written_is_not_owed_while_the_next_reserve_waits() -> None:
    """A reserve always waited in a long pipeline, and after some large replies TAKEs ended."""
    stage = raised(client_output_bytes_max=3 * JOB_SIZE_DEFAULT_BYTES)
    fill(stage, 5)
    connection, port = client(stage)
    connection.received(2 * b"peek 1\r\n" + 5 * RESERVE)
    stage.run()
    stage.commit(1)
    assert port.take() == 2 * b"FOUND 1 1\r\nx\r\n"
    assert connection.wait is not None, "there was room for one large reply"
    while connection.wait is not None:
        stage.commit(1)
    assert commands(stage) == [c.TAKE] * 3
    settle(stage)
    assert port.take() == reserved(1, 2, 3, 4, 5)


def test_a_row_is_bounded(stage: Stage) -> None:
    fill(stage, takes.TAKES_MAX + 3)
    connection, port = client(stage)
    connection.received((takes.TAKES_MAX + 2) * RESERVE)
    stage.run()
    assert commands(stage) == [c.TAKE] * takes.TAKES_MAX
    stage.commit(1)
    assert commands(stage) == [c.TAKE] * 2
    stage.commit(1)
    assert port.take() == reserved(*range(1, takes.TAKES_MAX + 3))
    assert takes.TAKES_MAX * JOB_SIZE_DEFAULT_BYTES <= 8 * MIB


def test_a_long_list_of_watched_tubes_makes_rows_short(stage: Stage) -> None:
    fill(stage, 9)
    connection, port = client(stage)
    connection.received(b"".join(b"watch t%d\r\n" % tube for tube in range(99)))
    settle(stage)
    port.take()
    connection.received(9 * RESERVE)
    stage.run()
    assert commands(stage) == [c.TAKE] * 2


def test_a_paused_tube_has_nothing_to_take(stage: Stage) -> None:
    fill(stage, 3)
    connection, _ = client(stage)
    connection.received(b"pause-tube default 9\r\n")
    settle(stage)
    connection.received(3 * RESERVE)
    stage.run()
    assert commands(stage) == []
    assert connection.wait is not None
