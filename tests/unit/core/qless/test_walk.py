"""Random calls of all kinds: the tables agree with each other after each."""

from random import Random
from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core.qless import (
    cancelling,
    completing,
    dependencies,
    failing,
    locks,
    ordering,
    popping,
    putting,
    recurring,
    throttles,
)
from tests.unit.core.qless.checking import Qless, over
from tests.unit.seeds import seeds

STEPS = 600
QUEUES = (b"q", b"r")
WORKERS = (b"v", b"w")
NAMES = (b"s", b"t")


class Walk:
    """A walk through calls whose arguments are often, but not always, valid."""

    def __init__(self, seed: int, flavour: int) -> None:
        self.random = Random(seed)
        self.world = Qless(flavour)
        self.throttled = flavour in (q.THROTTLES, q.DOTTED)
        self.now = 1000.0
        self.lowered = False
        self.codes: dict[int, int] = {}
        world = self.world
        world.t.set_option(b"grace-period", self.random.choice((b"0", b"5")))
        world.t.set_option(b"heartbeat", b"20")
        world.t.set_option(b"jobs-history-count", b"5")
        if not self.throttled:
            world.t.set_option(b"q-max-concurrency", b"3")

    def run(self) -> None:
        """Make all steps."""
        calls = [
            *[self.put] * 6,
            *[self.pop] * 6,
            *[self.complete] * 4,
            self.peek,
            self.fail,
            self.retry,
            self.unfail,
            self.heartbeat,
            self.timeout,
            self.cancel,
            self.depends,
            self.priority,
            self.recur,
            self.throttle,
        ]
        for _ in range(STEPS):
            self.now += self.random.choice((0, 0.25, 1, 1, 3, 10, -2))
            self.random.choice(calls)()
            if not self.lowered:
                assert not [one for one in self.world.t.throttles.values() if over(one)]

    def call(self, handler: Any, *args: Any) -> q.Result:
        """Make a call, and count its result by code."""
        before = self.jids() if handler is not popping.pop else []
        result = self.world.call(handler, self.now, *args)
        self.codes[result[0]] = self.codes.get(result[0], 0) + 1
        if result[0] != q.OK and before:
            assert self.jids() == before
            assert not self.world.t.messages
        self.world.t.messages.clear()
        return result

    def jids(self) -> list[Any]:
        """Return a summary of all jobs."""
        jobs = self.world.t.jobs.values()
        return [(job.jid, job.state, job.queue, job.score, len(job.history)) for job in jobs]

    def one(self) -> bytes:
        """Return a jid, often of an existing job."""
        return b"%d" % self.random.randrange(25)

    def some(self, most: int) -> tuple[bytes, ...]:
        """Return some jids."""
        return tuple(self.one() for _ in range(self.random.randrange(most + 1)))

    def queue(self) -> bytes:
        """Return a queue."""
        return self.random.choice(QUEUES)

    def owned(self) -> tuple[bytes, bytes, bytes]:
        """Return a jid with its worker and its queue, mostly of a running job."""
        running = [job for job in self.world.t.jobs.values() if job.state == q.RUNNING]
        if not running or self.random.random() < 0.1:
            return self.one(), self.random.choice(WORKERS), self.queue()
        job = self.random.choice(running)
        return job.jid, job.worker, job.queue

    def put(self) -> None:
        """Put a job."""
        choice = self.random.choice
        names = tuple(choice(NAMES) for _ in range(choice((0, 0, 1, 2))))
        args = (
            self.queue(),
            self.one(),
            b"K",
            b"{}",
            choice((0.0, 0.0, 0.0, 5.0)),
            choice((None, *WORKERS)),
            choice((None, 0.0, 1.5)),
            choice((None, (), (b"x",), (b"x", b"y"))),
            choice((None, 0, 1)),
            self.some(3) if self.random.random() < 0.4 else (),
            names if self.throttled else None,
            self.random.random() < 0.1,
        )
        self.call(putting.put, *args)

    def pop(self) -> None:
        """Pop jobs."""
        self.call(popping.pop, self.queue(), self.random.choice(WORKERS), self.random.randrange(5))

    def peek(self) -> None:
        """Peek at jobs."""
        offset, count = self.random.randrange(3), self.random.randrange(5)
        self.call(popping.peek, self.queue(), offset, count)

    def complete(self) -> None:
        """Complete a job."""
        following = self.random.choice((None, None, None, *QUEUES))
        depends = self.some(3) if following else ()
        delay = self.random.choice((0.0, 3.0)) if following else 0.0
        self.call(completing.complete, *self.owned(), b"{}", following, delay, depends)

    def fail(self) -> None:
        """Fail a job."""
        jid, worker, _ = self.owned()
        self.call(failing.fail, jid, worker, self.random.choice(NAMES), b"why", None)

    def retry(self) -> None:
        """Retry a job."""
        jid, worker, queue = self.owned()
        group = self.random.choice((None, *NAMES))
        delay = self.random.choice((0.0, 3.0))
        self.call(failing.retry, jid, queue, worker, delay, group, self.random.choice((None, b"m")))

    def unfail(self) -> None:
        """Unfail jobs."""
        group = self.random.choice((*NAMES, b"failed-retries-q"))
        self.call(failing.unfail, self.queue(), group, self.random.randrange(4))

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        jid, worker, _ = self.owned()
        self.call(locks.heartbeat, jid, worker, None)

    def timeout(self) -> None:
        """Time jobs out."""
        self.call(locks.timeout, (self.owned()[0],))

    def cancel(self) -> None:
        """Cancel jobs."""
        self.call(cancelling.cancel, self.some(6))

    def depends(self) -> None:
        """Change dependencies."""
        depending = [job.jid for job in self.world.t.jobs.values() if job.state == q.DEPENDS]
        jid = self.random.choice([*depending, self.one()])
        if self.random.random() < 0.5:
            self.call(dependencies.depends_on, jid, self.some(3))
        else:
            self.call(dependencies.depends_off, jid, self.random.choice((None, self.some(8))))

    def priority(self) -> None:
        """Change a priority."""
        self.call(ordering.priority, self.one(), float(self.random.randrange(3)))

    def recur(self) -> None:
        """Begin or end recurring jobs."""
        if self.random.random() < 0.5:
            self.call(recurring.unrecur, b"again")
            return
        names = (b"s",) if self.throttled else None
        args = (b"K", b"{}", 7.0, 1.0, 0.0, (b"x",), 1, 2.0, names)
        self.call(recurring.recur, self.queue(), b"again", *args)

    def throttle(self) -> None:
        """Set a throttle, or release its locks."""
        if not self.throttled:
            return
        name = self.random.choice((*NAMES, b"ql:q:q"))
        if self.random.random() < 0.4:
            self.call(throttles.throttle_release, name, self.some(2))
            return
        before = self.world.t.throttles.get(name)
        maximum = self.random.randrange(4)
        held = 0 if before is None else len(before.locks)
        self.lowered |= 0 < maximum < held
        self.call(throttles.throttle_set, name, maximum, 0)


@pytest.mark.parametrize("flavour", q.FLAVOURS)
@pytest.mark.parametrize("seed", seeds(range(6)))
def test_a_walk_leaves_the_tables_in_agreement(seed: int, flavour: int) -> None:
    walk = Walk(seed, flavour)
    walk.run()
    assert walk.codes[q.OK] > STEPS / 3
    assert walk.world.t.completed
    refused = [code for code in walk.codes if code != q.OK]
    assert len(refused) >= 4, walk.codes


@pytest.mark.parametrize("seed", range(3))
def test_all_that_was_put_can_be_worked_off(seed: int) -> None:
    """After any walk, workers that complete every job they get empty all queues."""
    walk = Walk(seed, q.THROTTLES)
    walk.run()
    world = walk.world
    world.give(recurring.unrecur, walk.now, b"again")
    for _ in range(400):
        walk.now += 100.0
        for queue in QUEUES:
            for jid in world.pop(walk.now, 3, queue=queue):
                assert world.done(walk.now, jid)[0] == q.OK
    assert {job.state for job in world.t.jobs.values()} <= {q.COMPLETE_, q.FAILED, q.DEPENDS}
    for job in world.t.jobs.values():
        if job.state == q.DEPENDS:  # it depends on a failed job, or on another such job
            behind = [world.t.jobs[jid].state for jid in job.dependencies]
            assert set(behind) <= {q.FAILED, q.DEPENDS}
