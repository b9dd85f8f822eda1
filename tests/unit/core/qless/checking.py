"""Invariants of the tables of qless, and calls for tests, each followed by a check of them."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import calls, completing, popping, putting, sizes, tags
from beanpole.core.qless import job as places
from beanpole.core.qless.job import QlessJob
from beanpole.core.qless.scores import Scores
from beanpole.core.qless.tables import Tables, Throttle
from tests.unit.core.qless.making import empty_tables

PLACES = {
    q.WAITING: (places.WORK,),
    q.RUNNING: (places.LOCKS,),
    q.SCHEDULED: (places.SCHEDULED_AT,),
    q.DEPENDS: (places.DEPENDING,),
    q.STALLED: (places.WORK,),
    # A job whose throttle has room again waits in the state THROTTLED.
    q.THROTTLED: (places.THROTTLED_SINCE, places.WORK),
    q.FAILED: (places.NOWHERE,),
    q.COMPLETE_: (places.COMPLETED,),
}


# The code of each handler of a call.
CODES = {entry.handler: code for code, entry in calls.CALLS.items()}


def check(t: Tables) -> None:
    """Assert that all tables agree with each other."""
    size = sum(sizes.of_job(job) for job in t.jobs.values())
    size += sum(sizes.of_queue(queue) for queue in t.queues.values())
    size += sum(sizes.of_recurring(template) for template in t.recurring.values())
    assert t.bytes == size
    check_names(t)
    assert [job.jid for job in t.by_id.values()] == [
        jid for jid, job in sorted(t.jobs.items(), key=lambda item: item[1].id)
    ]
    for jid, job in t.jobs.items():
        assert job.jid == jid
        _check_job(t, job)
    _check_sets(t)
    _check_throttles(t)
    for group, failed in t.groups.items():
        assert len(failed), group
        for jid in failed:
            assert t.jobs[jid].state == q.FAILED
    for worker, held in t.leases.items():
        assert len(held), worker
        for jid in held:
            assert t.jobs[jid].worker == worker
    for tag, tagged in t.tagged.items():
        assert t.tags.score(tag) == len(tagged)
        for jid in tagged:
            assert t.jobs[jid].tags[tag] == tagged.score(jid)
    assert len(t.tags) == len(t.tagged)


def check_names(t: Tables) -> None:
    """Assert that the names beside those of jobs are counted as they are."""
    names = [*t.throttles]
    for pairs in (t.config, *t.patterns):
        names += [*pairs, *pairs.values()]
    assert t.names_bytes == sum(map(len, names))
    sets = [t.workers, t.tracked, t.tags, t.completed, t.throttle_ends]
    sets += [*t.leases.values(), *t.groups.values(), *t.tagged.values()]
    for queue in t.queues.values():
        sets += [queue.work, queue.locks, queue.scheduled, queue.depends, queue.throttled]
        sets.append(queue.recurring)
    for throttle in t.throttles.values():
        sets += [throttle.locks, throttle.pending]
    for one in sets:
        assert one.bytes == sum(map(len, one))


def _check_job(t: Tables, job: QlessJob) -> None:
    assert job.place in PLACES[job.state], (job.jid, job.state, job.place)
    assert job.texts == texts_of(job), job.jid
    if job.state != q.RUNNING:
        assert job.lease is None, job.jid
        assert not job.locked, job.jid
    if job.lease is not None:
        assert t.leases[job.worker].score(job.jid) == job.lease
    assert bool(job.dependencies) == (job.state == q.DEPENDS)
    assert job.due is None or job.state == q.DEPENDS
    for jid in job.dependencies:
        assert job.jid in t.jobs[jid].dependents
        assert t.jobs[jid].state != q.COMPLETE_
    for jid in job.dependents:
        assert job.jid in t.jobs[jid].dependencies
    if job.state == q.FAILED:
        assert job.failure is not None
        assert t.groups[job.failure.group].score(job.jid) == job.failed_order
    else:
        assert job.failed_order == 0
    waits = job.place == places.THROTTLED_SINCE
    assert len(job.pending) == (1 if waits else 0), job.jid
    for name in job.locked:
        assert name in job.throttles
        assert job.jid in t.throttles[name].locks
    for name, score in job.pending:
        assert t.throttles[name].pending.score(job.jid) == score
    for tag, since in job.tags.items():
        assert t.tagged[tag].score(job.jid) == since


def texts_of(job: QlessJob) -> int:
    """Return the bytes of the texts that `job.texts` counts."""
    names = (*job.tags, *job.dependencies, *job.dependents)
    return sum(map(len, names)) + sum(len(item[2]) + len(item[3]) for item in job.history)


def _check_sets(t: Tables) -> None:
    count = 0
    for name, queue in t.queues.items():
        sets = (
            (places.WORK, queue.work),
            (places.LOCKS, queue.locks),
            (places.SCHEDULED_AT, queue.scheduled),
            (places.DEPENDING, queue.depends),
            (places.THROTTLED_SINCE, queue.throttled),
        )
        for place, scores in sets:
            count += _check_set(t, place, scores, name)
    count += _check_set(t, places.COMPLETED, t.completed, b"")
    assert count == sum(1 for job in t.jobs.values() if job.place != places.NOWHERE)


def _check_set(t: Tables, place: int, scores: Scores, queue: bytes) -> int:
    for jid in scores:
        job = t.jobs[jid]
        assert (job.place, job.queue, job.score) == (place, queue, scores.score(jid))
    return len(scores)


def _check_throttles(t: Tables) -> None:
    for throttle in t.throttles.values():
        for jid in throttle.locks:
            assert throttle.name in t.jobs[jid].locked
        for jid in throttle.pending:
            assert throttle.name in [name for name, _ in t.jobs[jid].pending]


def over(throttle: Throttle) -> bool:
    """Whether a throttle has more locks than its maximum."""
    return 0 < throttle.maximum < len(throttle.locks)


class Qless:
    """Tables, and calls of one dialect; each call checks the invariants."""

    def __init__(self, flavour: int = q.THROTTLES) -> None:
        self.t = empty_tables()
        self.flavour = flavour

    def call(self, handler: Any, now: float, *args: Any) -> q.Result:
        """Make a call."""
        code = CODES[handler]
        if code >= q.FIRST_READ:
            return calls.read(self.t, code, self.flavour, float(now), args)
        result = calls.apply(self.t, code, self.flavour, float(now), args)
        check(self.t)
        return result

    def give(self, handler: Any, now: float, *args: Any) -> Any:
        """Make a call that must succeed, and return its value."""
        code, value = self.call(handler, now, *args)
        assert code == q.OK, (code, value)
        return value

    def settle(self) -> None:
        """Settle changes made without `call`."""
        assert self.call(tags.tag_add, 0, b"none", ())[0] == q.NO_JOB

    def job(self, jid: bytes) -> QlessJob:
        """Return a job."""
        return self.t.jobs[jid]

    def put(self, now: float, jid: bytes, **more: Any) -> q.Result:
        """Put a job into queue "q"; rarely used arguments have names."""

        throttled = self.flavour in (q.THROTTLES, q.DOTTED)
        args = (
            more.get("queue", b"q"),
            jid,
            more.get("klass", b"Klass"),
            more.get("data", b"{}"),
            float(more.get("delay", 0)),
            more.get("worker"),
            more.get("priority"),
            more.get("tags"),
            more.get("retries"),
            more.get("depends", ()),
            more.get("throttles", ()) if throttled else None,
            more.get("must", False),
        )
        return self.call(putting.put, now, *args)

    def pop(self, now: float, count: int = 1, worker: bytes = b"w", queue: bytes = b"q") -> Any:
        """Pop jobs, and return their jids."""

        return [view.jid for view in self.give(popping.pop, now, queue, worker, count)]

    def done(self, now: float, jid: bytes, worker: bytes = b"w", **more: Any) -> q.Result:
        """Complete a job in its queue."""

        job = self.t.jobs.get(jid)
        args = (
            more.get("queue", b"q" if job is None else job.queue),
            more.get("data", b"{}"),
            more.get("following"),
            float(more.get("delay", 0)),
            more.get("depends", ()),
        )
        return self.call(completing.complete, now, jid, worker, *args)

    def said(self) -> list[Any]:
        """Return and clear the published messages, as (channel, event or jid)."""
        found = [
            (channel, what if isinstance(what, bytes) else dict(what)[b"event"])
            for channel, what in self.t.messages
        ]
        self.t.messages.clear()
        return found
