"""Dependencies that are added and removed, and priorities."""

from beanpole import qless as q
from beanpole.core.qless import dependencies, ordering, putting
from tests.unit.core.qless.checking import Qless


def depending(flavour: int = q.THROTTLES, delay: float = 0) -> Qless:
    world = Qless(flavour)
    world.put(0, b"a")
    world.put(0, b"b")
    world.put(1, b"c", depends=(b"a",), delay=delay)
    return world


def test_dependencies_are_added() -> None:
    world = depending()
    assert world.give(dependencies.depends_on, 2, b"c", (b"a", b"b", b"none", b"b")) is True
    assert list(world.job(b"c").dependencies) == [b"a", b"b"]
    world.pop(3, 2)
    world.done(4, b"a")
    assert world.job(b"c").state == q.DEPENDS
    assert world.give(dependencies.depends_on, 2, b"c", (b"a",)) is True
    assert list(world.job(b"c").dependencies) == [b"b"]


def test_only_a_job_that_depends_may_depend_on_more() -> None:
    world = depending()
    for handler in (dependencies.depends_on, dependencies.depends_off):
        assert world.call(handler, 2, b"a", (b"b",)) == (q.NOT_DEPENDING, (b"a", q.WAITING))
        assert world.call(handler, 2, b"x", (b"b",)) == (q.NOT_DEPENDING, (b"x", 0))


def test_a_job_may_depend_on_a_bounded_number() -> None:
    world = depending()
    many = tuple(b"x%d" % number for number in range(q.DEPENDENCIES_MAX + 1))
    assert world.call(dependencies.depends_on, 2, b"c", many)[0] == q.TOO_MUCH
    assert world.give(dependencies.depends_on, 2, b"c", many[1:]) is True
    for jid in many[1:]:
        args = (b"q", jid, b"K", b"{}", 0.0, *[None] * 4, (), None, False)
        assert putting.put(world.t, q.CORE, 0.0, args)[0] == q.OK
    world.settle()
    assert world.call(dependencies.depends_on, 2, b"c", many[1:])[0] == q.TOO_MUCH
    assert world.give(dependencies.depends_on, 2, b"c", many[2:]) is True
    assert world.call(dependencies.depends_on, 2, b"c", (b"b",))[0] == q.TOO_MUCH


def test_no_job_depends_on_itself() -> None:
    world = depending()
    world.put(1, b"d", depends=(b"c",))
    refused = (q.DEPENDS_ON_ITSELF, (b"c",))
    assert world.call(dependencies.depends_on, 2, b"c", (b"c",)) == refused
    assert world.call(dependencies.depends_on, 2, b"c", (b"b", b"d")) == refused
    assert list(world.job(b"c").dependencies) == [b"a"]


def test_a_job_without_dependencies_waits() -> None:
    for jids in (None, (b"a",), (b"b", b"a", b"none")):
        world = depending(delay=10)
        assert world.give(dependencies.depends_off, 2, b"c", jids) is True
        job = world.job(b"c")
        assert (job.state, job.due, job.score) == (q.WAITING, None, -2 / 10_000_000_000)
    world = depending()
    world.give(dependencies.depends_off, 2, b"c", (b"b",))
    assert world.job(b"c").state == q.DEPENDS


def test_long_ways_are_searched_from_both_ends() -> None:
    world = Qless(q.CORE)
    world.put(0, b"root")
    # Many jobs depend on one another behind "root": too many to follow.
    layers = 12
    for layer in range(layers):
        for number in range(30):
            above = [b"%d/%d" % (layer - 1, one) for one in range(30)] if layer else [b"root"]
            jid = b"%d/%d" % (layer, number)
            args = (b"q", jid, b"K", b"{}", 0.0, *[None] * 4, tuple(above), None, False)
            assert putting.put(world.t, q.CORE, 0.0, args)[0] == q.OK
    world.settle()
    assert 30 * 30 * (layers - 1) < dependencies.SEARCHED_MAX
    end = b"%d/0" % (layers - 1)
    assert world.put(1, b"root", depends=(end,)) == (q.DEPENDS_ON_ITSELF, (b"root",))
    for number in range(200):
        above = [b"%d/%d" % (layers - 1, one) for one in range(30)]
        args = (b"q", b"x%d" % number, b"K", b"{}", 0.0, *[None] * 4, tuple(above), None, False)
        assert putting.put(world.t, q.CORE, 0.0, args)[0] == q.OK
    world.settle()
    world.put(1, b"free")
    assert world.put(1, b"root", depends=(b"free",)) == (q.OK, b"root")  # from its other end
    assert world.put(1, b"root", depends=(b"x0",))[0] in (q.DEPENDS_ON_ITSELF, q.TOO_MUCH)


def test_a_priority_moves_a_waiting_job_in_front_of_its_equals() -> None:
    world = Qless()
    for number in range(3):
        world.put(number + 1, b"%d" % number, priority=5.0)
    assert world.give(ordering.priority, 5, b"2", 5.0) == 5.0
    assert world.pop(6) == [b"2"]
    assert world.give(ordering.priority, 7, b"0", -1.0) == -1.0
    assert world.pop(8, 2) == [b"1", b"0"]
    assert world.give(ordering.priority, 9, b"0", 7.0) == 7.0
    assert world.job(b"0").priority == 7.0
    assert world.call(ordering.priority, 9, b"none", 7.0) == (q.NO_JOB, (b"none",))
