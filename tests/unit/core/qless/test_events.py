"""Events of qless: those of each job are a chain from its first state to its last."""

from typing import Any

import pytest

from beanpole import events as e
from beanpole import qless as q
from beanpole.core.image import restore
from beanpole.core.jobs.job import DELAYED, DONE, FAILED, GONE, READY, RESERVED
from beanpole.core.operations import qless
from tests.unit.core.cluster import Cluster, Event, events_of, image_of
from tests.unit.core.qless.random_calls import Calls
from tests.unit.core.qless.test_images import opened, run
from tests.unit.seeds import seeds

STATES = {
    q.WAITING: READY,
    q.STALLED: READY,
    q.RUNNING: RESERVED,
    q.SCHEDULED: DELAYED,
    q.DEPENDS: e.DEPENDS,
    q.THROTTLED: e.THROTTLED,
    q.FAILED: FAILED,
    q.COMPLETE_: DONE,
}


class Scene:
    """A cluster with a client's clock; each call returns its events."""

    def __init__(self) -> None:
        self.cluster: Cluster = opened()
        self.now = 1000.0

    def call(self, code: int, *args: Any, flavour: int = q.THROTTLES) -> list[Event]:
        result = self.cluster.do(*qless.command(1, code, flavour, self.now, args))
        assert result[0] == q.OK, result
        return events_of(self.cluster.machine)

    def put(self, jid: bytes = b"j", delay: float = 0.0, **options: Any) -> list[Event]:
        values = [
            options.get(name)
            for name in ("worker", "priority", "tags", "retries", "depends", "throttles")
        ]
        values[4] = values[4] or ()
        queue = options.get("queue", b"q")
        return self.call(q.PUT, queue, jid, b"K", b"{}", delay, *values, False)

    def pop(self, worker: bytes = b"w", count: int = 9) -> list[Event]:
        return self.call(q.POP, b"q", worker, count)

    def details(self, code: int, *args: Any) -> list[tuple[bytes | None, bytes | None, int]]:
        """Make a call; return the details beside the records of its events."""
        before = self.cluster.machine.queue.events_total
        result = self.cluster.do(*qless.command(1, code, q.THROTTLES, self.now, args))
        assert result[0] == q.OK, result
        details = list(self.cluster.machine.queue.details)
        assert [offset for offset, *_ in details] == list(range(before, before + len(details)))
        assert len(events_of(self.cluster.machine)) == len(details)
        return [(worker, reason, clock_us) for _, worker, reason, clock_us in details]

    def tube(self, event: Event) -> bytes:
        return dict(self.cluster.machine.queue.tubes_named)[event.tube]


def said(events: list[Event]) -> list[tuple[int, int, int]]:
    return [(event.kind, event.before, event.state) for event in events]


def test_the_life_of_a_job() -> None:
    scene = Scene()
    (put,) = scene.put(priority=2.0)
    assert said([put]) == [(e.PUT, GONE, READY)]
    assert (put.protocol, put.session, put.body_bytes) == (e.QLESS, 1, 2)
    scene.now += 4.5
    (popped,) = scene.pop()
    assert said([popped]) == [(e.RESERVED, READY, RESERVED)]
    assert (popped.wait_us, popped.ttr_s, popped.reserves) == (4_500_000, 60, 1)
    assert popped.priority == put.priority < 2**31 - 1
    assert said(scene.call(q.HEARTBEAT, b"j", b"w", None)) == [(e.TOUCHED, RESERVED, RESERVED)]
    scene.now += 3
    done, moved = scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", b"next", 0.0, ())
    assert said([done, moved]) == [(e.RELEASED, RESERVED, e.MOVING), (e.MOVED, e.MOVING, READY)]
    assert (done.reason, done.run_us, scene.tube(done)) == (e.ADVANCED, 3_000_000, b"\x03q")
    assert (moved.reason, moved.run_us, scene.tube(moved)) == (0, e.NO_TIME, b"\x03next")
    (popped,) = scene.call(q.POP, b"next", b"w", 1)
    assert scene.tube(popped) == b"\x03next"
    (done,) = scene.call(q.COMPLETE, b"j", b"w", b"next", b"{}", None, 0.0, ())
    assert (said([done]), scene.tube(done)) == ([(e.DONE, RESERVED, DONE)], b"\x03next")
    scene.now += 10**7
    scene.put(b"k")
    scene.pop()
    done, expired = scene.call(q.COMPLETE, b"k", b"w", b"q", b"{}", None, 0.0, ())
    assert said([expired]) == [(e.EXPIRED, DONE, GONE)]
    assert (expired.job, expired.tube) == (put.job, popped.tube)


def test_a_lock_that_ends() -> None:
    scene = Scene()
    scene.put(retries=1)
    scene.pop()
    scene.now += 61
    assert scene.pop(b"v") == []  # the first worker has its grace
    scene.now += 11
    lost, popped = scene.pop(b"v")
    assert said([lost, popped]) == [
        (e.TIMED_OUT, RESERVED, READY),
        (e.RESERVED, READY, RESERVED),
    ]
    assert (lost.reason, lost.run_us, popped.reserves) == (e.TTR, 72_000_000, 2)
    scene.now += 61
    scene.pop()
    scene.now += 11
    assert said(scene.pop()) == [(e.FAILED, RESERVED, FAILED)]
    assert said(scene.call(q.UNFAIL, b"q", b"failed-retries-q", 5)) == [(e.KICKED, FAILED, READY)]
    scene.pop()
    assert said(scene.call(q.TIMEOUT, (b"j",))) == [(e.TIMED_OUT, RESERVED, READY)]
    assert said(scene.call(q.CANCEL, (b"j",))) == [(e.DELETED, READY, GONE)]


def test_the_end_of_a_reservation_has_its_number() -> None:
    scene = Scene()
    scene.put(retries=5)
    scene.pop()
    done = scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", b"q", 0.0, ())
    assert [event.reserves for event in done][:1] == [1]
    assert [event.reserves for event in scene.pop()] == [1]
    (retried,) = scene.call(q.RETRY, b"j", b"q", b"w", 0.0, None, None)
    assert (retried.kind, retried.reserves) == (e.RELEASED, 1)
    assert [event.reserves for event in scene.pop()] == [2]
    scene.now += 61
    scene.pop(b"v")
    scene.now += 11
    assert [event.reserves for event in scene.pop(b"v")] == [2, 3]
    (failed,) = scene.call(q.FAIL, b"j", b"v", b"g", b"m", None)
    assert (failed.kind, failed.reserves) == (e.FAILED, 3)
    scene.call(q.UNFAIL, b"q", b"g", 1)
    assert [event.reserves for event in scene.pop()] == [1]
    (ended,) = scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", None, 0.0, ())
    assert (ended.kind, ended.reserves) == (e.DONE, 1)


def test_jobs_that_wait_for_something() -> None:
    scene = Scene()
    (put,) = scene.put(delay=7.0)
    assert (said([put]), put.delay_s) == ([(e.PUT, GONE, DELAYED)], 7)
    assert said(scene.put(b"k", depends=(b"j",))) == [(e.PUT, GONE, e.DEPENDS)]
    scene.now += 8
    assert said(scene.pop()) == [(e.DUE, DELAYED, READY), (e.RESERVED, READY, RESERVED)]
    events = scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", None, 0.0, ())
    assert said(events) == [(e.DONE, RESERVED, DONE), (e.UNBLOCKED, e.DEPENDS, READY)]
    scene.call(q.THROTTLE_SET, b"t", 1, 0)
    scene.put(b"k", throttles=(b"t",))
    scene.put(b"l", throttles=(b"t",))
    assert (e.BLOCKED, READY, e.THROTTLED) in said(scene.pop())
    # Of two with the same priority and time, the later name is first, as in Redis.
    assert said(scene.call(q.FAIL, b"l", b"w", b"g", b"m", None))[0] == (e.FAILED, RESERVED, FAILED)
    assert (e.RESERVED, READY, RESERVED) in said(scene.pop())
    assert said(scene.call(q.FLUSH)) == [
        (e.DELETED, DONE, GONE),
        (e.DELETED, RESERVED, GONE),
        (e.DELETED, FAILED, GONE),
    ]


def test_templates_make_jobs() -> None:
    scene = Scene()
    given = (b"q", b"a", b"K", b"{}", 10.0, 0.0, 0.0, (), 2, 0.0, None)
    assert scene.call(q.RECUR, *given) == []
    assert said(scene.pop()) == [(e.PUT, GONE, READY), (e.RESERVED, READY, RESERVED)]


def test_jobs_that_move() -> None:
    scene = Scene()
    (put,) = scene.put()
    left, came = scene.put(queue=b"p", delay=2.0)
    assert said([left, came]) == [(e.MOVED, READY, e.MOVING), (e.MOVED, e.MOVING, DELAYED)]
    assert (left.tube, scene.tube(came), came.delay_s) == (put.tube, b"\x03p", 2)
    assert said(scene.put(queue=b"p")) == [(e.MOVED, DELAYED, READY)]
    scene.put()
    scene.pop()
    scene.now += 2
    (taken,) = scene.put()
    assert (said([taken]), taken.run_us) == ([(e.MOVED, RESERVED, READY)], 2_000_000)
    scene.pop()
    retried = scene.call(q.RETRY, b"j", b"p", b"w", 0.0, None, None)
    assert said(retried) == [(e.RELEASED, RESERVED, e.MOVING), (e.MOVED, e.MOVING, READY)]
    (popped,) = scene.call(q.POP, b"p", b"w", 1)
    assert (popped.wait_us, popped.tube) == (0, came.tube)
    scene.call(q.FAIL, b"j", b"w", b"g", b"m", None)
    unfailed = scene.call(q.UNFAIL, b"q", b"g", 1)
    assert said(unfailed) == [(e.KICKED, FAILED, e.MOVING), (e.MOVED, e.MOVING, READY)]
    assert [event.tube for event in unfailed] == [came.tube, put.tube]
    scene.put(b"k", depends=(b"j",))
    (moved,) = scene.put(b"k", depends=(b"j",))
    assert said([moved]) == [(e.MOVED, e.DEPENDS, e.DEPENDS)]


def test_workers_reasons_and_clocks_stand_beside_the_records() -> None:
    scene = Scene()
    scene.now = 1000.25
    put = (b"q", b"j", b"K", b"{}", 0.0, b"w", None, None, None, (), None, False)
    assert scene.details(q.PUT, *put) == [(None, None, 1_000_250_000)]
    scene.now = -1.0
    assert scene.details(q.POP, b"q", b"host-1", 1) == [(b"host-1", None, -1_000_000)]
    assert scene.details(q.HEARTBEAT, b"j", b"host-1", None) == [(b"host-1", None, -1_000_000)]
    scene.now = 2000.0
    failed = scene.details(q.FAIL, b"j", b"host-1", b"no disk", b"m", None)
    assert failed == [(b"host-1", b"no disk", 2_000_000_000)]
    assert scene.details(q.UNFAIL, b"q", b"no disk", 1) == [(None, None, 2_000_000_000)]
    scene.details(q.POP, b"q", b"host-2", 1)
    scene.now = float(q.NUMBER_MAX)
    assert scene.details(q.PUT, b"p", *put[1:]) == [(b"host-2", None, 2**62), (None, None, 2**62)]
    scene.now = 9000.0
    scene.details(q.CANCEL, (b"j",))
    scene.details(q.PUT, *put)
    scene.details(q.POP, b"q", b"host-2", 1)
    scene.now += 61
    scene.details(q.POP, b"q", b"host-3", 1)
    scene.now += 11
    lost = scene.details(q.POP, b"q", b"host-3", 1)
    assert [worker for worker, _, _ in lost] == [b"host-2", b"host-3"]
    assert scene.details(q.CANCEL, (b"j",)) == [(b"host-3", None, 9_072_000_000)]


@pytest.mark.parametrize("loaded", [False, True])
def test_a_complete_job_of_a_queue_that_is_gone(loaded: bool) -> None:
    """Its last event names the queue, by the same number on every node."""
    scene = Scene()
    scene.put()
    scene.pop()
    scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", None, 0.0, ())
    scene.call(q.FORGET_QUEUES, (b"q",))
    machine = scene.cluster.machine
    assert b"q" not in machine.qless.queues
    if loaded:
        scene.cluster.machine = machine = restore.load(image_of(machine))
    machine.queue.tubes_named.clear()
    scene.now += 10**7
    scene.put(b"k", queue=b"p")
    scene.call(q.POP, b"p", b"w", 1)
    done, expired = scene.call(q.COMPLETE, b"k", b"w", b"p", b"{}", None, 0.0, ())
    assert said([done, expired]) == [(e.DONE, RESERVED, DONE), (e.EXPIRED, DONE, GONE)]
    assert (expired.tube, scene.tube(expired)) == (machine.queue.tubes_total, b"\x03q")
    assert b"q" not in machine.qless.queues


def test_clocks_that_differ() -> None:
    scene = Scene()
    scene.put()
    scene.now -= 3.5
    (popped,) = scene.pop()
    assert popped.wait_us == -3_500_000
    scene.now -= 1e-6
    (done,) = scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", None, 0.0, ())
    assert done.run_us not in (e.NO_TIME, 1)


def test_a_job_that_is_completed_and_not_kept_is_done() -> None:
    scene = Scene()
    scene.call(q.CONFIG_SET, b"jobs-history-count", b"0")
    scene.put()
    scene.pop()
    scene.now += 3
    (done,) = scene.call(q.COMPLETE, b"j", b"w", b"q", b"{}", None, 0.0, ())
    assert (said([done]), done.run_us) == ([(e.DONE, RESERVED, GONE)], 3_000_000)


@pytest.mark.parametrize("seed", seeds(range(200, 212), 3))
def test_events_of_a_job_are_a_chain(seed: int) -> None:
    cluster = opened()
    run(cluster, Calls(seed), 250)
    machine = cluster.machine
    named = {offset: jid for offset, protocol, jid in machine.queue.externals}
    events = events_of(machine)
    assert sorted(named) == list(range(len(events))) != []
    states: dict[int, int] = {}
    jids: dict[int, bytes] = {}
    for offset, event in enumerate(events):
        assert event.before == states.get(event.job, GONE), (offset, event)
        assert (event.kind == e.PUT) == (event.before == GONE)
        assert jids.setdefault(event.job, named[offset]) == named[offset]
        assert event.kind in e.KIND_NAMES
        assert event.tube
        assert (event.wait_us != e.NO_TIME) == (event.kind == e.RESERVED)
        states[event.job] = event.state
    alive = {number: state for number, state in states.items() if state != GONE}
    assert alive == {job.id: STATES[job.state] for job in machine.qless.by_id.values()}
