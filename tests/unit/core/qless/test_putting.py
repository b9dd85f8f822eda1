"""Put: new jobs, and jobs that are moved in any state."""

from beanpole import qless as q
from beanpole.core.qless import failing, locks, putting
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import fill_queues


def test_a_new_job_waits_with_defaults() -> None:
    world = Qless(q.CORE)
    assert world.put(10.5, b"a", tags=(b"x", b"y")) == (q.OK, b"a")
    job = world.job(b"a")
    assert (job.state, job.queue, job.priority) == (q.WAITING, b"q", 0.0)
    assert (job.retries, job.remaining, job.time) == (5, 5, 10.5)
    assert job.tags == {b"x": 10.5, b"y": 10.5}
    assert job.throttles == ()
    assert job.history == [(10.0, q.HAS_PUT, b"q", b"")]
    assert world.t.queues[b"q"].known_at == 10.5
    assert world.said() == [(b"log", b"put")]


def test_numbers_of_jobs_come_from_the_counter_of_all_jobs() -> None:
    world = Qless()
    world.t.kernel.next_id = 77
    world.put(0, b"a")
    assert (world.job(b"a").id, world.t.kernel.next_id) == (77, 78)


def test_a_moved_job_keeps_what_is_not_given() -> None:
    world = Qless()
    world.put(0, b"a", priority=3.0, tags=(b"x",), retries=2)
    world.put(5, b"a", queue=b"other", klass=b"Other", data=b"[]")
    job = world.job(b"a")
    assert (job.priority, job.retries, job.klass, job.data) == (3.0, 2, b"Other", b"[]")
    assert job.tags == {b"x": 5.0}
    assert len(world.t.queues[b"q"].work) == 0
    assert [item[2] for item in job.history] == [b"q", b"other"]


def test_throttles_of_the_queue_come_and_go_with_it() -> None:
    world = Qless()
    world.put(0, b"a", throttles=(b"t",))
    assert world.job(b"a").throttles == (b"t", b"ql:q:q")
    world.put(0, b"a", queue=b"other", throttles=(b"t", b"ql:q:q"))
    assert world.job(b"a").throttles == (b"t", b"ql:q:other")


def test_a_job_that_must_be_there_is_not_made() -> None:
    world = Qless()
    assert world.put(0, b"a", must=True) == (q.NO_JOB, (b"a",))
    assert not world.t.jobs
    world.put(0, b"a")
    assert world.put(0, b"a", must=True) == (q.OK, b"a")


def test_a_delay_schedules_and_dependencies_hold_a_job_back() -> None:
    world = Qless()
    world.put(0, b"a", delay=10)
    assert (world.job(b"a").state, world.job(b"a").score) == (q.SCHEDULED, 10.0)
    world.put(1, b"b", depends=(b"a", b"missing"), delay=5)
    job = world.job(b"b")
    assert (job.state, job.due, list(job.dependencies)) == (q.DEPENDS, 6.0, [b"a"])
    world.put(2, b"b")
    assert (world.job(b"b").state, world.job(b"b").due) == (q.DEPENDS, None)
    world.put(3, b"b", depends=(b"missing",))
    assert world.job(b"b").state == q.WAITING


def test_a_put_takes_a_job_from_its_worker_and_says_so() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    world.said()
    world.put(2, b"a", worker=b"w")
    assert world.said() == [(b"log", b"put")]
    assert not world.t.leases
    world.pop(3)
    world.said()
    world.put(4, b"a", worker=b"other")
    lost = [(b"w:w", b"lock_lost"), (b"log", b"lock_lost")]
    assert world.said() == [(b"log", b"put"), *lost]
    assert world.job(b"a").worker == b""
    assert world.t.locks_lost_total == 1


def test_a_put_of_a_job_without_a_lock_loses_none() -> None:
    """Jobs keep their workers when they go back to their queue; scripts announce a lost lock."""
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    world.give(failing.retry, 2, b"a", b"q", b"w", 0.0, None, None)
    assert world.job(b"a").worker == b"w"
    world.said()
    world.put(3, b"a")
    assert world.said() == [(b"log", b"put"), (b"w:w", b"lock_lost"), (b"log", b"lock_lost")]
    assert world.t.locks_lost_total == 0
    world.pop(4)
    world.give(locks.timeout, 5, (b"a",))
    counted = world.t.locks_lost_total
    world.put(6, b"a")
    assert world.t.locks_lost_total == counted


def test_a_lock_in_its_grace_period_is_lost_once() -> None:
    world = Qless()
    for jid in (b"a", b"b"):
        world.put(0, jid)
    world.pop(1, count=2)
    assert world.pop(100, count=2) == [], "their worker is warned"
    assert world.t.locks_lost_total == 2
    world.put(101, b"a")
    world.give(locks.timeout, 101, (b"b",))
    assert world.t.locks_lost_total == 2


def test_a_put_gives_locks_of_throttles_back() -> None:
    world = Qless()
    world.t.throttle(b"ql:q:q").maximum = 1
    world.t.throttle(b"ql:q:q").is_set = True
    world.put(0, b"a")
    world.pop(1)
    world.put(2, b"b")
    assert world.job(b"b").state == q.THROTTLED
    assert world.job(b"b").history[-1] == (2.0, q.HAS_THROTTLED, b"q", b"")
    world.put(3, b"a", queue=b"other")
    assert len(world.t.throttles[b"ql:q:q"].locks) == 0
    assert world.pop(4) == [b"b"]


def test_a_failed_job_leaves_its_group() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    world.give(failing.fail, 2, b"a", b"w", b"group", b"why", None)
    world.put(3, b"a")
    assert not world.t.groups
    assert world.t.queues[b"q"].days[0].failed == 0
    assert world.t.queues[b"q"].days[0].failures == 1
    assert world.job(b"a").failure is not None  # it shows its last failure


def test_a_stalled_job_can_be_put() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    world.give(locks.timeout, 2, (b"a",))
    world.put(3, b"a")
    assert world.job(b"a").worker == b""


def test_circles_are_refused() -> None:
    world = Qless()
    assert world.put(0, b"a", depends=(b"a",)) == (q.DEPENDS_ON_ITSELF, (b"a",))
    assert not world.t.jobs
    world.put(0, b"a")
    world.put(0, b"b", depends=(b"a",))
    world.put(0, b"c", depends=(b"b",))
    assert world.put(1, b"a", depends=(b"c",)) == (q.DEPENDS_ON_ITSELF, (b"a",))
    assert world.job(b"a").state == q.WAITING
    world.put(0, b"d")
    assert world.put(1, b"a", depends=(b"d",)) == (q.OK, b"a")


def test_limits_are_checked_before_anything_changes() -> None:
    world = Qless()
    tags = tuple(b"%d" % number for number in range(q.TAGS_MAX + 1))
    assert world.put(0, b"a", tags=tags)[0] == q.TOO_MUCH
    names = tuple(b"%d" % number for number in range(q.THROTTLES_MAX))
    assert world.put(0, b"a", throttles=names)[0] == q.TOO_MUCH
    assert not world.t.jobs
    assert not world.t.queues
    assert not world.t.messages


def test_dependents_have_a_limit() -> None:
    world = Qless()
    world.put(0, b"a")
    job = world.job(b"a")
    for number in range(q.DEPENDENCIES_MAX):
        args = (
            b"q",
            b"%d" % number,
            b"K",
            b"{}",
            0.0,
            None,
            None,
            None,
            None,
            (b"a",),
            None,
            False,
        )
        assert putting.put(world.t, q.CORE, 0.0, args)[0] == q.OK
    assert world.put(0, b"more", depends=(b"a",))[0] == q.TOO_MUCH
    assert world.put(0, b"7", depends=(b"a",))[0] == q.OK
    assert len(job.dependents) == q.DEPENDENCIES_MAX
    assert world.pop(1) == [b"a"]
    assert world.done(2, b"a") == (q.OK, q.COMPLETE_)
    assert len(world.t.queues[b"q"].work) == q.DEPENDENCIES_MAX


def test_queues_have_a_limit() -> None:
    world = Qless()
    fill_queues(world.t)
    assert world.put(0, b"a")[0] == q.TOO_MUCH
    assert world.put(0, b"a", queue=b"7")[0] == q.OK


def test_tracked_jobs_say_that_they_were_put() -> None:
    world = Qless()
    world.t.tracked.add(b"a", 0.0)
    world.put(0, b"a")
    assert world.said() == [(b"log", b"put"), (b"put", b"a")]
