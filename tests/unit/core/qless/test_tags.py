"""Tags: added and removed, the jobs of a tag by time, the most frequent tags."""

from beanpole import qless as q
from beanpole.core.qless import tags
from tests.unit.core.qless.making import empty_tables, waiting_job

AS = q.CORE


def test_a_job_is_given_tags_once_each() -> None:
    t = empty_tables()
    job = waiting_job(t, b"jid")
    assert tags.tag_add(t, AS, 1.0, (b"jid", (b"a", b"b", b"a"))) == (q.OK, (b"a", b"b"))
    assert tags.tag_add(t, AS, 2.0, (b"jid", (b"a",))) == (q.OK, (b"a", b"b"))
    assert job.tags == {b"a": 2.0, b"b": 1.0}
    assert t.tagged[b"a"].score(b"jid") == 2.0
    assert t.tags.score(b"a") == 1.0
    assert tags.tag_remove(t, AS, 3.0, (b"jid", (b"a", b"no"))) == (q.OK, (b"b",))
    assert b"a" not in t.tagged
    assert b"a" not in t.tags


def test_no_tags_for_a_job_that_is_not_there() -> None:
    t = empty_tables()
    assert tags.tag_add(t, AS, 1.0, (b"no", (b"a",))) == (q.NO_JOB, (b"no",))
    assert tags.tag_remove(t, AS, 1.0, (b"no", (b"a",))) == (q.NO_JOB, (b"no",))
    assert not t.tagged


def test_too_many_tags_are_refused_before_any_is_given() -> None:
    t = empty_tables()
    job = waiting_job(t, b"jid")
    many = tuple([b"%d" % number for number in range(q.TAGS_MAX)])
    assert tags.tag_add(t, AS, 1.0, (b"jid", many))[0] == q.OK
    assert tags.tag_add(t, AS, 1.0, (b"jid", (b"0", b"one more")))[0] == q.TOO_MUCH
    assert len(job.tags) == q.TAGS_MAX
    assert b"one more" not in t.tagged


def test_jobs_of_a_tag_are_in_the_order_of_time() -> None:
    t = empty_tables()
    for number, jid in enumerate((b"c", b"a", b"b")):
        tags.replace(t, waiting_job(t, jid), float(number), (b"tag",))
    assert tags.tagged(t, AS, 9.0, (b"tag", 0, 25)) == (q.OK, (3, (b"c", b"a", b"b")))
    assert tags.tagged(t, AS, 9.0, (b"tag", 1, 1)) == (q.OK, (3, (b"a",)))
    assert tags.tagged(t, AS, 9.0, (b"no", 0, 25)) == (q.OK, (0, ()))


def test_top_tags_are_those_that_two_jobs_have() -> None:
    t = empty_tables()
    tags.replace(t, waiting_job(t, b"1"), 0.0, (b"x", b"y", b"z"))
    tags.replace(t, waiting_job(t, b"2"), 0.0, (b"x", b"y"))
    tags.replace(t, waiting_job(t, b"3"), 0.0, (b"y",))
    assert tags.top_tags(t, AS, 0.0, (0, 25)) == (q.OK, (b"y", b"x"))
    assert tags.top_tags(t, AS, 0.0, (1, 25)) == (q.OK, (b"x",))


def test_tags_are_replaced_and_dropped_without_a_trace() -> None:
    t = empty_tables()
    job = waiting_job(t, b"1")
    tags.replace(t, job, 0.0, (b"x", b"y"))
    tags.replace(t, job, 1.0, (b"y", b"z"))
    assert job.tags == {b"y": 1.0, b"z": 1.0}
    assert [*t.tagged] == [b"y", b"z"]
    tags.drop(t, job)
    assert not job.tags
    assert not t.tagged
    assert not len(t.tags)


def test_older_dialects_take_the_count_for_the_last_rank() -> None:
    t = empty_tables()
    for number in range(4):
        tags.replace(t, waiting_job(t, b"%d" % number), float(number), (b"tag",))
    assert tags.tagged(t, q.UNIFIED, 9.0, (b"tag", 1, 2)) == (q.OK, (4, (b"1", b"2")))
    assert tags.tagged(t, q.UNIFIED, 9.0, (b"tag", 0, 0)) == (q.OK, (4, (b"0",)))
