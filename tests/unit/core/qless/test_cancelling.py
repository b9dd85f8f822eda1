"""Cancel: jobs disappear without a trace."""

from beanpole import qless as q
from beanpole.core.qless import cancelling, failing, limits, locks, throttles
from tests.unit.core.qless.checking import Qless


def test_a_canceled_job_leaves_nothing_behind() -> None:
    world = Qless()
    world.put(0, b"b")
    world.pop(0)
    world.done(0, b"b")
    world.t.tracked.add(b"a", 0.0)
    ends = (
        lambda: None,
        lambda: world.put(1, b"a", delay=5),
        lambda: world.put(1, b"c") and world.put(1, b"a", depends=(b"c",)),
        lambda: world.pop(1, worker=b"other"),
        lambda: world.pop(1) and world.give(locks.timeout, 2, (b"a",)),
        lambda: world.pop(1) and world.give(failing.fail, 2, b"a", b"w", b"g", b"m", None),
    )
    for end in ends:
        world.put(1, b"a", tags=(b"t",), priority=9.0)
        end()
        world.said()
        worker = world.job(b"a").worker
        assert world.give(cancelling.cancel, 3, (b"a",)) is None
        assert b"a" not in world.t.jobs
        assert not world.t.tagged
        assert not world.t.leases
        assert not world.t.groups
        expected = [(b"log", b"canceled"), (b"canceled", b"a")]
        if worker:
            expected.insert(1, (b"w:" + worker, b"canceled"))
        assert world.said() == expected
        assert b"a" in world.t.tracked  # clients are shown that it is gone


def test_complete_jobs_stay_and_unknown_ones_are_announced() -> None:
    world = Qless()
    world.put(0, b"a")
    world.pop(1)
    world.done(2, b"a")
    world.said()
    assert world.give(cancelling.cancel, 3, (b"a", b"none")) is None
    assert list(world.t.jobs) == [b"a"]
    ((channel, pairs),) = world.t.messages
    assert channel == b"log"
    assert not isinstance(pairs, bytes)
    assert dict(pairs) == {
        b"jid": b"none",
        b"event": b"canceled",
        b"worker": None,
        b"queue": None,
    }


def test_a_job_goes_only_with_those_that_depend_on_it() -> None:
    world = Qless()
    world.put(0, b"a")
    world.put(0, b"b", depends=(b"a",))
    refused = world.call(cancelling.cancel, 1, (b"none", b"a"))
    assert refused == (q.HAS_DEPENDENT, (b"a", b"b"))
    assert len(world.t.jobs) == 2
    assert world.give(cancelling.cancel, 1, (b"a", b"b")) is None
    assert not world.t.jobs
    world.put(0, b"a")
    world.put(0, b"b", depends=(b"a",))
    assert world.give(cancelling.cancel, 1, (b"b",)) is None
    assert not world.job(b"a").dependents


def test_a_cancel_touches_a_bounded_number_of_jobs() -> None:
    world = Qless()
    many = tuple(b"%d" % number for number in range(q.CALL_JOBS_MAX + 1))
    assert world.call(cancelling.cancel, 0, many)[0] == q.TOO_MUCH
    assert world.give(cancelling.cancel, 0, many[:-1]) is None
    half = q.CALL_JOBS_MAX // 2
    for number in range(half):
        world.put(0, b"%d" % number)
    world.put(0, b"a", depends=many[:half])
    world.put(0, b"b", depends=many[:half])
    assert world.call(cancelling.cancel, 1, (b"a", b"b"))[0] == q.TOO_MUCH
    assert world.give(cancelling.cancel, 1, (b"a",)) is None


def test_locks_of_throttles_go_to_others() -> None:
    world = Qless()
    world.give(throttles.throttle_set, 0, b"t", 1, 0)
    for number in range(4):
        world.put(number, b"%d" % number, throttles=(b"t",))
    assert world.pop(5, 4) == [b"0"]
    world.give(cancelling.cancel, 6, (b"2",))
    assert list(world.t.throttles[b"t"].pending) == [b"1", b"3"]
    world.give(cancelling.cancel, 6, (b"0",))
    assert world.pop(7, 4) == [b"1"]
    assert list(world.t.throttles[b"t"].pending) == [b"3"]


def test_dependents_of_a_removed_job_wait_no_longer() -> None:
    world = Qless()
    world.put(0, b"a")
    world.put(0, b"b", depends=(b"a",))
    cancelling.remove(world.t, world.job(b"a"), 1.0)
    world.settle()
    assert world.pop(2, 2) == [b"b"]


def test_throttles_of_canceled_and_timed_out_jobs_are_work_as_well() -> None:
    """98 throttles of each of 1,000 jobs took every node half a second, though no job waited."""
    world = Qless()
    names = tuple(b"t%d" % number for number in range(q.THROTTLES_MAX - 1))
    fit = q.CALL_JOBS_MAX // (1 + q.THROTTLES_MAX // throttles.FREE)
    some = tuple(b"%d" % number for number in range(fit + 1))
    for jid in some:
        world.put(0, jid, throttles=names)
    assert len(world.pop(1, len(some))) == len(some)
    for call in (locks.timeout, cancelling.cancel):
        assert world.call(call, 2, some) == limits.JOBS
        assert world.job(some[0]).state == q.RUNNING
    assert world.give(locks.timeout, 2, some[1:]) is None
    assert world.give(cancelling.cancel, 2, some[1:]) is None
    assert list(world.t.jobs) == [some[0]]


def test_tags_of_canceled_jobs_are_work_as_well() -> None:
    world = Qless()
    tags = tuple(b"t%d" % number for number in range(q.TAGS_MAX))
    for number in range(10):
        world.put(0, b"%d" % number, tags=tags)
    some = tuple(b"%d" % number for number in range(10))
    assert world.call(cancelling.cancel, 1, some) == limits.JOBS
    assert world.give(cancelling.cancel, 1, some[:9]) is None
    assert list(world.t.jobs) == [b"9"]
