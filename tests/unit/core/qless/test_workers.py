"""Workers: seen, forgotten, and their jobs."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole import qless as q
from beanpole.core.machine import Machine
from beanpole.core.operations import qless
from beanpole.core.qless import config, ranges, workers
from beanpole.core.qless.scores import INFINITY, Scores
from tests.unit.core.cluster import Cluster
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


class Counting(dict[bytes, Scores]):
    """Leases that count how often those of a worker are looked at."""

    looked = 0

    def get(self, worker: bytes, default: Any = None) -> Any:
        self.looked += 1
        return super().get(worker, default)


@pytest.mark.constants
def test_only_the_node_of_the_client_counts() -> None:
    """With 100,000 workers, one call took 0.4 s of every node."""
    cluster, other = Cluster(), Machine()
    cluster.lead((c.RAISE, c.MACHINE_VERSION))
    cluster.open(1)
    cluster.do(c.SET_PROTOCOL, 1, e.QLESS)
    for worker in (b"old", b"w1", b"w2"):
        now = 0.0 if worker == b"old" else 100_000.0
        cluster.do(*qless.command(1, q.POP, AS, now, (b"q", worker, 1)))
    for entry in cluster.log:
        other.apply(*entry)
    found = []
    for machine in (cluster.machine, other):
        machine.qless.leases = Counting()
        found.append(machine.qless.leases)
    result = cluster.do(*qless.command(1, q.WORKER_COUNTS, AS, 100_000.0, ()))
    other.apply(*cluster.log[-1])
    assert result == (q.OK, (q.WorkerView(b"w2", 0, 0), q.WorkerView(b"w1", 0, 0)))
    assert [leases.looked for leases in found] == [3, 1], "both forget the old one"
    assert [*other.qless.workers] == [*cluster.machine.qless.workers] == [b"w1", b"w2"]
    assert other.state_hash == cluster.machine.state_hash


@pytest.mark.constants
def test_jobs_of_a_worker_are_counted_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four searches took 4 us for each worker."""

    def searched(*_args: Any) -> int:
        raise AssertionError("the locks are searched")

    monkeypatch.setattr(ranges, "count_between", searched)
    t = empty_tables()
    for number, until in enumerate((10.0, 20.0)):
        worker = b"w%d" % number
        workers.seen(t, 1.0, worker)
        for one in range(3):
            running_job(t, b"%s-%d" % (worker, one), worker, until)
    expected = (q.WorkerView(b"w1", 3, 0), q.WorkerView(b"w0", 0, 3))
    assert workers.worker_counts(t, AS, 15.0, ()) == (q.OK, expected)


@pytest.mark.parametrize("now", [-1.0, 0.0, 15.0, 20.0, 30.0, workers.LOCKS_AHEAD])
@pytest.mark.parametrize("first", [-5.0, 0.0, 15.0, 20.0])
@pytest.mark.parametrize("last", [20.0, 20.0 + workers.LOCKS_AHEAD, INFINITY])
def test_jobs_are_counted_as_by_a_search(now: float, first: float, last: float) -> None:
    t = empty_tables()
    workers.seen(t, now, b"w")
    running_job(t, b"a", b"w", first)
    running_job(t, b"b", b"w", last)
    held = t.leases[b"w"]
    jobs = ranges.count_between(held, now, now + workers.LOCKS_AHEAD)
    expected = q.WorkerView(b"w", jobs, ranges.count_between(held, 0.0, now))
    assert workers.worker_counts(t, AS, now, ()) == (q.OK, (expected,))


@pytest.mark.parametrize("age", [b"50", b"150", b"-50"])
def test_workers_that_a_call_leaves_are_not_shown_if_they_are_old(age: bytes) -> None:
    """Times below 0 are never old."""
    t = empty_tables()
    config.config_set(t, AS, 0.0, (b"max-worker-age", age))
    shown = []
    for when in (-2.0, -1.0, 0.0, 50.0, 51.0, 100.0):
        name = b"%d" % when
        workers.seen(t, when, name)
        for number in range(400):
            running_job(t, b"%s-%d" % (name, number), name, 1e6)
        if not 0 <= when <= 100.0 - float(age):
            shown.append(name)
    views = workers.worker_counts(t, AS, 100.0, ())[1]
    assert [view.name for view in views] == shown[::-1]
