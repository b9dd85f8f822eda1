"""Throttles: permanent and expiring maxima, locks, and the jobs that wait for them."""

import pytest

from beanpole import qless as q
from beanpole.core.qless import cancelling, throttles
from beanpole.core.qless.job import THROTTLED_SINCE, WORK
from tests.unit.core.qless.checking import Qless

SECOND_US = 1_000_000


def bounded(maximum: int, jobs: int) -> Qless:
    """Make jobs of a throttle, and run as many as its maximum allows."""
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", maximum, 0)
    for number in range(jobs):
        world.put(number, b"%03d" % number, throttles=(b"t",))
    world.pop(jobs, jobs)
    return world


def test_a_bound_is_shown_with_the_time_that_it_lasts() -> None:
    world = Qless()
    assert world.give(throttles.throttle_get, 0, b"t") == (0, -2)
    world.give(throttles.throttle_set, 0, b"t", 3, 0)
    assert world.give(throttles.throttle_get, 0, b"t") == (3, -1)
    world.t.kernel.now_us = 10 * SECOND_US
    world.give(throttles.throttle_set, 0, b"t", 4, 20)
    assert world.give(throttles.throttle_get, 0, b"t") == (4, 20)
    world.t.kernel.now_us = 15 * SECOND_US
    world.give(throttles.throttle_set, 0, b"t", 5, 0)
    assert world.give(throttles.throttle_get, 0, b"t") == (5, 15)
    world.t.kernel.now_us = 30 * SECOND_US
    assert world.give(throttles.throttle_get, 0, b"t") == (0, -2)
    assert throttles.available(world.t, b"t")
    world.give(throttles.throttle_set, 0, b"t", 6, 0)
    assert world.give(throttles.throttle_get, 0, b"t") == (6, -1)
    world.give(throttles.throttle_delete, 0, b"t")
    assert world.give(throttles.throttle_get, 0, b"t") == (0, -2)
    assert not world.t.throttles
    world.give(throttles.throttle_delete, 0, b"none")


def test_locks_and_pending_jobs_are_listed() -> None:
    world = bounded(2, 4)
    assert world.give(throttles.throttle_locks, 5, b"t") == (b"000", b"001")
    assert world.give(throttles.throttle_pending, 5, b"t") == (b"002", b"003")
    assert world.give(throttles.throttle_locks, 5, b"none") == ()
    assert world.give(throttles.throttle_pending, 5, b"none") == ()


def test_a_bound_that_ends_holds_nobody_back() -> None:
    world = bounded(1, 3)
    world.give(throttles.throttle_set, 5, b"t", 1, 10)
    world.t.kernel.now_us = 11 * SECOND_US
    world.put(6, b"new", throttles=(b"t",))
    assert world.pop(7, 5) == [b"new"]
    world.done(8, b"000")
    assert sorted(world.pop(9, 5)) == [b"001", b"002"]


def test_a_lower_bound_takes_no_locks_and_gives_none() -> None:
    world = bounded(3, 5)
    world.give(throttles.throttle_set, 5, b"t", 1, 0)
    assert len(world.t.throttles[b"t"].locks) == 3
    world.done(6, b"000")
    world.done(6, b"001")
    assert world.pop(7, 5) == []
    world.done(8, b"002")
    assert world.pop(9, 5) == [b"003"]


def test_a_higher_bound_lets_a_bounded_number_go() -> None:
    many = throttles.RELEASED_MAX + 20
    world = bounded(1, many)
    world.give(throttles.throttle_set, 5, b"t", 1000, 0)
    world.done(many, b"000")
    assert len(world.t.queues[b"q"].work) == throttles.RELEASED_MAX
    assert len(world.pop(many, many)) == throttles.RELEASED_MAX
    world.done(many + 1, b"001")
    assert len(world.pop(many + 2, many)) == 19


def test_without_a_bound_ten_go() -> None:
    world = bounded(1, 15)
    world.give(throttles.throttle_delete, 16, b"t")
    world.done(17, b"000")
    assert len(world.t.queues[b"q"].work) == 10


def test_a_client_may_take_locks_from_jobs_that_run() -> None:
    world = bounded(1, 3)
    world.give(throttles.throttle_release, 5, b"t", (b"000",))
    assert world.job(b"000").state == q.RUNNING
    assert world.pop(6, 5) == [b"001"]
    world.done(7, b"000")
    assert list(world.t.throttles[b"t"].locks) == [b"001"]


def test_a_client_may_let_a_pending_job_wait_again() -> None:
    world = bounded(1, 3)
    world.give(throttles.throttle_release, 5, b"t", (b"002",))
    assert list(world.t.queues[b"q"].work) == [b"002"]
    assert world.pop(6, 5) == []
    assert world.give(throttles.throttle_pending, 7, b"t") == (b"001", b"002")
    # Its history records only once that it is throttled.
    assert [item[1] for item in world.job(b"002").history] == [q.HAS_PUT, q.HAS_THROTTLED]


@pytest.mark.constants
def test_bounds_that_ended_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(q, "THROTTLES_ALL_MAX", 6)
    world = bounded(1, 2)
    world.give(throttles.throttle_set, 0, b"t", 1, 1)  # it has a lock and a pending job
    for number in range(4):
        world.give(throttles.throttle_set, 0, b"%d" % number, 1, 1 if number else 2)
    assert world.call(throttles.throttle_set, 0, b"new", 1, 0)[0] == q.TOO_MUCH
    world.t.kernel.now_us = SECOND_US
    world.give(throttles.throttle_set, 0, b"1", 7, 0)  # has ended, and begins anew
    assert set(world.t.throttles) == {b"t", b"ql:q:q", b"0", b"1"}
    assert list(world.t.throttle_ends) == [b"0"]
    assert not world.t.throttles[b"t"].is_set
    world.give(throttles.throttle_delete, 0, b"0")
    assert not len(world.t.throttle_ends)
    world.give(throttles.throttle_set, 0, b"new", 1, 0)


@pytest.mark.slow  # as many throttles as there may be
def test_limits() -> None:
    world = Qless()
    many = tuple(b"%d" % number for number in range(q.CALL_JOBS_MAX + 1))
    assert world.call(throttles.throttle_release, 0, b"t", many)[0] == q.TOO_MUCH
    assert world.give(throttles.throttle_release, 0, b"t", many[1:]) is None
    assert not world.t.throttles
    for number in range(q.THROTTLES_ALL_MAX):
        world.t.throttle(b"%d" % number)
    assert world.call(throttles.throttle_set, 0, b"t", 1, 0)[0] == q.TOO_MUCH
    assert world.call(throttles.throttle_set, 0, b"7", 1, 0)[0] == q.OK


def test_a_job_waits_for_one_throttle_at_a_time() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"x", 1, 0)
    world.give(throttles.throttle_set, 0, b"y", 1, 0)
    world.put(0, b"a", throttles=(b"x",))
    world.put(1, b"b", throttles=(b"y",))
    world.put(2, b"c", throttles=(b"x", b"y"))
    assert world.pop(3, 3) == [b"a", b"b"]
    assert world.give(throttles.throttle_pending, 3, b"x") == (b"c",)
    world.done(4, b"a")
    assert world.pop(5, 3) == []
    assert world.give(throttles.throttle_pending, 3, b"y") == (b"c",)
    assert len(world.t.throttles[b"ql:q:q"].locks) == 1
    world.done(6, b"b")
    assert world.pop(7, 3) == [b"c"]


def test_a_job_that_is_canceled_before_its_pop_lets_one_go_on() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    for now, jid in enumerate((b"a", b"b", b"c", b"d", b"e")):
        world.put(now, jid, throttles=(b"t",))
    assert world.pop(5, 1) == [b"a"]
    assert world.pop(6, 4) == []
    world.done(7, b"a")
    world.give(cancelling.cancel, 8, (b"b",))
    places = [world.job(jid).place for jid in (b"c", b"d", b"e")]
    assert places == [WORK, THROTTLED_SINCE, THROTTLED_SINCE]
    for now, jid in enumerate((b"c", b"d", b"e"), 9):
        assert world.pop(now, 3) == [jid]
        world.done(now, jid)


@pytest.mark.parametrize("names", [(), (b"t",)])
def test_a_job_that_moves_before_its_pop_lets_the_next_one_go_on(names: tuple[bytes, ...]) -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    for now, jid in enumerate((b"a", b"b", b"c")):
        world.put(now, jid, throttles=(b"t",))
    assert world.pop(3, 1) == [b"a"]
    assert world.pop(4, 2) == []
    world.done(5, b"a")
    assert [world.job(jid).place for jid in (b"b", b"c")] == [WORK, THROTTLED_SINCE]
    world.put(6, b"b", queue=b"other", throttles=names)
    assert world.pop(7, 2) == [b"c"], "it would wait for ever"
    world.done(8, b"c")
    assert world.pop(9, 2, queue=b"other") == [b"b"]
