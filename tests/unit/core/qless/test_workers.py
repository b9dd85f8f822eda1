"""Workers: seen, forgotten, and their jobs."""

from beanpole import qless as q
from beanpole.core.qless import config, workers
from tests.unit.core.qless.making import empty_tables, running_job

AS = q.CORE


def test_the_worker_that_was_seen_last_comes_first() -> None:
    t = empty_tables()
    workers.seen(t, 1.0, b"w1")
    workers.seen(t, 2.0, b"w2")
    running_job(t, b"a", b"w1", 60.0)
    running_job(t, b"b", b"w1", 10.0)
    expected = (q.WorkerView(b"w2", 0, 0), q.WorkerView(b"w1", 1, 1))
    assert workers.worker_counts(t, AS, 20.0, ()) == (q.OK, expected)
    assert workers.worker_jobs(t, AS, 20.0, (b"w1",)) == (q.OK, ((b"a",), (b"b",)))
    assert workers.worker_jobs(t, AS, 20.0, (b"no",)) == (q.OK, ((), ()))


def test_a_lock_that_ends_now_is_both_held_and_stalled() -> None:
    t = empty_tables()
    workers.seen(t, 1.0, b"w")
    running_job(t, b"a", b"w", 60.0)
    assert workers.worker_counts(t, AS, 60.0, ())[1] == (q.WorkerView(b"w", 1, 1),)


def test_old_workers_are_forgotten_with_their_jobs() -> None:
    t = empty_tables()
    config.config_set(t, AS, 0.0, (b"max-worker-age", b"100"))
    workers.seen(t, 1.0, b"old")
    workers.seen(t, 50.0, b"young")
    job = running_job(t, b"a", b"old", 60.0)
    assert workers.worker_counts(t, AS, 101.0, ())[1] == (q.WorkerView(b"young", 0, 0),)
    assert [*t.workers] == [b"young"]
    assert job.lease is None
    assert not t.leases


def test_more_jobs_of_old_workers_than_a_call_touches_are_left_to_the_next() -> None:
    t = empty_tables()
    for worker in (b"w1", b"w2"):
        workers.seen(t, 0.0, worker)
        for number in range(700):
            running_job(t, b"%s-%d" % (worker, number), worker, 60.0)
    late = 100_000.0
    assert workers.worker_counts(t, AS, late, ()) == (q.OK, ())
    assert len(t.leases[b"w2"]) == 400
    assert workers.worker_jobs(t, AS, late, (b"w2",)) == (q.OK, ((), ()))
    assert not t.leases
    assert not len(t.workers)


def test_a_worker_is_forgotten_but_keeps_its_jobs() -> None:
    t = empty_tables()
    workers.seen(t, 1.0, b"w")
    running_job(t, b"a", b"w", 60.0)
    assert workers.forget_workers(t, AS, 2.0, ((b"w", b"no"),)) == (q.OK, None)
    assert workers.worker_counts(t, AS, 2.0, ()) == (q.OK, ())
    assert workers.worker_jobs(t, AS, 2.0, (b"w",)) == (q.OK, ((b"a",), ()))
