"""Templates of recurring jobs: kept, changed, and the jobs that they make."""

from math import ceil, floor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import qless as q
from beanpole.core.qless import importing, limits, queues, recurring
from beanpole.core.qless.tables import Tables
from tests.unit.core.qless.making import empty_tables, fill_queues, waiting_job

AS = q.THROTTLES


def recur(t: Tables, now: float = 0.0, flavour: int = AS, **given: Any) -> q.Result:
    """Call RECUR with some arguments; the defaults are those of the original's tests."""
    of = {
        "queue": b"q",
        "jid": b"jid",
        "klass": b"klass",
        "data": b"{}",
        "interval": 60.0,
        "offset": 0.0,
        "priority": 0.0,
        "tags": (),
        "retries": 3,
        "backlog": 0.0,
        "throttles": (),
    }
    return recurring.recur(t, flavour, now, tuple((of | given).values()))


def seen(t: Tables, jid: bytes = b"jid") -> q.RecurringView:
    view = recurring.recur_get(t, AS, 0.0, (jid,))[1]
    assert isinstance(view, q.RecurringView)
    return view


def lua(
    next_at: float, interval: float, backlog: float, now: float, count: int
) -> tuple[list[float], float]:
    """Return the times of the jobs that the original makes, and when the next is due."""
    at = float(floor(next_at))
    times: list[float] = []
    if next_at > now:
        return times, next_at
    if backlog != 0 and (now - at) / interval > backlog:
        at += ceil((now - at) / interval - backlog) * interval
    while at <= now and len(times) < count:
        times.append(at)
        at += interval
        next_at = at
    return times, next_at


@given(
    st.floats(0, 1e4),
    st.sampled_from([0.5, 1.0, 7.25, 60.0, 1e5]),
    st.sampled_from([0.0, 1.0, 2.5, 10.0]),
    st.lists(st.tuples(st.floats(0, 3000), st.integers(0, 12)), max_size=6),
)
def test_jobs_are_made_as_in_the_original(
    offset: float, interval: float, backlog: float, asks: list[tuple[float, int]]
) -> None:
    t = empty_tables()
    recur(t, offset=offset, interval=interval, backlog=backlog)
    next_at, now = offset, 0.0
    for seconds, count in asks:
        now += seconds
        before = len(t.jobs)
        made = recurring.spawn(t, t.queue(b"q"), now, count)
        times, next_at = lua(next_at, interval, backlog, now, count)
        assert made == len(times)
        assert [job.time for job in t.jobs.values()][before:] == times
        assert recurring.recur_score(t, AS, now, (b"q", b"jid")) == (q.OK, next_at)
    assert [*t.jobs] == [b"jid-%d" % (number + 1) for number in range(len(t.jobs))]
    assert seen(t).count == len(t.jobs)


def test_a_made_job_is_like_its_template() -> None:
    t = empty_tables()
    recur(t, data=b"[1]", priority=4.0, tags=(b"a", b"b"), retries=2, throttles=(b"th",))
    assert recurring.spawn(t, t.queue(b"q"), 10.9, 5) == 1
    job = t.jobs[b"jid-1"]
    assert (job.klass, job.data, job.queue, job.state) == (b"klass", b"[1]", b"q", q.WAITING)
    assert (job.priority, job.retries, job.remaining) == (4.0, 2, 2)
    assert job.tags == {b"a": 10.9, b"b": 10.9}
    assert job.throttles == (b"th", b"ql:q:q")
    assert job.spawned_from == b"jid"
    assert job.history == [(0.0, q.HAS_PUT, b"q", b"")]
    assert t.queue(b"q").work.score(b"jid-1") == queues.work_score(0.0, 4.0)


def test_templates_share_what_a_call_asks_for() -> None:
    t = empty_tables()
    recur(t, jid=b"a", interval=1.0)
    recur(t, jid=b"b", interval=1.0)
    assert recurring.spawn(t, t.queue(b"q"), 3.0, 6) == 6
    assert [*t.jobs] == [b"a-1", b"a-2", b"a-3", b"a-4", b"b-1", b"b-2"]


def test_no_more_jobs_than_there_is_room_for() -> None:
    t = empty_tables()
    recur(t, interval=1.0)
    t.room = 2
    assert recurring.spawn(t, t.queue(b"q"), 9.0, 5) == 2
    t.room = 0
    assert recurring.spawn(t, t.queue(b"q"), 9.0, 5) == 0
    t.room = q.NUMBER_MAX
    assert recurring.spawn(t, t.queue(b"q"), 1e9, 10**6) == q.CALL_JOBS_MAX


def test_a_number_that_is_taken_is_left_out() -> None:
    t = empty_tables()
    waiting_job(t, b"jid-1")
    recur(t)
    assert recurring.spawn(t, t.queue(b"q"), 1.0, 1) == 0
    assert recurring.spawn(t, t.queue(b"q"), 1.0, 1) == 1
    assert [*t.jobs] == [b"jid-1", b"jid-2"]


def test_many_tags_are_given_in_several_calls() -> None:
    t = empty_tables()
    recur(t, interval=1.0, tags=tuple([b"%d" % number for number in range(q.TAGS_MAX)]))
    assert recurring.spawn(t, t.queue(b"q"), 99.0, 100) == 3
    assert recurring.spawn(t, t.queue(b"q"), 99.0, 100) == 3


@pytest.mark.parametrize(("interval", "made"), [(0.0, 5), (-1.0, 5), (5e-324, 1)])
def test_an_interval_may_become_anything(interval: float, made: int) -> None:
    t = empty_tables()
    recur(t, offset=1000.0)
    recurring.recur_update(t, AS, 0.0, (b"jid", ((b"interval", interval),)))
    recurring.recur_update(t, AS, 0.0, (b"jid", ((b"backlog", 3.0),)))
    t.room = made
    assert recurring.spawn(t, t.queue(b"q"), 2000.0, 5) == made


def test_a_template_again_is_another_one_that_counts_on() -> None:
    t = empty_tables()
    recur(t, throttles=(b"x",))
    recurring.spawn(t, t.queue(b"q"), 0.0, 1)
    recur(t, 5.0, queue=b"other", offset=2.0, throttles=(b"ql:q:q", b"y"), tags=(b"a", b"a"))
    assert len(t.queue(b"q").recurring) == 0
    view = seen(t)
    assert (view.queue, view.count, view.tags) == (b"other", 1, (b"a",))
    assert view.throttles == (b"y", b"ql:q:other")
    assert recurring.recur_score(t, AS, 0.0, (b"other", b"jid")) == (q.OK, 7.0)
    assert recurring.recur_score(t, AS, 0.0, (b"q", b"jid")) == (q.OK, None)
    assert queues.queue_names(t, AS, 0.0, ())[1] == (b"q", b"other")


def test_older_dialects_know_no_throttles() -> None:
    t = empty_tables()
    recur(t, flavour=q.CORE, throttles=None)
    recurring.recur_update(t, q.CORE, 0.0, (b"jid", ((b"queue", b"other"),)))
    assert seen(t).throttles == ()


def test_a_template_is_changed_field_by_field() -> None:
    t = empty_tables()
    recur(t, offset=10.0)
    pairs = (
        (b"priority", 5.0),
        (b"interval", 20.0),
        (b"retries", 9),
        (b"backlog", 2.0),
        (b"data", b"[]"),
        (b"klass", b"k"),
        (b"throttles", (b"th", b"ql:q:q")),
        (b"queue", b"other"),
    )
    assert recurring.recur_update(t, AS, 3.0, (b"jid", pairs)) == (q.OK, True)
    throttles = (b"th", b"ql:q:other")
    assert seen(t) == q.RecurringView(
        b"jid", b"k", b"[]", b"other", 5.0, 20.0, 9, 0, (), 2.0, throttles
    )
    assert recurring.recur_score(t, AS, 0.0, (b"other", b"jid")) == (q.OK, -30.0)
    assert t.queue(b"other").known_at == 3.0
    assert recurring.recur_update(t, AS, 3.0, (b"no", ())) == (q.NO_RECURRING, (b"no",))


def test_jobs_to_come_have_tags() -> None:
    t = empty_tables()
    recur(t)
    assert recurring.recur_tag(t, AS, 0.0, (b"jid", (b"a", b"b", b"a"))) == (q.OK, (b"a", b"b"))
    assert recurring.recur_untag(t, AS, 0.0, (b"jid", (b"a", b"no"))) == (q.OK, (b"b",))
    for call in (recurring.recur_tag, recurring.recur_untag):
        assert call(t, AS, 0.0, (b"no", (b"a",))) == (q.NO_RECURRING, (b"no",))
    many = tuple([b"%d" % number for number in range(q.TAGS_MAX)])
    assert recurring.recur_tag(t, AS, 0.0, (b"jid", many))[0] == q.TOO_MUCH
    assert seen(t).tags == (b"b",)


def test_the_tags_of_a_template_are_bounded_by_their_bytes() -> None:
    """Images do not split the record of a template."""
    t = empty_tables()
    count = q.RECURRING_TAGS_MAX_BYTES // q.NAME_MAX_BYTES
    tags = tuple([b"%d" % n + bytes(q.NAME_MAX_BYTES - len(b"%d" % n)) for n in range(count)])
    assert recur(t, tags=tags)[0] == q.OK
    assert recurring.recur_tag(t, AS, 0.0, (b"jid", tags))[0] == q.OK
    refused = (q.TOO_MUCH, (b"bytes of tags of a recurring job", q.RECURRING_TAGS_MAX_BYTES))
    assert recurring.recur_tag(t, AS, 0.0, (b"jid", (b"x",))) == refused
    assert seen(t).tags == tags
    assert recur(t, tags=(*tags, b"x")) == refused
    other = (b"q", b"other", b"K", b"{}", 1.0, 0.0, 0.0, (*tags, b"x"), 1, 0.0, None, 0)
    assert importing.import_recurring(t, AS, 0.0, other) == refused
    assert list(t.recurring) == [b"jid"]


def test_a_template_goes() -> None:
    t = empty_tables()
    recur(t)
    assert recurring.unrecur(t, AS, 0.0, (b"jid",)) == (q.OK, True)
    assert recurring.unrecur(t, AS, 0.0, (b"jid",)) == (q.OK, True)
    assert recurring.recur_get(t, AS, 0.0, (b"jid",)) == (q.OK, None)
    assert recurring.spawn(t, t.queue(b"q"), 99.0, 9) == 0
    assert recurring.recur_score(t, AS, 0.0, (b"no", b"jid")) == (q.OK, None)


def test_what_is_too_much_is_refused_before_anything_is_changed() -> None:
    t = empty_tables()
    names = tuple([b"%d" % number for number in range(q.TAGS_MAX + 1)])
    assert recur(t, tags=names)[1][0] == b"tags of a job"
    assert recur(t, throttles=names[: q.THROTTLES_MAX + 1])[1][0] == b"throttles of a job"
    assert recur(t, jid=b"x" * q.NAME_MAX_BYTES)[1][0] == b"bytes of a name"
    fill_queues(t)
    assert recur(t)[1][0] == b"queues"
    assert not t.recurring
    assert recur(t, queue=b"7")[0] == q.OK
    pairs: tuple[tuple[bytes, Any], ...] = ((b"priority", 1.0), (b"queue", b"new"))
    assert recurring.recur_update(t, AS, 0.0, (b"jid", pairs))[1][0] == b"queues"
    pairs = ((b"priority", 1.0), (b"throttles", names))
    assert recurring.recur_update(t, AS, 0.0, (b"jid", pairs))[1][0] == b"throttles of a job"
    pairs = ((b"priority", 1.0),) * (q.CHANGES_MAX + 1)
    refusal = recurring.recur_update(t, AS, 0.0, (b"jid", pairs))
    assert refusal[1] == (b"changes of a recurring job", q.CHANGES_MAX)
    assert seen(t).priority == 0.0
    for number in range(q.RECURRING_MAX - 1):
        t.recurring[b"%d" % number] = t.recurring[b"jid"]
    assert recur(t, jid=b"new", queue=b"7")[1][0] == b"recurring jobs"
    assert recur(t, queue=b"7")[0] == q.OK


def test_an_update_has_a_bounded_number_of_changes() -> None:
    """10,000 changes of the queue took every node 0.1 s."""
    t = empty_tables()
    recur(t)
    pairs = tuple((b"queue", b"q%d" % (number % 2)) for number in range(q.CHANGES_MAX + 1))
    assert recurring.recur_update(t, AS, 0.0, (b"jid", pairs)) == limits.CHANGES
    assert t.recurring[b"jid"].queue == b"q"
    assert recurring.recur_update(t, AS, 0.0, (b"jid", pairs[1:])) == (q.OK, True)
    assert t.recurring[b"jid"].queue == b"q0"
