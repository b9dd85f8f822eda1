"""FLUSH removes everything, and KEYS confirms it. Patterns are kept as given."""

from collections.abc import Callable

import pytest

from beanpole import qless as q
from beanpole.core.qless import (
    config,
    dependencies,
    flushing,
    history,
    patterns,
    queues,
    recurring,
    tags,
    throttles,
    tracking,
    workers,
)
from beanpole.core.qless.tables import Day, Tables
from tests.unit.core.qless.making import empty_tables, running_job, waiting_job

AS = q.DOTTED


def test_nothing_is_left() -> None:
    t = empty_tables()
    assert flushing.keys(t, AS, 0.0, ()) == (q.OK, False)
    job = running_job(t, b"jid", b"w", 60.0)
    tags.replace(t, job, 0.0, (b"tag",))
    tracking.track(t, AS, 0.0, (b"jid",))
    workers.seen(t, 0.0, b"w")
    queues.know(t, 0.0, b"q")
    config.config_set(t, AS, 0.0, (b"a", b"b"))
    patterns.set_patterns(t, AS, 0.0, (q.PATTERNS_OF_QUEUES, ((b"x", b"[]"),)))
    t.throttle(b"th").is_set = True
    assert flushing.keys(t, AS, 0.0, ()) == (q.OK, True)
    assert flushing.flush(t, AS, 0.0, ()) == (q.OK, None)
    assert flushing.keys(t, AS, 0.0, ()) == (q.OK, False)
    assert queues.queue_names(t, AS, 0.0, ()) == (q.OK, ())
    assert tags.top_tags(t, AS, 0.0, (0, 25)) == (q.OK, ())
    assert len(t.by_id) == 0


def add_templates(t: Tables) -> None:
    queues.know(t, 0.0, b"q")
    made = (b"q", b"template", b"K", b"{}", 1.0, 0.0, 0.0, (), 1, 0.0, None)
    assert recurring.recur(t, AS, 0.0, made)[0] == q.OK


def add_throttle(t: Tables) -> None:
    assert throttles.throttle_set(t, AS, 0.0, (b"th", 1, 0))[0] == q.OK
    assert throttles.throttle_set(t, AS, 0.0, (b"other", 1, 0))[0] == q.OK


@pytest.mark.constants
@pytest.mark.parametrize(
    "add",
    [lambda t: running_job(t, b"jid", b"w", 60.0), add_templates, add_throttle],
)
def test_too_many_objects_stay(
    add: Callable[[Tables], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(q, "FLUSH_MAX", 1)
    t = empty_tables()
    add(t)
    found = len(t.jobs), len(t.recurring), len(t.throttles), len(t.queues)
    assert sum(found) == 2
    assert flushing.flush(t, AS, 0.0, ())[0] == q.TOO_MUCH
    assert (len(t.jobs), len(t.recurring), len(t.throttles), len(t.queues)) == found


def add_tags(t: Tables, count: int) -> None:
    tags.replace(t, waiting_job(t, b"jid"), 0.0, tuple([b"%d" % one for one in range(count)]))


def add_locks(t: Tables, count: int) -> None:
    job = waiting_job(t, b"jid")
    for one in range(count):
        if one % 2:
            t.lock(t.throttle(b"%d" % one), job)
        else:
            t.pend(t.throttle(b"%d" % one), job, 0.0)


def add_items(t: Tables, count: int) -> None:
    job = waiting_job(t, b"jid")
    for when in range(count):
        history.append(t, job, float(when), q.HAS_LOGGED)


def add_dependencies(t: Tables, count: int) -> None:
    others = [b"%d" % one for one in range(count)]
    for jid in others:
        waiting_job(t, jid)
    dependencies.link(t, waiting_job(t, b"jid"), others)


def add_template_tags(t: Tables, count: int) -> None:
    add_templates(t)
    t.recurring[b"template"].tags = (b"tag",) * count


def add_days(t: Tables, count: int) -> None:
    days = t.queue(b"q").days
    for day in range(count):
        days[day] = Day()


@pytest.mark.constants
@pytest.mark.parametrize(
    ("add", "count"),
    [
        (add_tags, 20),
        (add_locks, 20),
        (add_items, 80),
        (add_dependencies, 80),
        (add_template_tags, 80),
        (add_days, 4),
    ],
)
def test_tags_items_and_days_count(
    add: Callable[[Tables, int], None], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tags of 24,000 jobs, 60 of each, took 0.5 s beside the jobs."""
    for just_fits, most in ((True, count - 1), (False, count)):
        t = empty_tables()
        add(t, most)
        objects = len(t.jobs) + len(t.recurring) + len(t.throttles) + len(t.queues)
        monkeypatch.setattr(q, "FLUSH_MAX", objects)
        assert flushing.flush(t, AS, 0.0, ())[0] == (q.OK if just_fits else q.TOO_MUCH)
        assert bool(t.queues) is not just_fits


def test_patterns_take_the_place_of_others() -> None:
    t = empty_tables()
    for pairs in (((b"a", b"[1]"), (b"b", b"[2]")), ((b"c", b"[3]"), (b"b", b"[4]"))):
        patterns.set_patterns(t, AS, 0.0, (q.PATTERNS_OF_PRIORITIES, pairs))
        assert patterns.patterns(t, AS, 0.0, (q.PATTERNS_OF_PRIORITIES,)) == (q.OK, pairs)
    assert patterns.patterns(t, AS, 0.0, (q.PATTERNS_OF_QUEUES,)) == (q.OK, ())
    many = tuple([(b"%d" % number, b"") for number in range(q.OPTIONS_MAX + 1)])
    assert patterns.set_patterns(t, AS, 0.0, (q.PATTERNS_OF_QUEUES, many))[0] == q.TOO_MUCH


def test_patterns_are_edited() -> None:
    t = empty_tables()
    kind = q.PATTERNS_OF_PRIORITIES
    for all_go, pairs, before in (
        (False, ((b"", b"x"), (b"", b"y")), ()),
        (False, ((b"", b"z"),), (b"0", b"1")),
        (True, ((b"", b"w"),), (b"0", b"1", b"2")),
    ):
        edited = patterns.edit_patterns(t, AS, 0.0, (kind, all_go, pairs))
        assert edited == (q.OK, before)
    assert patterns.patterns(t, AS, 0.0, (kind,)) == (q.OK, ((b"0", b"w"),))
    for given in ((b"a", b"[1]"), (b"a", b"[2]")):
        patterns.edit_patterns(t, AS, 0.0, (q.PATTERNS_OF_QUEUES, False, (given,)))
    assert patterns.patterns(t, AS, 0.0, (q.PATTERNS_OF_QUEUES,)) == (q.OK, ((b"a", b"[2]"),))
    large = ((b"", b"x" * q.DATA_MAX_BYTES), (b"", b"x"))
    assert patterns.edit_patterns(t, AS, 0.0, (kind, True, large))[0] == q.TOO_MUCH
    assert patterns.patterns(t, AS, 0.0, (kind,)) == (q.OK, ((b"0", b"w"),))
