"""A call of many commands at its node: results in order, and every kind of early end."""

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.machine import Machine
from beanpole.weights import COMMAND_BYTES
from beanpoled.links import frames
from beanpoled.origin.batches import NOT_DONE, UNKNOWN
from beanpoled.rpc.call import NO_SESSION, Call
from tests.unit.node.stage import Stage

JOB = (b"rows", 0, 0, 60, b"body")


@pytest.fixture
def stage() -> Stage:
    """A follower whose NODE_UP is applied, with an empty outbox."""
    stage = Stage(fence_timeout_ms=20_000, node_timeout_ms=30_000)
    stage.come_up_behind()
    stage.sent(frames.BATCH)
    return stage


class Listener:
    """A call, and the number of times that it reported its end."""

    def __init__(self, stage: Stage) -> None:
        self.ends = 0
        self.call = Call(stage.node.clients, b"10.0.0.1", self._done)

    def _done(self) -> None:
        self.ends += 1


def sent(stage: Stage) -> tuple[c.Command, ...]:
    """Return the commands of the only batch sent since the last call."""
    (frame,) = stage.sent(frames.BATCH, "n1")
    return c.unpack_commands(frames.decode_batch(frame)[6])


def putting(stage: Stage) -> tuple[Listener, tuple[c.Command, ...]]:
    """Make a call of three puts, one without a key; return it with the commands sent."""
    listener = Listener(stage)
    for key in (b"one", b"", b"one"):
        listener.call.put(*JOB, key)
    stage.run()
    return listener, sent(stage)


def test_a_call_is_a_session_and_its_results_are_in_order(stage: Stage) -> None:
    listener, commands = putting(stage)
    assert commands == (
        (c.OPEN, 1),
        (c.SET_PROTOCOL, 1, e.GRPC),
        (c.PUT_KEYED, 1, *JOB, b"one"),
        (c.PUT, 1, *JOB),
        (c.PUT_KEYED, 1, *JOB, b"one"),
    )
    assert listener.ends == 0
    stage.apply_sections((0, 1, 2, commands))
    assert (listener.ends, listener.call.failure) == (1, 0)
    assert listener.call.results == [(1, 0), 2, (1, 1)]
    assert sent(stage) == ((c.CLOSE, 1, 0),)
    assert not stage.node.clients.calls


def test_waiting_clients_hear_of_the_jobs_of_a_call(stage: Stage) -> None:
    """The leader grants a put in the entry that makes its job: the hint names the tube."""
    listener = Listener(stage)
    listener.call.put(*JOB, b"key")
    listener.call.put(b"later", 0, 9, 60, b"", b"")
    stage.run()
    (frame,) = stage.sent(frames.BATCH, "n1")
    assert frames.unpack_hint(frames.decode_batch(frame)[5]) == {b"rows": 1}


def test_jobs_are_kicked(stage: Stage) -> None:
    listener = Listener(stage)
    for job in (1, 2):
        listener.call.submit(c.KICK_JOB, job)
    stage.run()
    delayed = (c.PUT, 1, b"default", 0, 9, 60, b"")
    stage.apply_sections((1, 1, 1, ((c.OPEN, 1), delayed)), (0, 1, 2, sent(stage)))
    assert listener.call.results == [c.OK, c.NOT_FOUND]


def test_a_call_without_a_session_does_nothing(stage: Stage) -> None:
    stage.node.context.machine.sessions_max = 0
    listener, commands = putting(stage)
    stage.apply_sections((0, 1, 2, commands))
    assert (listener.ends, listener.call.failure) == (1, NO_SESSION)
    assert not stage.node.context.machine.queue.jobs


def test_without_a_quorum_what_was_not_sent_is_not_done(stage: Stage) -> None:
    stage.become("follower", None, 1)
    listener = Listener(stage)
    for key in (b"one", b"", b"two"):
        listener.call.put(*JOB, key)
    stage.pass_us(5_300_000)
    assert (listener.ends, listener.call.failure) == (1, NOT_DONE)
    assert stage.node.origin.bytes == 3 * COMMAND_BYTES
    stage.become("follower", "n1", 2)
    assert sent(stage) == ((c.OPEN, 1), (c.SET_PROTOCOL, 1, e.GRPC), (c.CLOSE, 1, 0))


def test_what_was_sent_is_unknown(stage: Stage) -> None:
    listener, commands = putting(stage)
    stage.pass_us(5_300_000)
    assert (listener.ends, listener.call.failure) == (1, UNKNOWN)
    stage.apply_sections((0, 1, 2, commands))
    assert (listener.ends, listener.call.results) == (1, [])


def test_a_node_that_is_declared_down_has_no_calls(stage: Stage) -> None:
    listener, _ = putting(stage)
    stage.apply_sections((c.LEADER, 0, 0, ((c.NODE_DOWN, 0, 1),)))
    assert (listener.ends, listener.call.failure) == (1, UNKNOWN)
    assert not stage.node.clients.calls


def test_a_snapshot_over_a_call_leaves_its_outcome_unknown(stage: Stage) -> None:
    listener, commands = putting(stage)
    machine = Machine()
    machine.apply(100, 0, 0, 0, [(0, 1, 1, ()), (0, 1, 2, commands)])
    stage.load(machine)
    assert (listener.ends, listener.call.failure) == (1, UNKNOWN)
    assert sent(stage) == ((c.CLOSE, 1, 0),)


def test_a_call_that_nobody_waits_for_is_ended(stage: Stage) -> None:
    listener, commands = putting(stage)
    listener.call.end()
    listener.call.end()
    stage.run()
    assert sent(stage) == ((c.CLOSE, 1, 0),)
    stage.apply_sections((0, 1, 2, commands))
    assert (listener.ends, listener.call.results) == (1, [])
    assert len(stage.node.context.machine.queue.jobs) == 2
