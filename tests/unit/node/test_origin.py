"""The outbox of a node: numbers, sending again, giving up, and what a snapshot leaves unknown."""

import pytest

from beanpole import commands as c
from beanpole.core.machine import Machine
from beanpoled import frames
from tests.unit.node.stage import Stage

PUT = b"put 0 0 60 1\r\nx\r\n"


@pytest.fixture
def stage() -> Stage:
    """A follower whose NODE_UP is applied, with an empty outbox."""
    stage = Stage(fence_timeout_ms=20_000, node_timeout_ms=30_000)
    stage.follow()
    stage.node.lifecycle._begin_incarnation()
    stage.run()
    stage.apply_sections((0, 1, 1, ()))
    assert stage.node.origin.up
    stage.sent(frames.BATCH)
    return stage


def numbers(stage: Stage) -> list[tuple[int, bool]]:
    """(number, first) of the batches that were sent since the last look."""
    return [
        (decoded[2], decoded[3])
        for decoded in map(frames.decode_batch, stage.sent(frames.BATCH, "n1"))
    ]


# --- sending --------------------------------------------------------------------------------------


def test_a_command_is_answered_when_its_batch_is_applied_here(stage: Stage) -> None:
    _, port = stage.client(PUT)
    (frame,) = stage.sent(frames.BATCH, "n1")
    term, incarnation, number, _, _, hint, payload = frames.decode_batch(frame)
    assert (term, incarnation, number) == (1, 1, 2)
    assert frames.unpack_hint(hint) == {b"default": 1}
    commands = c.unpack_commands(payload)
    assert commands == ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))
    assert port.output == b""
    stage.apply_sections((0, 1, 2, commands))
    assert port.output == b"INSERTED 1\r\n"
    assert stage.node.origin.bytes == 0
    assert stage.node.origin.is_idle()


def test_what_is_applied_twice_is_answered_once(stage: Stage) -> None:
    _, port = stage.client(PUT)
    commands = ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))
    stage.apply_sections((0, 1, 2, commands), (0, 1, 2, commands))
    stage.apply_sections((0, 1, 2, commands))
    assert port.output == b"INSERTED 1\r\n"


@pytest.mark.parametrize("why", ["link", "term", "gap"])
def test_everything_unapplied_is_sent_again(stage: Stage, why: str) -> None:
    stage.client(PUT)
    assert numbers(stage) == [(2, False)]
    if why == "link":
        stage.node.peer_down("n1")
        stage.node.peer_up("n1")
    elif why == "term":
        stage.become("follower", "n1", 2)
    else:
        stage.apply_sections((0, 1, 3, ()))
    stage.run()
    assert numbers(stage) == [(2, True)]


def test_a_full_link_is_tried_again(stage: Stage) -> None:
    stage.host.takes = False
    stage.client(PUT)
    assert numbers(stage) == []
    stage.host.takes = True
    stage.pass_us(20_000)
    assert numbers(stage) == [(2, True)]


def test_waits_and_their_ends_come_again_on_a_new_link(stage: Stage) -> None:
    stage.client(b"reserve-with-timeout 1\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.pass_us(1_100_000)
    stage.sent(frames.WAITS)
    stage.sent(frames.UNWAITS)
    stage.node.peer_down("n1")
    stage.node.peer_up("n1")
    stage.run()
    assert frames.decode_items(stage.sent(frames.WAITS)[0], 3)[2] == [(1, 1, 2)]
    assert frames.decode_items(stage.sent(frames.UNWAITS)[0], 2)[2] == [(1, 1)]


def test_a_job_for_nobody_is_returned(stage: Stage) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    connection.lost()
    stage.run()
    stage.sent(frames.BATCH)
    stage.apply_sections(
        (1, 1, 1, ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))),
        (c.LEADER, 0, 0, ((c.GRANT, 0, 1, 1, 1, 0),)),
        (0, 1, 3, ((c.CLOSE, 1, 1),)),
    )
    commands = c.unpack_commands(frames.decode_batch(stage.sent(frames.BATCH, "n1")[0])[6])
    assert commands == ((c.RETURN, 1, 1),)


def test_only_the_present_leader_ends_a_wait_without_a_job(stage: Stage) -> None:
    _, port = stage.client(b"reserve-with-timeout 0\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.pass_us(20_000)
    for peer, term, incarnation, item in [
        ("n2", 1, 1, (1, 1)),
        ("n1", 2, 1, (1, 1)),
        ("n1", 1, 2, (1, 1)),
        ("n1", 1, 1, (1, 2)),
        ("n1", 1, 1, (2, 1)),
    ]:
        stage.node.peer_frame(peer, frames.NONES, frames.encode_items(term, incarnation, [item]))
        stage.run()
        assert port.output == b""
    stage.node.peer_frame("n1", frames.NONES, frames.encode_items(1, 1, [(1, 1)]))
    stage.run()
    assert port.output == b"TIMED_OUT\r\n"


# --- giving up ------------------------------------------------------------------------------------


def test_without_a_quorum_a_put_is_refused_as_certainly_not_done(stage: Stage) -> None:
    stage.become("follower", None, 1)
    connection, port = stage.client(PUT + b"delete 7\r\nstats\r\nkick 3\r\n")
    stage.pass_us(4_800_000)
    assert port.output == b""
    stage.pass_us(400_000)
    assert port.output == b"DRAINING\r\n" + 3 * b"INTERNAL_ERROR\r\n"
    assert not connection.closed
    stage.become("follower", "n1", 2)
    sent = [frames.decode_batch(frame) for frame in stage.sent(frames.BATCH, "n1")]
    assert [c.unpack_commands(batch[6]) for batch in sent] == [((c.OPEN, 1),)]
    assert all(frames.unpack_hint(batch[5]).get(b"default", 0) == 0 for batch in sent)
    assert stage.node.origin.bytes == sum(len(c.unpack_commands(batch[6])) for batch in sent) * 24


def test_what_was_numbered_is_unknown_and_closed_between_replies(stage: Stage) -> None:
    connection, port = stage.client(PUT)
    bystander, other = stage.client()
    stage.pass_us(4_800_000)
    assert not connection.closed
    stage.pass_us(400_000)
    assert (connection.closed, port.closed, port.output) == (True, True, b"")
    assert (bystander.closed, other.closed) == (False, False)
    assert not stage.node.origin.is_idle()  # it may still happen, and is sent until it does


def test_the_unnumbered_rest_of_a_closed_client_is_not_answered(stage: Stage) -> None:
    connection, port = stage.client(PUT)
    stage.become("follower", None, 1)
    connection.received(PUT)
    stage.run()
    stage.pass_us(5_300_000)
    assert (connection.closed, port.output) == (True, b"")


def test_later_commands_outlive_the_expiry_of_earlier_ones(stage: Stage) -> None:
    stage.become("follower", None, 1)
    connection, port = stage.client(PUT)
    stage.pass_us(3_000_000)
    connection.received(b"put 0 0 60 1\r\ny\r\n")
    stage.run()
    stage.pass_us(2_300_000)
    assert port.take() == b"DRAINING\r\n"
    stage.become("follower", "n1", 2)
    commands = ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"y"))
    (frame,) = stage.sent(frames.BATCH, "n1")
    assert c.unpack_commands(frames.decode_batch(frame)[6]) == commands
    stage.apply_sections((0, 1, 2, commands))
    assert port.take() == b"INSERTED 1\r\n"


def test_a_wait_that_nobody_ends_is_closed(stage: Stage) -> None:
    connection, port = stage.client(b"reserve-with-timeout 1\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.become("follower", None, 1)
    stage.pass_us(5_800_000)
    assert not connection.closed
    stage.pass_us(500_000)
    assert (connection.closed, port.output) == (True, b"")


def test_a_wait_without_end_bears_a_long_outage(stage: Stage) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1),)))
    stage.become("follower", None, 1)
    stage.pass_us(4_000_000)
    stage.become("follower", "n2", 2)
    assert not connection.closed
    assert stage.sent(frames.WAITS, "n2")


# --- snapshots ------------------------------------------------------------------------------------


def image(*sections: c.Section) -> Machine:
    """A machine that is at index 100."""
    machine = Machine()
    machine.apply(100, 0, 0, 0, sections)
    return machine


def test_a_snapshot_over_unanswered_batches_closes_their_clients(stage: Stage) -> None:
    covered, port = stage.client(PUT)
    idle, _ = stage.client()
    stage.load(image((0, 1, 1, ()), (0, 1, 2, ((c.OPEN, 1), (c.PUT, 1, b"t", 0, 0, 1, b"x")))))
    assert (covered.closed, port.output) == (True, b"")
    assert not idle.closed
    (frame,) = stage.sent(frames.BATCH, "n1")[-1:]
    assert c.unpack_commands(frames.decode_batch(frame)[6]) == ((c.CLOSE, 1, 1),)


def test_a_snapshot_before_unanswered_batches_changes_nothing(stage: Stage) -> None:
    connection, port = stage.client(PUT)
    stage.load(image((0, 1, 1, ())))
    assert not connection.closed
    stage.replica.commit_index = 100
    stage.apply_sections((0, 1, 2, ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x"))))
    assert port.output == b"INSERTED 1\r\n"


def test_a_snapshot_over_a_grant_closes_the_client_that_waited(stage: Stage) -> None:
    connection, _ = stage.client(b"reserve\r\n")
    opened = (0, 1, 2, ((c.OPEN, 1),))
    stage.apply_sections(opened)
    put = (1, 1, 1, ((c.OPEN, 1), (c.PUT, 1, b"default", 0, 0, 60, b"x")))
    grant = (c.LEADER, 0, 0, ((c.GRANT, 0, 1, 1, 1, 2),))
    stage.load(image((0, 1, 1, ()), opened, put, grant))
    assert connection.closed
