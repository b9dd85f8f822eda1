"""The order of a node's steps within and between turns."""

import pytest

from beanpole import commands as c
from tests.unit.node.stage import Stage, Stopped, leading, put


@pytest.fixture
def stage() -> Stage:
    return leading()


def test_what_a_turn_wrote_leaves_before_an_image_goes_on(stage: Stage) -> None:
    """Replies, and frames to members, are written by the host at the end of a step of the loop."""
    slices: list[bytes] = []
    connection, port = stage.client()

    def slice_image() -> None:
        slices.append(port.output)
        stage.replica.imaging = False

    stage.replica.imaging = True
    stage.replica.slice_image = slice_image  # type: ignore[method-assign]
    connection.received(b"list-tube-used\r\n")
    step, stage.host.soon = stage.host.soon, []
    for callback in step:
        callback()
    assert port.output == b"USING default\r\n" and slices == []
    stage.run()
    assert slices == [b"USING default\r\n"]


def test_a_reply_that_a_turn_makes_asks_for_no_other_turn(stage: Stage) -> None:
    """The turn itself writes the reply at its end."""
    connection, port = stage.client()
    replies, turns = [b"INSERTED 1\r\n"], []

    def turn() -> None:
        turns.append(stage.host.us)
        if replies:
            connection._replies.push(replies.pop())

    stage.replica.turn = turn  # type: ignore[method-assign]
    stage.node.context.wake()
    stage.run()
    assert (port.output, len(turns)) == (b"INSERTED 1\r\n", 1)
    connection._replies.push(b"INSERTED 2\r\n")  # between two turns
    stage.run()
    assert (port.output, len(turns)) == (b"INSERTED 1\r\nINSERTED 2\r\n", 2)


def test_an_image_goes_on_after_every_turn_until_it_is_made(stage: Stage) -> None:
    slices: list[int] = []
    stage.replica.imaging = True
    stage.replica.slice_image = lambda: slices.append(stage.host.us)  # type: ignore[method-assign]
    stage.pass_us(50_000)
    assert len(slices) == 5
    stage.replica.imaging = False
    stage.pass_us(50_000)
    assert len(slices) == 5


def test_a_digest_waits_for_a_snapshot(stage: Stage) -> None:
    """Together they took twice the processor time, and delayed the clients."""
    stage.replica.imaging = True
    stage.node.digest.begin(stage.node.context.machine)
    stage.pass_us(1_000_000)
    assert stage.node.digest.in_progress
    stage.replica.imaging = False
    stage.pass_us(1_000_000)
    assert not stage.node.digest.in_progress


def test_a_stopped_node_makes_no_image(stage: Stage) -> None:
    slices: list[int] = []
    stage.replica.imaging = True
    stage.replica.slice_image = lambda: slices.append(stage.host.us)  # type: ignore[method-assign]
    stage.node.context.wake()
    (turn,), stage.host.soon = stage.host.soon, []
    turn()
    with pytest.raises(Stopped):
        stage.node.context.fatal("the test says so")
    stage.run()
    assert slices == []


def test_what_the_log_emits_before_the_node_serves_is_not_recent() -> None:
    stage = Stage(c.BASE_VERSION)
    stage.follow()
    stage.pass_us(200_000)
    stage.apply_sections((1, 1, 1, ((c.OPEN, 1), *[put()] * 50)))
    stage.pass_us(1_200_000)
    stage.node.lifecycle._begin_incarnation()
    stage.run()
    stage.apply_sections((0, 1, 1, ()))
    assert stage.node.serving
    stage.pass_us(1_200_000)
    stage.apply_sections((1, 1, 2, tuple([put()] * 7)))
    stage.pass_us(1_200_000)
    recent = stage.node.events.latencies
    assert round(recent.of_all().puts_per_s * recent.seconds) == 7
