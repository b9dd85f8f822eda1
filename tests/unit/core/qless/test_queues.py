"""Queues: known, paused, counted; due scheduled jobs wait."""

from beanpole import qless as q
from beanpole.core.qless import limits, queues, statistics
from beanpole.core.qless.job import WORK
from beanpole.core.qless.tables import Day
from tests.unit.core.qless.making import empty_tables, running_job, scheduled_job, waiting_job

AS = q.CORE


def test_scheduled_jobs_wait_once_they_are_due_the_earliest_first() -> None:
    t = empty_tables()
    for jid, at in ((b"c", 30.0), (b"a", 10.0), (b"b", 20.0)):
        scheduled_job(t, jid, at).priority = 3.0
    queue = t.queue(b"q")
    assert queues.move_scheduled(t, queue, 20.0, 0) == 0
    assert queues.move_scheduled(t, queue, 20.0, 1) == 1
    assert [*queue.work] == [b"a"]
    assert queues.move_scheduled(t, queue, 20.0, 9) == 1
    job = t.jobs[b"b"]
    assert (job.place, job.state, job.score) == (WORK, q.WAITING, 3.0 - 20.0 / 1e10)
    assert [*queue.scheduled] == [b"c"]


def test_a_queue_in_numbers() -> None:
    t = empty_tables()
    queues.know(t, 5.0, b"q")
    waiting_job(t, b"w")
    running_job(t, b"r", b"w1", 60.0)
    running_job(t, b"s", b"w1", 10.0)
    scheduled_job(t, b"due", 15.0)
    scheduled_job(t, b"later", 25.0)
    queues.pause(t, AS, 0.0, ((b"q",),))
    view = q.QueueView(b"q", 2, 1, 1, 1, 0, 0, 0, True)
    assert queues.queue_counts(t, AS, 20.0, (b"q",)) == (q.OK, (view,))
    assert queues.queue_counts(t, AS, 20.0, (None,)) == (q.OK, (view,))
    assert t.jobs[b"due"].state == q.WAITING
    assert queues.length(t, AS, 20.0, (b"q",)) == (q.OK, 5)


def test_a_queue_that_nobody_knows_is_not_made_by_a_question() -> None:
    t = empty_tables()
    empty = q.QueueView(b"no", 0, 0, 0, 0, 0, 0, 0, False)
    assert queues.queue_counts(t, AS, 1.0, (b"no",)) == (q.OK, (empty,))
    assert queues.length(t, AS, 1.0, (b"no",)) == (q.OK, 0)
    queues.unpause(t, AS, 1.0, ((b"no",),))
    queues.forget_queues(t, AS, 1.0, ((b"no",),))
    assert not t.queues


def test_more_due_jobs_than_a_call_moves_count_as_if_they_were_moved() -> None:
    t = empty_tables()
    queues.know(t, 0.0, b"q")
    for number in range(1500):
        scheduled_job(t, b"%d" % number, 1.0)
    view = queues.queue_counts(t, AS, 2.0, (None,))[1][0]
    assert (view.waiting, view.scheduled) == (1500, 0)
    assert len(t.queue(b"q").work) == q.CALL_JOBS_MAX


def test_queues_are_known_in_the_order_of_time() -> None:
    t = empty_tables()
    for now, name in ((3.0, b"c"), (1.0, b"b"), (1.0, b"a"), (9.0, b"b")):
        queues.know(t, now, name)
    t.queue(b"unknown")
    assert queues.queue_names(t, AS, 0.0, ()) == (q.OK, (b"a", b"b", b"c"))
    queues.forget_queues(t, AS, 0.0, ((b"b",),))
    assert queues.queue_names(t, AS, 0.0, ()) == (q.OK, (b"a", b"c"))


def test_a_forgotten_queue_keeps_its_jobs() -> None:
    t = empty_tables()
    queues.know(t, 1.0, b"q")
    waiting_job(t, b"jid")
    queues.forget_queues(t, AS, 0.0, ((b"q",),))
    assert queues.length(t, AS, 0.0, (b"q",)) == (q.OK, 1)
    queues.know(t, 7.0, b"q")
    assert t.queue(b"q").known_at == 7.0


def test_queues_are_paused_and_go_on() -> None:
    t = empty_tables()
    queues.pause(t, AS, 0.0, ((b"a", b"b"),))
    assert t.queue(b"a").paused
    queues.unpause(t, AS, 0.0, ((b"a",),))
    assert not t.queue(b"a").paused
    assert t.queue(b"b").paused


def test_too_many_queues_are_refused() -> None:
    t = empty_tables()
    queues.pause(t, AS, 0.0, (tuple([b"%d" % number for number in range(q.QUEUES_MAX - 1)]),))
    assert queues.has_room(t, b"new")
    assert queues.pause(t, AS, 0.0, ((b"x", b"y"),))[0] == q.TOO_MUCH
    assert b"x" not in t.queues
    assert queues.pause(t, AS, 0.0, ((b"x", b"x", b"0"),)) == (q.OK, None)
    assert not queues.has_room(t, b"new")
    assert queues.has_room(t, b"x")


def test_the_statistics_that_several_queues_lose_are_bounded() -> None:
    """300,000 days took every node 0.13 s."""
    t = empty_tables()
    each = q.STATS_DAYS_MAX
    fit = (q.CALL_JOBS_MAX + 1) * statistics.DAYS_A_JOB // each
    names = [b"%d" % number for number in range(fit + 1)]
    for name in names:
        queues.know(t, 1.0, name)
        t.queue(name).days.update({day: Day() for day in range(each)})
    assert queues.forget_queues(t, AS, 0.0, (tuple(names),)) == limits.JOBS
    assert all(t.queue(name).known_at == 1.0 and t.queue(name).days for name in names)
    waiting_job(t, b"jid", names[0])  # so it keeps them
    assert queues.forget_queues(t, AS, 0.0, (tuple(names * 2),)) == (q.OK, None)
    assert [name for name in names if t.queue(name).days] == names[:1]
