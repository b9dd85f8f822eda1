"""Imports of jobs from another server: state is preserved, and each job is imported once."""

from typing import Any

import pytest

from beanpole import events as e
from beanpole import qless as q
from beanpole.core.jobs.job import DONE, FAILED, GONE, READY
from beanpole.core.qless import completing, failing, importing, limits, queues, recurring, views
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import fill_queues
from tests.unit.core.qless.test_events import Scene, said

FAILURE = (b"group", b"why", 30.0, b"w")
HISTORY = ((10.0, q.HAS_PUT, b"q", b""), (20.0, q.HAS_POPPED, b"w", b""))


def job(jid: bytes, state: int = q.WAITING, score: float = 1.0, **more: Any) -> tuple[Any, ...]:
    """Return the arguments of an import."""
    return (
        *(more.get("queue", b"q"), jid, b"Klass", b"[1]", state, more.get("priority", 0.0), 5),
        *(more.get("remaining", 3), score, 10.0, more.get("due")),
        *(more.get("tags", ()), more.get("history", ()), more.get("failure")),
        *(more.get("depends", ()), more.get("throttles", ()), more.get("spawned_from", b"")),
    )


def test_a_job_comes_with_all_that_happened_to_it() -> None:
    world = Qless()
    tags = ((b"red", 7.0), (b"blue", 8.0))
    more: dict[str, Any] = {"priority": 2.5, "tags": tags, "history": HISTORY, "failure": FAILURE}
    args = job(b"a", throttles=(b"t", b"t"), spawned_from=b"r", **more)
    assert world.give(importing.import_job, 50, *args) is True
    (view,) = world.give(views.multiget, 0, (b"a",))
    assert (view.priority, view.retries, view.remaining) == (2.5, 5, 3)
    assert (view.tags, view.history) == ((b"red", b"blue"), HISTORY)
    assert (view.failure, view.throttles, view.spawned_from) == (FAILURE, (b"t",), b"r")
    assert world.t.tagged[b"blue"].score(b"a") == 8.0
    assert world.said() == []
    assert world.pop(60) == [b"a"]


def test_what_is_there_stays_as_it_is() -> None:
    world = Qless()
    world.put(0, b"a")
    before = world.job(b"a").history.copy()
    assert world.give(importing.import_job, 50, *job(b"a", q.FAILED, failure=FAILURE)) is False
    assert (world.job(b"a").state, world.job(b"a").history) == (q.WAITING, before)


def test_jobs_keep_their_order() -> None:
    world = Qless()
    for jid, score in ((b"a", 1.0), (b"b", 3.0), (b"c", 2.0)):
        world.give(importing.import_job, 50, *job(jid, q.WAITING, score))
    world.give(importing.import_job, 50, *job(b"d", q.STALLED))
    assert world.pop(60, count=9) == [b"d", b"b", b"c", b"a"]


def test_scheduled_jobs_keep_their_times() -> None:
    world = Qless()
    world.give(importing.import_job, 50, *job(b"a", q.SCHEDULED, 70.0))
    assert world.pop(69) == []
    assert world.pop(70) == [b"a"]


def test_dependent_jobs_wait_for_what_is_there() -> None:
    world = Qless()
    world.give(importing.import_job, 50, *job(b"a"))
    world.give(importing.import_job, 50, *job(b"d", q.COMPLETE_, 40.0))
    depends = (b"a", b"d", b"unknown")
    world.give(importing.import_job, 50, *job(b"b", q.DEPENDS, depends=depends))
    world.give(importing.import_job, 50, *job(b"c", q.DEPENDS, depends=(b"d",), due=99.0))
    world.give(importing.import_job, 50, *job(b"e", q.DEPENDS, depends=(b"d",)))
    assert world.job(b"b").dependencies == {b"a": None}
    assert (world.job(b"c").state, world.job(b"c").score) == (q.SCHEDULED, 99.0)
    assert world.job(b"e").state == q.WAITING
    refused = world.call(importing.import_job, 50, *job(b"f", q.DEPENDS, depends=(b"f",)))
    assert refused[0] == q.DEPENDS_ON_ITSELF
    assert world.pop(60, count=2) == [b"a", b"e"]
    world.done(61, b"a")
    assert world.job(b"b").state == q.WAITING


def test_failed_jobs_are_in_their_groups_in_the_order_of_imports() -> None:
    world = Qless()
    for jid in (b"b", b"a"):
        world.give(importing.import_job, 50, *job(jid, q.FAILED, failure=FAILURE))
    assert list(world.t.groups[b"group"].lowest(0, 9)) == [b"b", b"a"]
    assert world.give(failing.unfail, 60, b"q", b"group", 1) == 1
    assert world.job(b"b").state == q.WAITING


def test_complete_jobs_are_purged_as_others() -> None:
    world = Qless()
    world.give(importing.import_job, 50, *job(b"old", q.COMPLETE_, 40.0))
    world.put(50, b"a")
    world.pop(51)
    assert world.job(b"old").queue == b""
    world.call(completing.complete, 700_000, b"a", b"w", b"q", b"{}", None, 0.0, ())
    assert list(world.t.jobs) == [b"a"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (job(b"a", q.RUNNING), q.BAD_CALL),
        (job(b"a", q.THROTTLED), q.BAD_CALL),
        (job(b"a", q.FAILED), q.BAD_CALL),
        (job(b"a", tags=tuple((b"%d" % n, 0.0) for n in range(q.TAGS_MAX + 1))), q.TOO_MUCH),
        (job(b"a", history=HISTORY * q.HISTORY_MAX), q.TOO_MUCH),
        (job(b"a", history=((1.0, q.HAS_LOGGED, b"x" * q.DATA_MAX_BYTES, b"y"),)), q.TOO_MUCH),
        (job(b"a", throttles=tuple(b"%d" % n for n in range(q.THROTTLES_MAX + 1))), q.TOO_MUCH),
        (job(b"x" * (q.NAME_MAX_BYTES + 1)), q.TOO_MUCH),
        (job(b"a", depends=(1,)), q.BAD_CALL),
    ],
)
def test_what_cannot_be_is_refused(args: tuple[Any, ...], code: int) -> None:
    world = Qless()
    assert world.call(importing.import_job, 50, *args)[0] == code
    assert not world.t.jobs


def test_without_room_only_what_is_there_is_taken() -> None:
    world = Qless()
    world.put(0, b"a")
    world.t.room = 0
    assert world.call(importing.import_job, 50, *job(b"b"))[0] == q.NO_ROOM
    assert world.call(importing.import_job, 50, *job(b"a")) == (q.OK, False)


def test_no_queue_comes_that_would_be_one_too_many() -> None:
    world = Qless()
    world.give(importing.import_queue, 50, b"known", False)
    fill_queues(world.t)
    assert world.call(importing.import_queue, 60, b"new", False) == limits.QUEUES
    for state in (q.WAITING, q.STALLED, q.SCHEDULED, q.DEPENDS, q.FAILED):
        fill_queues(world.t)  # each call drops those without a job
        args = job(b"a", state, queue=b"new", failure=FAILURE)
        assert world.call(importing.import_job, 60, *args) == limits.QUEUES
    assert b"new" not in world.t.queues and not world.t.jobs
    fill_queues(world.t)
    assert world.give(importing.import_queue, 60, b"known", False) is False
    fill_queues(world.t)
    assert world.give(importing.import_queue, 60, b"7", False) is True
    fill_queues(world.t)
    assert world.give(importing.import_job, 60, *job(b"a", queue=b"7")) is True
    fill_queues(world.t)
    # A complete job is in no queue.
    assert world.give(importing.import_job, 60, *job(b"b", q.COMPLETE_, queue=b"new")) is True


def test_templates_go_on_with_their_numbers_and_times() -> None:
    world = Qless()
    args = (b"q", b"r", b"K", b"{}", 10.0, 105.25, 1.0, (b"red",), 2, 0.0, (b"t",), 7)
    assert world.give(importing.import_recurring, 50, *args) is True
    assert world.give(importing.import_recurring, 50, *args[:-1], 9) is False
    assert world.give(recurring.recur_score, 0, b"q", b"r") == 105.25
    assert world.pop(104, count=9) == []
    assert world.pop(116, count=9) == [b"r-8", b"r-9"]
    assert world.t.recurring[b"r"].throttles == (b"t",)


def test_queues_are_known_since_then() -> None:
    world = Qless()
    world.give(importing.import_queue, 50, b"second", False)
    world.give(importing.import_queue, 40, b"first", True)
    assert world.give(queues.queue_names, 0) == (b"first", b"second")
    world.give(queues.unpause, 0, (b"first",))
    assert world.give(importing.import_queue, 30, b"first", True) is False
    assert not world.t.queues[b"first"].paused


def test_events_tell_that_a_job_came_and_what_it_is() -> None:
    scene = Scene()
    found = scene.call(q.IMPORT_JOB, *job(b"a", q.FAILED, failure=FAILURE))
    assert said(found) == [(e.PUT, GONE, READY), (e.FAILED, READY, FAILED)]
    found = scene.call(q.IMPORT_JOB, *job(b"b", q.COMPLETE_, queue=b"last"))
    assert said(found) == [(e.PUT, GONE, READY), (e.DONE, READY, DONE)]
    assert {scene.tube(event) for event in found} == {b"\x03last"}
    assert said(scene.call(q.IMPORT_JOB, *job(b"c"))) == [(e.PUT, GONE, READY)]
    assert scene.call(q.IMPORT_JOB, *job(b"c")) == []
