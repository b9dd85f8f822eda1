"""What stays in the outbox after overdue commands were taken out of an unnumbered batch."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole.core.jobs.job import Job
from beanpoled.links import frames
from beanpoled.origin.batches import NOT_DONE, Batch, Wait
from tests.unit.node.stage import Stage

ANY_KIND = 1
LATER_US = 1_000_000


class Client:
    """A client that only notes what its origin tells it."""

    client_host = user = token = b""
    client_names: tuple[bytes, ...] = ()

    def __init__(self, number: int) -> None:
        self.number = number
        self.batch: Batch | None = None
        self.wait: Wait | None = None
        self.told: list[tuple[int, Any]] = []

    def answered(self, kind: int, result: Any) -> None:
        self.told.append((kind, result))

    def wait_ended(self, job: Job | None, until_us: int = 0) -> None:
        raise AssertionError

    def failed(self, kind: int, why: int) -> None:
        self.told.append((kind, why))

    def drop(self) -> None:
        raise AssertionError


@pytest.fixture
def stage() -> Stage:
    """A follower with as many batches in flight as there may be: the next one stays open."""
    stage = Stage(fence_timeout_ms=20_000, node_timeout_ms=30_000)
    stage.come_up_behind()
    stage.apply_sections((c.LEADER, 0, 0, ((c.RAISE, c.MACHINE_VERSION),)))
    for _ in range(frames.BATCHES_IN_FLIGHT_MAX):
        stage.node.origin.submit(None, -1, (c.DELETE, 9, 9))
        stage.node.origin.send()
    stage.sent(frames.BATCH)
    return stage


def test_a_status_replaces_no_other_command_after_the_places_have_changed(stage: Stage) -> None:
    origin, context = stage.node.origin, stage.node.context
    overdue, worker = Client(1), Client(2)
    origin.submit(overdue, ANY_KIND, (c.DELETE, 1, 7))
    context.loop_us += LATER_US
    assert not origin.submit_latest(worker, ANY_KIND, (c.PROGRESS, 2, 9, b"1"))
    origin.submit(worker, ANY_KIND, (c.TOUCH, 2, 9))
    origin.expire(context.loop_us)
    assert overdue.told == [(ANY_KIND, NOT_DONE)]
    origin.submit_latest(worker, ANY_KIND, (c.PROGRESS, 2, 9, b"2"))
    first, second = (c.PROGRESS, 2, 9, b"1"), (c.PROGRESS, 2, 9, b"2")
    assert origin._open.commands == [first, (c.TOUCH, 2, 9), second]


def test_the_end_of_a_wait_is_sent_though_the_wait_itself_is_held_back(stage: Stage) -> None:
    """The leader knows the wait from before all was sent again, and would keep it in its line."""
    origin, context = stage.node.origin, stage.node.context
    waiting, other = Client(1), Client(2)
    origin.submit(waiting, ANY_KIND, (c.DELETE, 1, 7))
    waiting.wait = origin.wait(waiting, 5)
    origin.send()
    assert not stage.sent(frames.WAITS), "its client's command has not left"
    origin.expire(context.loop_us + 1)
    origin.send()
    assert len(stage.sent(frames.WAITS)) == 1, "that command is not done"
    origin.submit(other, ANY_KIND, (c.DELETE, 2, 7))
    origin.resend()
    origin.send()
    assert not stage.sent(frames.WAITS), "the batch that it stood behind has a command again"
    origin.close(waiting, lost=True)
    origin.send()
    assert [frames.decode_items(frame, 2)[2] for frame in stage.sent(frames.UNWAITS)] == [[(1, 5)]]
