"""Locks: heartbeats, and the fate of jobs whose workers are silent."""

from beanpole import qless as q
from beanpole.core.qless import failing, locks, throttles
from tests.unit.core.qless.checking import Qless


def test_a_heartbeat_begins_the_lock_anew() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    assert world.give(locks.heartbeat, 20.5, b"a", b"w", b"[1]") == 80.5
    job = world.job(b"a")
    assert (job.expires, job.lease, job.score, job.data) == (80.5, 80.5, 80.5, b"[1]")


def test_only_the_worker_of_a_running_job_may_have_a_heartbeat() -> None:
    world = Qless()
    assert world.call(locks.heartbeat, 0, b"a", b"w", None) == (q.NO_JOB, (b"a",))
    world.put(0, b"a")
    refused = world.call(locks.heartbeat, 0, b"a", b"", None)
    assert refused == (q.NOT_RUNNING, (b"a", q.WAITING))
    world.pop(1)
    refused = world.call(locks.heartbeat, 2, b"a", b"other", b"[1]")
    assert refused == (q.OTHER_WORKER, (b"a", b"w"))
    assert world.job(b"a").data == b"{}"


def test_a_worker_is_warned_before_its_job_goes_to_another() -> None:
    world = Qless()
    world.t.tracked.add(b"a", 0.0)
    world.put(0, b"a")
    world.pop(0)
    world.said()
    assert world.pop(60, worker=b"other") == []
    assert world.said() == [(b"stalled", b"a"), (b"w:w", b"lock_lost"), (b"log", b"lock_lost")]
    job = world.job(b"a")
    assert (job.worker, job.grace, job.expires, job.score) == (b"w", True, 60.0, 70.0)
    assert job.lease is None
    assert job.history[-1] == (60.0, q.HAS_TIMED_OUT, b"", b"")
    assert world.t.queues[b"q"].days[0].retries == 1
    assert world.pop(69, worker=b"other") == []
    assert world.pop(70, worker=b"other") == [b"a"]
    assert (job.worker, job.remaining, job.grace) == (b"other", 4, False)
    assert world.t.queues[b"q"].days[0].retries == 1
    assert world.call(locks.heartbeat, 71, b"a", b"w", None)[0] == q.OTHER_WORKER


def test_a_warned_worker_may_go_on() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(0)
    world.pop(60)
    world.give(locks.heartbeat, 61, b"a", b"w", None)
    assert world.job(b"a").lease == 121.0
    assert world.pop(70) == []
    assert world.done(71, b"a") == (q.OK, q.COMPLETE_)


def test_a_worker_is_warned_again_when_its_next_lock_ends() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(0)
    world.pop(60)
    world.give(locks.heartbeat, 61, b"a", b"w", None)
    world.said()
    assert world.pop(121, worker=b"other") == []
    assert world.said() == [(b"w:w", b"lock_lost"), (b"log", b"lock_lost")]
    assert world.pop(131, worker=b"other") == [b"a"]


def test_the_next_worker_is_warned_after_one_that_was_warned_and_failed_it() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(0)
    world.pop(60)
    world.give(failing.fail, 61, b"a", b"w", b"group", b"message", None)
    world.give(failing.unfail, 62, b"q", b"group", 1)
    assert world.pop(63) == [b"a"]
    world.said()
    assert world.pop(123, worker=b"other") == []
    assert world.said() == [(b"w:w", b"lock_lost"), (b"log", b"lock_lost")]


def test_without_grace_a_job_goes_to_another_at_once() -> None:
    world = Qless()
    world.t.set_option(b"grace-period", b"0")
    world.put(0, b"a")
    world.pop(0)
    assert world.pop(60, worker=b"other") == [b"a"]
    assert world.job(b"a").remaining == 4
    assert world.t.queues[b"q"].days[0].retries == 1


def test_a_job_without_attempts_left_fails() -> None:
    for flavour, counted in ((q.THROTTLES, 1), (q.CORE, 1), (q.UNIFIED, 0), (q.SEED, 0)):
        world = Qless(flavour)
        world.t.set_option(b"grace-period", b"0")
        world.t.tracked.add(b"a", 0.0)
        world.put(0, b"a", retries=0)
        world.pop(0)
        world.said()
        assert world.pop(60.5, worker=b"other") == []
        job = world.job(b"a")
        assert (job.state, job.worker, job.expires) == (q.FAILED, b"", 0.0)
        assert job.failure is not None
        assert job.failure.group == b"failed-retries-q"
        assert job.failure.message == b'Job exhausted retries in queue "q"'
        assert job.failure.when == 60.5
        assert list(world.t.groups[b"failed-retries-q"]) == [b"a"]
        day = world.t.queues[b"q"].days[0]
        assert (day.failed, day.failures) == (counted, counted)
        assert world.said()[-2:] == [(b"failed", b"a"), (b"log", b"failed")]


def test_the_seed_form_knows_no_grace() -> None:
    world = Qless(q.SEED)
    world.put(0, b"a")
    world.pop(0)
    assert world.pop(60, worker=b"other") == [b"a"]
    assert (world.job(b"a").remaining, world.t.queues[b"q"].days[0].retries) == (4, 1)


def test_a_failed_job_gives_its_locks_back() -> None:
    world = Qless()
    world.t.set_option(b"grace-period", b"0")
    world.give(throttles.throttle_set, 0, b"ql:q:q", 1, 0)
    world.put(0, b"a", retries=0)
    world.pop(0)
    world.put(1, b"b")
    assert world.job(b"b").state == q.THROTTLED
    assert world.pop(60) == [b"b"]


def test_a_pop_ends_a_bounded_number_of_jobs_by_the_throttles_that_they_release() -> None:
    """1,000 jobs released 98,000 locks and let 100,000 jobs wait: 2.7 s of every node."""
    names = tuple(b"t%d" % number for number in range(q.THROTTLES_MAX - 1))
    for flavour in (q.THROTTLES, q.SEED):
        world = Qless()
        world.t.set_option(b"grace-period", b"0")
        for number in range(10):
            world.put(0, b"%d" % number, throttles=names, retries=0)
        assert len(world.pop(1, 10)) == 10
        for name in names:
            world.give(throttles.throttle_set, 1, name, 1, 0)
        for number, name in enumerate(names):
            for place in range(2):
                world.put(2, b"w%d-%d" % (number, place), queue=b"r", throttles=(name,))
        assert len(world.pop(2, 1000, queue=b"r")) == 0
        one = 1 + q.THROTTLES_MAX // throttles.FREE + len(names)  # and jobs wait for each throttle
        fit = q.CALL_JOBS_MAX // one
        world.flavour = flavour
        world.pop(100, 1000, worker=b"other")
        states = [world.job(b"%d" % number).state for number in range(10)]
        assert states == [q.FAILED] * fit + [q.RUNNING] * (10 - fit)
        world.pop(100, 1000, worker=b"other")
        assert {world.job(b"%d" % number).state for number in range(10)} == {q.FAILED}


def test_jobs_that_only_lose_their_locks_release_nothing_that_counts() -> None:
    world = Qless()
    names = tuple(b"t%d" % number for number in range(q.THROTTLES_MAX - 1))
    for number in range(200):
        world.put(0, b"%d" % number, throttles=names, retries=0)
    for _ in range(3):
        world.pop(1, 200)
    assert len(world.t.queues[b"q"].locks) == 200
    world.pop(100, 200, worker=b"other")
    assert all(world.job(b"%d" % number).grace for number in range(200))


def test_a_timeout_takes_jobs_from_their_workers() -> None:
    for flavour, worker in ((q.THROTTLES, b"w"), (q.DOTTED, b"")):
        world = Qless(flavour)
        world.put(0, b"a")
        world.pop(0)
        world.said()
        assert world.give(locks.timeout, 5, (b"a",)) is None
        job = world.job(b"a")
        assert (job.state, job.worker, job.expires) == (q.STALLED, worker, 0.0)
        assert job.history[-1] == (5.0, q.HAS_TIMED_OUT, b"", b"")
        assert world.said() == [(b"w:w", b"lock_lost"), (b"log", b"lock_lost")]
        assert not world.t.leases
        assert world.call(locks.heartbeat, 6, b"a", b"w", None)[0] == q.NOT_RUNNING
        assert world.pop(7) == [b"a"]


def test_a_timeout_of_several_jobs_is_all_or_nothing() -> None:
    world = Qless()
    world.put(0, b"a")
    world.put(1, b"b")
    world.pop(1)
    refused = world.call(locks.timeout, 2, (b"a", b"b"))
    assert refused == (q.NOT_RUNNING, (b"b", q.WAITING))
    assert world.call(locks.timeout, 2, (b"a", b"none")) == (q.NO_JOB, (b"none",))
    assert world.call(locks.timeout, 2, (b"a", b"a")) == (q.NOT_RUNNING, (b"a", q.STALLED))
    assert world.job(b"a").state == q.RUNNING
    many = tuple(b"%d" % number for number in range(q.CALL_JOBS_MAX + 1))
    assert world.call(locks.timeout, 2, many)[0] == q.TOO_MUCH
