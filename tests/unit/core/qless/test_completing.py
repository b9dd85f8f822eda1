"""Completion: jobs that are done, that move on, and that are deleted later."""

from beanpole import qless as q
from beanpole.core.qless import completing
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import fill_queues


def test_a_complete_job_stays_without_queue_and_worker() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    world.said()
    world.t.tracked.add(b"a", 0.0)
    assert world.done(4.5, b"a", data=b"[1]") == (q.OK, q.COMPLETE_)
    job = world.job(b"a")
    assert (job.state, job.queue, job.worker, job.data) == (q.COMPLETE_, b"", b"", b"[1]")
    assert (job.expires, job.remaining, job.failure) == (0.0, 5, None)
    assert job.history[-1] == (4.0, q.HAS_DONE, b"", b"")
    assert list(world.t.completed) == [b"a"]
    assert not world.t.leases
    run = world.t.queues[b"q"].days[0].run
    assert (run.count, run.mean) == (1, 3.5)
    assert world.said() == [(b"completed", b"a"), (b"log", b"completed")]


def test_only_the_worker_may_complete_a_running_job() -> None:
    world = Qless()
    assert world.done(0, b"a") == (q.NO_JOB, (b"a",))
    world.put(0, b"a")
    assert world.done(0, b"a") == (q.NOT_RUNNING, (b"a", q.WAITING))
    world.pop(1)
    assert world.done(2, b"a", worker=b"x") == (q.OTHER_WORKER, (b"a", b"w"))
    assert world.done(2, b"a", queue=b"other") == (q.OTHER_QUEUE, (b"a", b"q"))
    assert world.job(b"a").state == q.RUNNING


def test_old_flavours_do_not_ask_for_the_queue() -> None:
    world = Qless(q.UNIFIED)
    world.put(0, b"a")
    world.pop(1)
    assert world.done(2, b"a", queue=b"other") == (q.OK, q.COMPLETE_)
    assert len(world.t.queues[b"q"].locks) == 0


def test_the_seed_form_counts_whole_seconds() -> None:
    world = Qless(q.SEED)
    world.put(0.9, b"a")
    world.pop(2.1)
    world.done(4.9, b"a")
    day = world.t.queues[b"q"].days[0]
    assert (day.wait.mean, day.run.mean) == (2.0, 2.0)


def test_a_job_goes_on_in_the_next_queue() -> None:
    world = Qless()
    world.put(0, b"a", priority=2.0)
    world.put(0, b"other")
    world.pop(1)
    world.said()
    assert world.done(2, b"a", following=b"next") == (q.OK, q.WAITING)
    job = world.job(b"a")
    assert (job.state, job.queue, job.worker, job.remaining) == (q.WAITING, b"next", b"", 5)
    assert [item[1] for item in job.history] == [q.HAS_PUT, q.HAS_POPPED, q.HAS_DONE, q.HAS_PUT]
    assert world.t.queues[b"next"].known_at == 2.0
    assert world.said() == [(b"log", b"advanced")]
    assert world.pop(3, queue=b"next") == [b"a"]
    assert world.done(4, b"a", following=b"q", delay=10) == (q.OK, q.SCHEDULED)
    assert job.score == 14.0
    assert world.pop(20, 5) == [b"a", b"other"]
    depends = (b"other", b"none")
    done = world.done(21, b"a", following=b"next", depends=depends, delay=7)
    assert done == (q.OK, q.DEPENDS)
    assert (job.due, list(job.dependencies)) == (28.0, [b"other"])
    assert world.done(22, b"other") == (q.OK, q.COMPLETE_)
    assert (job.state, job.score) == (q.SCHEDULED, 28.0)


def test_a_delay_counts_for_nothing_beside_dependencies_that_are_complete() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    assert world.done(2, b"a", following=b"q", delay=9, depends=(b"x",)) == (q.OK, q.WAITING)


def test_circles_and_limits_leave_a_job_running() -> None:
    world = Qless()
    world.put(0, b"a")
    world.put(0, b"b", depends=(b"a",))
    world.pop(1)
    world.said()
    refused = (q.DEPENDS_ON_ITSELF, (b"a",))
    assert world.done(2, b"a", following=b"q", depends=(b"b",)) == refused
    assert world.done(2, b"a", following=b"q", depends=(b"a",)) == refused
    fill_queues(world.t)
    assert world.done(2, b"a", following=b"new")[0] == q.TOO_MUCH
    assert world.job(b"a").state == q.RUNNING
    assert not world.said()
    assert world.done(3, b"a")[0] == q.OK


def test_dependents_wait_when_all_that_they_depend_on_is_complete() -> None:
    world = Qless()
    world.put(0, b"a", priority=9.0)
    world.put(1, b"b", priority=8.0)
    world.put(2, b"c", depends=(b"a", b"b"))
    assert world.pop(3, 5) == [b"a", b"b"]
    world.done(4, b"a")
    assert world.job(b"c").state == q.DEPENDS
    world.done(5, b"b")
    job = world.job(b"c")
    assert (job.state, job.score) == (q.WAITING, -5 / 10_000_000_000)


def test_the_seed_form_puts_dependents_in_front() -> None:
    world = Qless(q.SEED)
    world.put(0, b"a", priority=9.0)
    world.put(1, b"c", depends=(b"a",))
    world.pop(3)
    world.done(4, b"a")
    assert world.job(b"c").score == 0.0


def test_complete_jobs_are_deleted_when_they_are_too_old() -> None:
    world = Qless()
    world.t.set_option(b"jobs-history", b"100")
    for number in range(5):
        world.put(number, b"%d" % number, tags=(b"t",))
        world.pop(number)
        world.done(number, b"%d" % number)
    world.put(102, b"last")
    world.pop(102)
    world.done(102, b"last")
    assert list(world.t.jobs) == [b"3", b"4", b"last"]
    assert list(world.t.completed) == [b"3", b"4", b"last"]
    assert list(world.t.tagged[b"t"]) == [b"3", b"4"]


def test_complete_jobs_are_deleted_when_there_are_too_many() -> None:
    world = Qless()
    world.t.set_option(b"jobs-history-count", b"2")
    for number in range(5):
        world.put(number, b"%d" % number)
        world.pop(number)
        world.done(number, b"%d" % number)
    assert list(world.t.completed) == [b"3", b"4"]
    world.t.set_option(b"jobs-history-count", b"0")
    world.put(6, b"c")
    world.put(6, b"d", depends=(b"c",))
    world.pop(6)
    assert world.done(6, b"c") == (q.OK, q.COMPLETE_)
    assert list(world.t.jobs) == [b"d"]
    assert world.job(b"d").state == q.WAITING


def test_one_completion_deletes_a_bounded_number() -> None:
    world = Qless(q.CORE)
    many = completing.PURGED_MAX + 10
    for number in range(many):
        world.put(number, b"%d" % number)
    for jid in world.pop(many, many):
        completing.complete(world.t, q.CORE, float(many), (jid, b"w", b"q", b"{}", None, 0.0, ()))
    assert len(world.t.completed) == many
    world.t.set_option(b"jobs-history", b"-1")
    for rest in (11, 0):
        world.put(many, b"last")
        world.pop(many)
        world.done(many, b"last")
        assert len(world.t.completed) == rest


def test_a_completion_deletes_few_jobs_with_many_tags() -> None:
    world = Qless()
    tags = tuple(b"t%d" % number for number in range(completing.PURGED_TAGS_MAX // 2))
    for number in range(6):
        world.put(0, b"%d" % number, tags=tags)
        world.pop(0)
        world.done(0, b"%d" % number)
    world.t.set_option(b"jobs-history-count", b"0")
    left = []
    for number in range(4):
        world.put(1, b"x%d" % number)
        world.pop(1)
        world.done(1, b"x%d" % number)
        left.append(len(world.t.completed))
    assert left == [5, 4, 3, 0]
