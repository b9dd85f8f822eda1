"""Views of jobs, and tracked jobs."""

from collections.abc import Iterator
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core.qless import limits, sizes, tracking, views
from tests.unit.core.qless.making import empty_tables, waiting_job

AS = q.CORE


def test_a_job_as_it_is() -> None:
    t = empty_tables()
    job = waiting_job(t, b"jid", b"q", 7.0)
    job.tags[b"tag"] = 1.0
    job.dependents[b"other"] = None
    view = views.get(t, AS, 0.0, (b"jid",))[1]
    assert view == views.job_view(t, job)
    assert (view.jid, view.klass, view.queue, view.state) == (b"jid", b"Klass", b"q", q.WAITING)
    assert (view.tags, view.dependents, view.dependencies) == ((b"tag",), (b"other",), ())
    assert views.get(t, AS, 0.0, (b"no",)) == (q.OK, None)


def test_several_jobs_without_those_that_are_not_there() -> None:
    t = empty_tables()
    for jid in (b"a", b"b"):
        waiting_job(t, jid)
    found = views.multiget(t, AS, 0.0, ((b"b", b"no", b"a"),))[1]
    assert [view.jid for view in found] == [b"b", b"a"]
    many = tuple([b"%d" % number for number in range(q.CALL_JOBS_MAX + 1)])
    assert views.multiget(t, AS, 0.0, (many,))[0] == q.TOO_MUCH


def test_too_large_an_answer_is_refused() -> None:
    t = empty_tables()
    waiting_job(t, b"a").data = b"x" * q.DATA_MAX_BYTES
    waiting_job(t, b"b").data = b"x" * q.ANSWER_MAX_BYTES
    assert views.multiget(t, AS, 0.0, ((b"a", b"b"),))[0] == q.TOO_MUCH
    assert len(views.multiget(t, AS, 0.0, ((b"b",),))[1]) == 1


def test_data_counts_more_where_it_is_decoded() -> None:
    t = empty_tables()
    for jid in (b"a", b"b"):
        waiting_job(t, jid).data = b"x" * (q.DATA_MAX_BYTES // 2)
        t.tracked.add(jid, 0.0)
    assert views.multiget(t, q.SEED, 0.0, ((b"a", b"b"),)) == limits.ANSWER
    assert views.tracked(t, q.SEED, 0.0, ()) == limits.ANSWER
    assert views.tracked(t, AS, 0.0, ())[0] == q.OK
    t.tracked.remove(b"b")
    t.jobs[b"a"].data *= 2
    assert len(views.tracked(t, q.SEED, 0.0, ())[1][0]) == 1, "a single job is always shown"


class Unread(dict[bytes, Any]):
    """Names over which nothing may iterate."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError


@pytest.mark.constants
def test_a_job_is_weighed_without_a_look_at_each_of_its_names() -> None:
    """A completion weighs a thousand dependents, each of which may have a thousand names."""
    job = waiting_job(empty_tables(), b"a")
    before = sizes.of_job(job)
    job.tags = Unread({b"a": 1.0})
    job.dependencies, job.dependents = Unread({b"b": None}), Unread({b"c": None})
    job.texts = 3
    assert sizes.of_job(job) == before + 3 + 3 * sizes.NAME_BYTES


def test_the_names_that_a_job_has_count_in_an_answer() -> None:
    """A call may name one job a thousand times, and 1,000 tags may have 2 MB."""
    t = empty_tables()
    for jid in (b"tags", b"dependencies", b"dependents", b"throttles"):
        names = tuple(b"%d" % number + bytes(4000) for number in range(100))
        job = waiting_job(t, jid)
        setattr(job, jid.decode(), type(getattr(job, jid.decode()))(dict.fromkeys(names)))
        job.texts = 0 if jid == b"throttles" else sum(map(len, names))
        times = q.ANSWER_MAX_BYTES // 400_000
        assert views.multiget(t, AS, 0.0, ((jid,) * (times + 1),))[0] == q.TOO_MUCH
        assert len(views.multiget(t, AS, 0.0, ((jid,) * (times - 1),))[1]) == times - 1


def test_jobs_are_tracked_by_the_time_since_when() -> None:
    t = empty_tables()
    waiting_job(t, b"a")
    waiting_job(t, b"b")
    assert tracking.track(t, AS, 2.0, (b"a",)) == (q.OK, True)
    assert tracking.track(t, AS, 1.0, (b"b",)) == (q.OK, True)
    assert tracking.track(t, AS, 2.0, (b"a",)) == (q.OK, False)
    assert tracking.is_tracked(t, b"a")
    jobs, gone = views.tracked(t, AS, 9.0, ())[1]
    assert [(job.jid, job.tracked) for job in jobs] == [(b"b", True), (b"a", True)]
    assert gone == ()
    assert tracking.untrack(t, AS, 3.0, (b"a",)) == (q.OK, True)
    assert tracking.untrack(t, AS, 3.0, (b"a",)) == (q.OK, False)
    assert not tracking.is_tracked(t, b"a")
    said = [(b"track", b"a"), (b"track", b"b"), (b"track", b"a"), *[(b"untrack", b"a")] * 2]
    assert t.messages == said


def test_a_job_that_is_gone_is_still_tracked() -> None:
    t = empty_tables()
    job = waiting_job(t, b"a")
    tracking.track(t, AS, 2.0, (b"a",))
    t.unplace(job)
    t.forget(job)
    assert views.tracked(t, AS, 9.0, ())[1] == ((), (b"a",))
    assert tracking.untrack(t, AS, 9.0, (b"a",)) == (q.NO_JOB, (b"a",))
    assert tracking.untrack(t, q.SEED, 9.0, (b"a",)) == (q.OK, True)


def test_jobs_that_are_gone_make_room_for_others() -> None:
    t = empty_tables()
    for number in range(q.TRACKED_MAX):
        t.tracked.add(b"gone-%d" % number, float(number))
    waiting_job(t, b"a")
    assert tracking.track(t, AS, 2.0, (b"a",)) == (q.OK, True)
    assert not tracking.is_tracked(t, b"gone-0")
    for jid in [*t.tracked]:
        if jid not in t.jobs:
            waiting_job(t, jid)
    waiting_job(t, b"b")
    assert tracking.track(t, AS, 2.0, (b"b",))[0] == q.TOO_MUCH


def test_items_of_histories_count_in_an_answer() -> None:
    t = empty_tables()
    item = (1.0, q.HAS_PUT, b"", b"")
    jids = [b"%d" % number for number in range(350)]
    for jid in jids:
        waiting_job(t, jid).history.extend([item] * 1000)
        tracking.track(t, AS, 0.0, (jid,))
    assert views.multiget(t, AS, 0.0, (tuple(jids[:200]),))[0] == q.OK
    assert views.tracked(t, AS, 0.0, ()) == limits.ANSWER
    assert views.multiget(t, AS, 0.0, (tuple(jids),)) == limits.ANSWER
