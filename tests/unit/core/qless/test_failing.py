"""Failures: fail, retry, unfail."""

from beanpole import qless as q
from beanpole.core.qless import cancelling, failing, limits, ordering, putting, throttles
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import fill_queues

VIEW = q.FailureView(b"group", b"why", 4.0, b"w")


def running(flavour: int = q.THROTTLES) -> Qless:
    world = Qless(flavour)
    world.put(0, b"a", retries=1)
    world.pop(1)
    world.said()
    return world


def test_a_failed_job_stands_in_its_group() -> None:
    world = running()
    world.t.tracked.add(b"a", 0.0)
    assert world.give(failing.fail, 4.5, b"a", b"w", b"group", b"why", b"[1]") == b"a"
    job = world.job(b"a")
    assert (job.state, job.queue, job.worker, job.expires) == (q.FAILED, b"q", b"", 0.0)
    assert (job.data, job.failure) == (b"[1]", VIEW)
    assert job.history[-1] == (4.0, q.HAS_FAILED, b"group", b"w")
    assert list(world.t.groups[b"group"]) == [b"a"]
    day = world.t.queues[b"q"].days[0]
    assert (day.failed, day.failures) == (1, 1)
    assert world.said() == [(b"log", b"failed"), (b"failed", b"a")]


def test_only_the_worker_may_fail_a_running_job() -> None:
    world = running()
    args = (b"group", b"why", None)
    assert world.call(failing.fail, 2, b"x", b"w", *args) == (q.NO_JOB, (b"x",))
    assert world.call(failing.fail, 2, b"a", b"x", *args) == (q.OTHER_WORKER, (b"a", b"w"))
    world.done(3, b"a")
    assert world.call(failing.fail, 4, b"a", b"w", *args) == (q.NOT_RUNNING, (b"a", q.COMPLETE_))


def test_old_flavours_do_not_ask_for_the_worker() -> None:
    world = running(q.UNIFIED)
    assert world.give(failing.fail, 4, b"a", b"x", b"group", b"why", None) == b"a"
    assert not world.t.leases


def test_a_retry_uses_up_an_attempt() -> None:
    world = running()
    assert world.give(failing.retry, 4.5, b"a", b"q", b"w", 0.0, b"group", b"why") == 0
    job = world.job(b"a")
    assert (job.state, job.remaining, job.failure) == (q.WAITING, 0, VIEW)
    assert job.score == -4.5 / 10_000_000_000
    # As in the original, it shows its last worker and the end of its last lock.
    assert (job.worker, job.expires) == (b"w", 61.0)
    world.pop(5, worker=b"x")
    assert world.job(b"a").worker == b"x"


def test_a_retry_after_a_delay() -> None:
    world = running()
    assert world.give(failing.retry, 4, b"a", b"q", b"w", 3.0, None, None) == 0
    job = world.job(b"a")
    assert (job.state, job.score, job.failure) == (q.SCHEDULED, 7.0, None)


def test_a_retry_into_another_queue_moves_the_job() -> None:
    world = running()
    world.give(failing.retry, 4, b"a", b"other", b"w", 0.0, None, None)
    assert world.pop(5) == []
    assert world.pop(5, queue=b"other") == [b"a"]


def test_only_the_worker_may_retry_a_running_job() -> None:
    world = running()
    args = (0.0, None, None)
    assert world.call(failing.retry, 2, b"x", b"q", b"w", *args) == (q.NO_JOB, (b"x",))
    assert world.call(failing.retry, 2, b"a", b"q", b"x", *args) == (q.OTHER_WORKER, (b"a", b"w"))
    world.give(failing.retry, 2, b"a", b"q", b"w", *args)
    refused = world.call(failing.retry, 2, b"a", b"q", b"w", *args)
    assert refused == (q.NOT_RUNNING, (b"a", q.WAITING))


def test_the_last_retry_fails() -> None:
    cases = (
        (None, None, b"failed-retries-q", b'Job exhausted retries in queue "q"', 2.5, b""),
        (b"group", None, b"group", b'Job exhausted retries in queue "q"', 2.5, b""),
        (b"group", b"why", b"group", b"why", 2.0, b"w"),
    )
    for group, message, in_group, text, when, worker in cases:
        world = running()
        world.job(b"a").remaining = 0
        assert world.give(failing.retry, 2.5, b"a", b"q", b"w", 0.0, group, message) == -1
        job = world.job(b"a")
        assert job.failure == q.FailureView(in_group, text, when, worker)
        assert (job.state, job.worker) == (q.FAILED, b"")
        assert job.history[-1] == (2.0, q.HAS_FAILED, in_group, b"")
        assert list(world.t.groups) == [in_group]
        assert world.t.queues[b"q"].days[0].failures == 1


def test_unfail_moves_those_that_failed_first() -> None:
    world = Qless()
    for number in range(4):
        world.put(0, b"%d" % number)
    for jid in sorted(world.pop(1, 4)):
        world.give(failing.fail, 2, jid, b"w", b"group", b"why", None)
    assert world.give(failing.unfail, 3, b"other", b"none", 25) == 0
    assert world.give(failing.unfail, 3, b"other", b"group", 0) == 0
    assert b"other" not in world.t.queues
    assert world.give(failing.unfail, 3, b"other", b"group", 2) == 2
    assert list(world.t.groups[b"group"]) == [b"2", b"3"]
    job = world.job(b"0")
    assert (job.state, job.queue, job.remaining) == (q.WAITING, b"other", 5)
    assert job.history[-1] == (3.0, q.HAS_PUT, b"other", b"")
    assert job.failure is not None
    assert world.give(failing.unfail, 3, b"other", b"group", 25) == 2
    assert not world.t.groups
    assert sorted(world.pop(4, 5, queue=b"other")) == [b"0", b"1", b"2", b"3"]


def test_unfail_of_more_than_a_call_may_touch_is_refused() -> None:
    world = Qless(q.CORE)
    many = q.CALL_JOBS_MAX + 1
    for number in range(many):
        args = (b"q", b"%d" % number, b"K", b"{}", 0.0, *[None] * 4, (), None, False)
        assert putting.put(world.t, q.CORE, 0.0, args)[0] == q.OK
    for jid in [*world.pop(1, many - 1), *world.pop(1, 1)]:
        assert failing.fail(world.t, q.CORE, 2.0, (jid, b"w", b"g", b"m", None))[0] == q.OK
    assert world.call(failing.unfail, 3, b"q", b"g", many)[0] == q.TOO_MUCH
    assert world.give(failing.unfail, 3, b"q", b"g", many - 1) == many - 1
    assert world.give(failing.unfail, 3, b"q", b"g", many) == 1


def test_a_canceled_failure_does_not_count_any_more() -> None:
    for flavour, failed in ((q.THROTTLES, 0), (q.SEED, 1)):
        world = running(flavour)
        world.give(failing.fail, 2, b"a", b"w", b"group", b"why", None)
        world.give(cancelling.cancel, 3, (b"a",))
        day = world.t.queues[b"q"].days[0]
        assert (day.failed, day.failures) == (failed, 1)


def test_failures_and_retries_give_locks_of_throttles_back() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"ql:q:q", 1, 0)
    world.put(0, b"a")
    world.put(1, b"b")
    world.pop(2, 2)
    world.give(failing.retry, 3, b"a", b"q", b"w", 0.0, None, None)
    assert sorted(world.t.queues[b"q"].work) == [b"a", b"b"]
    world.put(3, b"first", priority=1.0)
    assert world.pop(4, 1) == [b"first"]
    world.give(failing.fail, 4, b"first", b"w", b"group", b"why", None)
    world.give(ordering.priority, 4, b"a", 1.0)
    assert world.pop(4, 1) == [b"a"]
    world.put(5, b"c")
    assert world.job(b"c").state == q.THROTTLED
    world.give(failing.fail, 6, b"a", b"w", b"group", b"why", None)
    assert world.pop(7, 2) == [b"b"]


def test_a_job_goes_on_in_no_queue_that_would_be_one_too_many() -> None:
    world = running()
    fill_queues(world.t)
    args = (b"w", 0.0, None, None)
    assert world.call(failing.retry, 2, b"a", b"new", *args) == limits.QUEUES
    assert (world.job(b"a").state, world.job(b"a").remaining) == (q.RUNNING, 1)
    assert world.give(failing.fail, 3, b"a", b"w", b"group", b"why", None) == b"a"
    fill_queues(world.t)  # the call before dropped those without a job
    assert world.call(failing.unfail, 4, b"new", b"group", 1) == limits.QUEUES
    assert list(world.t.groups[b"group"]) == [b"a"]
    assert b"new" not in world.t.queues
    fill_queues(world.t)
    assert world.give(failing.unfail, 5, b"7", b"group", 1) == 1
    assert world.pop(6, queue=b"7") == [b"a"]
    assert world.give(failing.retry, 7, b"a", b"8", *args) == 0
