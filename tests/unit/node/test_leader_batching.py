"""Clients for which the leader delays its next entry, and clients for which it does not."""

import pytest

from beanpole import commands as c
from beanpoled.leading.proposing import ENTRY_FULL_BYTES
from beanpoled.links import frames
from tests.unit.node.stage import DEFAULT, MEMBERS, Stage, leading, put, ready


@pytest.fixture
def stage() -> Stage:
    return leading()


def answered(stage: Stage, flight_us: int = 400) -> None:
    """Commit an entry of nine commands of two nodes."""
    for number, peer in enumerate(MEMBERS[1:] * 2):
        stage.batch(peer, 2 + number // 2, *[put()] * 3)
    stage.commit(1)
    commit(stage, flight_us)


def commit(stage: Stage, flight_us: int = 400) -> None:
    """Report the entry in flight as committed after the given time, and then apply it."""
    (entry,) = stage.replica.proposed
    stage.replica.proposed.clear()
    stage.host.us += flight_us
    stage.node.context.read_clock()
    stage.node.callbacks.committed()
    stage.apply(entry)
    stage.run()


def leaves_after_a_millisecond(stage: Stage) -> None:
    """Assert that the waiting batches are proposed after a millisecond, and not before."""
    stage.pass_us(900, step_us=100)
    assert stage.replica.proposed == []
    stage.pass_us(100, step_us=100)
    assert len(stage.replica.proposed) == 1


def test_a_client_that_was_answered_is_waited_for(stage: Stage) -> None:
    answered(stage)
    stage.batch("n1", 4, *[put()] * 4)
    assert stage.replica.proposed == []
    stage.batch("n2", 4, *[put()] * 5)
    (entry,) = stage.replica.proposed
    assert [section[:3] for section in c.decode_entry(entry)[3]] == [(1, 1, 4), (2, 1, 4)]
    stage.commit()
    assert ready(stage) == 21


def test_clients_of_the_leader_are_waited_for_as_well(stage: Stage) -> None:
    stage.come_up()
    answered(stage)
    stage.batch("n1", 4, *[put()] * 6)
    for count in (7, 8, 9):
        assert stage.replica.proposed == [], count
        stage.client(b"put 0 0 60 1\r\nx\r\n")
        stage.run()
    assert len(stage.replica.proposed) == 1


def test_what_comes_while_others_are_waited_for_brings_no_turn(stage: Stage) -> None:
    answered(stage)
    payload = c.pack_commands([put()])
    stage.node.router.receive(
        "n1", frames.BATCH, frames.encode_batch(1, 1, 4, False, 1, b"", payload)
    )
    assert stage.host.soon == []
    stage.node.router.receive(
        "n1", frames.BATCH, frames.encode_batch(1, 1, 5, False, 8, b"", payload)
    )
    assert stage.host.soon != []


def test_a_client_that_comes_back_with_a_wait_has_come_back(stage: Stage) -> None:
    """No job is ready for it, so its wait is in no entry; the producer is not delayed for it."""
    stage.items("n2", frames.WAITS, (1, 1, 1))
    stage.batch("n1", 2, put(), hint={DEFAULT: 1})
    commit(stage)
    assert ready(stage) == 0
    stage.items("n2", frames.WAITS, (1, 2, 1))
    assert stage.replica.proposed == []
    stage.batch("n1", 3, put(), hint={DEFAULT: 1})
    assert len(stage.replica.proposed) == 1


def test_a_commit_that_is_applied_in_steps_forgets_no_client_that_came_back(stage: Stage) -> None:
    other = put(tube=b"other")
    stage.batch("n1", 2, *[other] * 3)
    commit(stage)
    stage.items("n2", frames.WAITS, (1, 1, 1))  # no job is ready for it
    stage.node.context.wake()
    stage.run()
    assert len(stage.node.leader.line) == 1
    stage.node.callbacks.committed()  # the next step of the same commit
    stage.batch("n1", 3, other)
    assert stage.replica.proposed == []
    stage.batch("n1", 4, other)
    assert len(stage.replica.proposed) == 1


def test_a_session_that_opens_is_no_client_that_comes_back(stage: Stage) -> None:
    stage.come_up()
    connection, port = stage.client(b"put 0 0 60 1\r\nx\r\n")
    commit(stage)
    assert port.take().startswith(b"INSERTED")
    connection.received(b"put 0 0 60 1\r\nx\r\n")
    stage.run()
    assert len(stage.replica.proposed) == 1


def test_a_client_that_does_not_come_back_holds_nothing_up(stage: Stage) -> None:
    answered(stage)
    stage.batch("n1", 4, put())
    leaves_after_a_millisecond(stage)


def test_a_long_wait_that_ended_well_hides_no_shorter_one(stage: Stage) -> None:
    answered(stage, flight_us=4000)
    stage.batch("n1", 4, *[put()] * 9)
    commit(stage)
    stage.batch("n1", 5, put())
    leaves_after_a_millisecond(stage)


def test_a_short_wait_lasts_as_long_as_a_timer_can(stage: Stage) -> None:
    answered(stage, flight_us=80)
    stage.batch("n1", 4, put())
    leaves_after_a_millisecond(stage)


@pytest.mark.parametrize("place", ["a member", "the leader"])
def test_large_bodies_wait_for_nobody(stage: Stage, place: str) -> None:
    stage.come_up()
    answered(stage)
    if place == "a member":
        stage.batch("n1", 4, put(body=bytes(ENTRY_FULL_BYTES)))
    else:
        head = b"put 0 0 60 %d\r\n" % (ENTRY_FULL_BYTES - 1)
        stage.client(head + bytes(ENTRY_FULL_BYTES - 1) + b"\r\n")
    assert len(stage.replica.proposed) == 1


def test_a_lost_term_leaves_nothing_that_waits(stage: Stage) -> None:
    answered(stage)
    stage.batch("n1", 4, *[put()] * 3)
    alarms = [timer for timer in stage.host.timers if timer.due_us == stage.host.us + 1000]
    assert [alarm.cancelled for alarm in alarms] == [False]
    stage.become("follower", "n1", 2)
    assert [alarm.cancelled for alarm in alarms] == [True]
    stage.become("leader", "n0", 3)
    stage.commit()
    stage.batch("n1", 4, *[put()] * 9, first=True)
    commit(stage)
    stage.batch("n1", 5, *[put()] * 8)
    assert stage.replica.proposed == []
    stage.batch("n1", 6, put())
    assert len(stage.replica.proposed) == 1
