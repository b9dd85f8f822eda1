"""Pop and peek: which jobs are returned, in which order, and with which fields."""

from beanpole import qless as q
from beanpole.core.qless import limits, locks, popping, putting, throttles
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import waiting_job


def test_the_highest_priority_comes_first_then_the_oldest() -> None:
    world = Qless()
    world.put(2, b"late")
    world.put(1, b"early")
    world.put(3, b"urgent", priority=1.0)
    world.put(0, b"last", priority=-1.0)
    assert world.pop(10, 3) == [b"urgent", b"early", b"late"]
    assert world.pop(10, 3) == [b"last"]
    assert world.pop(10, 3) == []


def test_a_popped_job_has_a_lock() -> None:
    world = Qless()
    world.put(0.25, b"a")
    world.said()
    world.t.tracked.add(b"a", 0.0)
    (view,) = world.give(popping.pop, 10.5, b"q", b"w", 1)
    assert (view.state, view.worker, view.expires) == (q.RUNNING, b"w", 70.5)
    assert view.history[-1] == (10.0, q.HAS_POPPED, b"w", b"")
    assert world.t.leases[b"w"].score(b"a") == 70.5
    assert world.t.queues[b"q"].locks.score(b"a") == 70.5
    assert world.t.workers.score(b"w") == 10.5
    assert world.t.throttles[b"ql:q:q"].locks.score(b"a") is not None
    wait = world.t.queues[b"q"].days[0].wait
    assert (wait.count, wait.mean) == (1, 10.25)
    assert world.said() == [(b"popped", b"a")]


def test_options_say_how_long_locks_last() -> None:
    world = Qless()
    world.t.set_option(b"heartbeat", b"5")
    world.put(0, b"a")
    world.put(1, b"b", queue=b"slow")
    world.t.set_option(b"slow-heartbeat", b"500")
    world.pop(1)
    world.pop(1, queue=b"slow")
    assert world.job(b"a").expires == 6.0
    assert world.job(b"b").expires == 501.0


def test_scheduled_jobs_come_when_they_are_due() -> None:
    world = Qless()
    world.put(0, b"a", delay=10)
    assert world.pop(9) == []
    assert world.pop(10) == [b"a"]


def test_a_peek_before_the_first_job_lists_none() -> None:
    """The script makes due jobs ready first, and then a list that begins with nil."""
    world = Qless()
    world.put(0, b"a")
    world.put(1, b"b", delay=5)
    assert world.job(b"b").state == q.SCHEDULED
    for offset in (-1, -9):
        assert world.give(popping.peek, 9, b"q", offset, 11) == ()
    assert world.give(popping.peek, 9, b"q", -(10**6), 10**6 + 1) == (), "it is not too much"
    assert world.job(b"b").state == q.WAITING


def test_a_paused_queue_gives_nothing_and_sees_nobody() -> None:
    world = Qless()
    world.put(0, b"a")
    world.t.queue(b"q").paused = True
    assert world.pop(1) == []
    assert b"w" not in world.t.workers
    world.t.queue(b"q").paused = False
    assert world.pop(1) == [b"a"]


def test_a_queue_that_nobody_knows_gives_nothing_but_sees_the_worker() -> None:
    world = Qless()
    assert world.pop(1, queue=b"nothing") == []
    assert b"w" in world.t.workers
    assert not world.t.queues


def test_concurrency_has_a_bound_where_there_are_no_throttles() -> None:
    world = Qless(q.UNIFIED)
    world.t.set_option(b"q-max-concurrency", b"2")
    world.t.set_option(b"grace-period", b"0")
    for number, jid in enumerate((b"a", b"b", b"c")):
        world.put(number / 10, jid)
    assert world.pop(1, 5) == [b"a", b"b"]
    assert world.pop(2, 5) == []
    assert world.pop(100, 5) == [b"a", b"b"]  # locks that have ended do not count
    world.done(101, b"a")
    assert world.pop(102, 5) == [b"c"]


def test_throttles_bound_the_jobs_that_run() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    for number, jid in enumerate((b"a", b"b", b"c")):
        world.put(number / 10, jid, throttles=(b"t",))
    assert world.pop(1, 3) == [b"a"]
    assert world.job(b"b").state == q.THROTTLED
    assert list(world.t.throttles[b"t"].pending) == [b"b", b"c"]
    assert len(world.t.queues[b"q"].throttled) == 2
    world.done(2, b"a")
    assert world.job(b"b").state == q.THROTTLED
    assert list(world.t.queues[b"q"].work) == [b"b"]
    assert world.pop(3, 3) == [b"b"]


def test_a_full_queue_gives_only_jobs_whose_locks_ended() -> None:
    world = Qless()
    world.t.set_option(b"grace-period", b"0")
    world.give(throttles.throttle_set, 0, b"ql:q:q", 1, 0)
    world.put(0, b"a")
    world.put(1, b"b")
    assert world.pop(2, 2) == [b"a"]
    assert world.pop(3, 2) == []
    assert world.pop(100, 2) == [b"a"]


def test_more_rounds_find_jobs_that_nothing_holds_back() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    world.put(0, b"a", throttles=(b"t",))
    world.put(1, b"b", throttles=(b"t",))
    world.put(2, b"c")
    world.t.set_option(b"max-pop-retry", b"2")
    assert world.pop(3, 2) == [b"a", b"c"]


def test_a_pop_of_more_than_a_call_may_touch_is_refused_if_there_are_more() -> None:
    world = Qless(q.CORE)
    most = q.CALL_JOBS_MAX
    for number in range(3):
        world.put(0, b"%d" % number)
    assert len(world.pop(1, most * 100)) == 3
    for number in range(most + 1):
        args = (b"q", b"j%d" % number, b"K", b"{}", 0.0, *[None] * 4, (), None, False)
        assert putting.put(world.t, q.CORE, 2.0, args)[0] == q.OK
    before = dict(world.t.workers._scores)
    assert world.call(popping.pop, 3, b"q", b"new", most + 1)[0] == q.TOO_MUCH
    assert world.t.workers._scores == before
    assert world.call(popping.peek, 3, b"q", 0, most + 1)[0] == q.TOO_MUCH
    assert len(world.pop(3, most)) == most


def test_large_jobs_come_in_several_pops() -> None:
    world = Qless()
    data = b'"' + b"x" * (q.DATA_MAX_BYTES - 2) + b'"'
    fitting = q.ANSWER_MAX_BYTES // len(data)
    for number in range(20):
        world.put(number, b"%02d" % number, data=data)
    first = world.pop(100, 20)
    assert len(first) == fitting - 1  # histories need some of the room
    assert world.call(popping.peek, 100, b"q", 0, 20)[0] == q.OK
    second = world.pop(100, 20)
    assert sorted(first + second) == sorted(world.t.jobs)
    assert world.call(popping.peek, 1000, b"q", 0, 20)[0] == q.TOO_MUCH
    world.t.set_option(b"grace-period", b"0")
    third = world.pop(1000, 20)
    assert len(third) == fitting - 1
    assert sum(job.remaining for job in world.t.jobs.values()) == 5 * 20 - len(third)


def test_data_that_an_answer_decodes_comes_in_smaller_pops() -> None:
    """16 jobs of 1 MiB of the strangest JSON took the node of a client of the seed form 5.6 s."""
    world = Qless(q.SEED)
    data = b'"' + b"x" * (q.DATA_MAX_BYTES // 4 - 2) + b'"'
    for number in range(8):
        world.put(number, b"%d" % number, data=data)
    assert world.call(popping.peek, 100, b"q", 0, 8) == limits.ANSWER
    first = world.pop(100, 8)
    assert len(first) == 3  # histories need some of the room of a mebibyte
    assert len(world.give(popping.peek, 100, b"q", 0, 2)) == 2
    assert len(world.pop(1000, 8)) == 3, "locks have ended"
    world.flavour = q.CORE
    assert len(world.give(popping.peek, 100, b"q", 0, 8)) == 5


def test_one_worker_more_than_the_limit_replaces_the_one_not_seen_for_longest() -> None:
    world = Qless()
    world.put(0, b"a")
    assert world.pop(1, worker=b"first") == [b"a"]
    for number in range(1, q.WORKERS_MAX):
        world.t.workers.add(b"%d" % number, 2.0)
    assert world.pop(3, worker=b"late") == []
    assert len(world.t.workers) == q.WORKERS_MAX
    assert b"late" in world.t.workers and b"first" not in world.t.workers
    assert list(world.t.leases) == [b"first"], "it keeps its job"
    assert world.pop(4, worker=b"7") == []
    assert len(world.t.workers) == q.WORKERS_MAX


def test_peek_shows_what_a_pop_would_give_without_locks() -> None:
    world = Qless()
    for number in range(4):
        world.put(number, b"%d" % number)
    world.put(0, b"soon", delay=5)
    world.pop(4)

    def peek(now: float, offset: int, count: int) -> list[bytes]:
        return [view.jid for view in world.give(popping.peek, now, b"q", offset, count)]

    assert peek(4, 0, 2) == [b"1", b"2"]
    assert peek(4, 1, 10) == [b"2", b"3"]
    assert peek(100, 0, 10) == [b"0", b"1", b"2", b"3", b"soon"]
    assert peek(100, 1, 2) == [b"1", b"2"]
    assert peek(100, 4, 2) == [b"soon"]
    assert peek(100, 50, 2) == []
    far = world.call(popping.peek, 4, b"q", q.LISTED_MAX + 1, 1)
    assert far[0] == q.TOO_MUCH
    assert peek(100, 0, 0) == []
    assert world.job(b"0").state == q.RUNNING
    assert world.give(popping.peek, 4, b"nothing", 0, 1) == ()


def test_a_stalled_job_is_the_next() -> None:
    world = Qless()
    world.put(0, b"a")
    world.put(1, b"urgent", priority=1e15)
    assert world.pop(2, 2) == [b"urgent", b"a"]
    world.give(locks.timeout, 3, (b"a",))
    world.put(4, b"b", priority=1e15)
    assert world.pop(5) == [b"a"]


def test_throttles_of_popped_jobs_are_work_as_well() -> None:
    """Jobs with 90 throttles count as ten jobs, so a pop examines a hundred of them."""
    world = Qless()
    names = tuple(b"t%d" % number for number in range(90))
    for number in range(110):
        job = waiting_job(world.t, b"%03d" % number)
        job.throttles = names
    popped = world.give(popping.pop, 1, b"q", b"w", q.CALL_JOBS_MAX)
    assert len(popped) == 100
    assert len(world.give(popping.pop, 1, b"q", b"w", q.CALL_JOBS_MAX)) == 10
