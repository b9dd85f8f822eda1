"""NONE: when the leader says that there was no job, and which due timers take effect first."""

import pytest

from beanpole import commands as c
from beanpoled.leading import unwaits
from beanpoled.leading.proposing import TICK_GRAIN_US
from beanpoled.links import frames
from tests.unit.node.stage import DEFAULT, SECOND, Stage, grants, leading, put, ready


@pytest.fixture
def stage() -> Stage:
    return leading()


def confirm(stage: Stage) -> None:
    """Let a majority confirm that this node leads."""
    confirmations, stage.replica.confirmations = stage.replica.confirmations, []
    for done in confirmations:
        done()
    stage.run()


def test_none_is_said_after_a_majority_confirmed(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.items("n1", frames.UNWAITS, (1, 1))
    assert stage.sent(frames.NONES) == []
    confirm(stage)
    (frame,) = stage.sent(frames.NONES, "n1")
    until_us = stage.node.context.clock.estimate_us(stage.node.context.now_us)
    assert frames.decode_items(frame, 3) == (1, 1, [(1, 1, until_us)])
    assert len(stage.node.leader.line) == 0


def test_none_is_said_again_if_the_link_is_full(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1), (2, 1, 1))
    stage.items("n1", frames.UNWAITS, (1, 1), (2, 1))
    stage.host.takes = False
    confirm(stage)
    assert len(stage.node.leader.line) == 2
    stage.host.takes = True
    assert stage.sent(frames.NONES, "n1") == []
    confirm(stage)
    (frame,) = stage.sent(frames.NONES, "n1")
    assert [item[0] for item in frames.decode_items(frame, 3)[2]] == [1, 2]
    assert len(stage.node.leader.line) == 0


@pytest.mark.constants
def test_many_waits_that_end_at_once_end_in_several_turns(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwaits, "LOOKS_PER_TURN_MAX", 2)
    stage.items("n1", frames.WAITS, *[(session, 1, 1) for session in (1, 2, 3)])
    stage.items("n1", frames.UNWAITS, *[(session, 1) for session in (1, 2, 3)])
    for left in (1, 0):
        confirm(stage)
        assert len(stage.node.leader.line) == left


def test_none_is_not_said_with_what_was_committed_but_not_applied(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.replica.commit_index += 1
    stage.items("n1", frames.UNWAITS, (1, 1))
    confirm(stage)
    assert stage.sent(frames.NONES) == []
    stage.replica.applied_index = stage.replica.commit_index
    confirm(stage)
    assert stage.sent(frames.NONES) != []


def test_none_is_not_said_while_its_grant_is_in_flight(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.batch("n2", 2, put(), hint={DEFAULT: 1})
    stage.items("n1", frames.UNWAITS, (1, 1))
    confirm(stage)
    assert stage.sent(frames.NONES) == []
    stage.commit()
    confirm(stage)
    assert stage.sent(frames.NONES) == []  # it has reserved the job


def test_none_is_not_said_beside_a_job_that_is_promised_to_another(stage: Stage) -> None:
    stage.batch("n2", 2, put())
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 1))
    assert grants(stage) == [(1, 1, 1)]
    stage.items("n1", frames.WAITS, (2, 1, 1))
    stage.items("n1", frames.UNWAITS, (2, 1))
    confirm(stage)
    assert stage.sent(frames.NONES) == []
    stage.commit()
    confirm(stage)
    assert stage.sent(frames.NONES) != []


def delayed(session: int = 1, tube: bytes = DEFAULT) -> c.Command:
    """Return a PUT of a job that is ready after a second."""
    return (c.PUT, session, tube, 0, 1, 60, b"x")


def test_none_is_not_said_before_what_is_due_by_then(stage: Stage) -> None:
    """The tick grain would delay the job's entry, to share it with other timers."""
    stage.come_up()
    stage.pass_us(13_456)
    stage.batch("n2", 2, delayed())
    stage.commit()
    due_us = stage.node.context.machine.queue.now_us + SECOND
    assert due_us % TICK_GRAIN_US, "it would have its entry now in any case"
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.pass_us(SECOND)
    assert stage.replica.proposed == []
    stage.items("n1", frames.UNWAITS, (1, 1))
    confirm(stage)
    assert stage.sent(frames.NONES) == []
    stage.commit(1)
    assert ready(stage) == 1
    confirm(stage)
    assert stage.sent(frames.NONES) == []
    assert grants(stage) == [(1, 1, 1)]


def test_what_is_due_in_other_tubes_delays_nobody_and_writes_nothing(stage: Stage) -> None:
    stage.come_up()
    stage.pass_us(13_456)
    stage.batch("n2", 2, delayed(tube=b"other"))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.pass_us(SECOND)
    stage.items("n1", frames.UNWAITS, (1, 1))
    confirm(stage)
    assert stage.sent(frames.NONES) != []
    assert stage.replica.proposed == []


def test_a_wait_ends_although_something_is_always_due(stage: Stage) -> None:
    """Timers due after its end do not delay it: otherwise it would never end."""
    stage.batch("n2", 2, (c.PUT, 1, DEFAULT, 0, 60, 60, b"x"))
    stage.commit()
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.items("n1", frames.UNWAITS, (1, 1))
    stage.batch("n2", 3, delayed(tube=b"other"))
    stage.commit()
    stage.pass_us(2 * SECOND)  # due by now, but not when the client wanted to stop waiting
    assert stage.replica.proposed, "a TICK is on its way"
    confirm(stage)
    assert stage.sent(frames.NONES) != []


def test_none_of_an_earlier_term_is_not_said(stage: Stage) -> None:
    stage.items("n1", frames.WAITS, (1, 1, 1))
    stage.items("n1", frames.UNWAITS, (1, 1))
    stage.become("follower", "n1", 2)
    confirm(stage)
    assert stage.sent(frames.NONES) == []
