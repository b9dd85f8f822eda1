"""Calls without memory or disk for more data: nothing grows, and workers go on."""

from typing import Any

import pytest

from beanpole import qless as q
from beanpole.core import accounts
from beanpole.core.operations import qless as operations
from beanpole.core.qless import calls, completing, failing, locks
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.test_images import opened

SMALL, LARGE = b'{"a":1}', b'{"a":11}'
LONG = b"m" * (calls.MESSAGE_FREE_BYTES + 1)


@pytest.fixture
def one() -> Qless:
    found = Qless()
    for jid in (b"a", b"b", b"c"):
        found.put(0, jid, data=SMALL)
    found.pop(1, 3)
    found.t.room = -1
    return found


@pytest.mark.parametrize(
    ("handler", "args"),
    [
        (locks.heartbeat, (b"a", b"w", LARGE)),
        (completing.complete, (b"a", b"w", b"q", LARGE, None, 0.0, ())),
        (completing.complete, (b"a", b"w", b"q", LARGE, b"r", 0.0, ())),
        (failing.fail, (b"a", b"w", b"g", b"m", LARGE)),
        (failing.fail, (b"a", b"w", b"g", LONG, None)),
        (failing.retry, (b"a", b"q", b"w", 0.0, b"g", LONG)),
    ],
)
def test_a_job_that_would_grow_is_refused_and_stays_as_it_is(
    one: Qless, handler: Any, args: tuple[Any, ...]
) -> None:
    before = (one.t.bytes, one.job(b"a").data, list(one.job(b"a").history))
    one.said()
    assert one.call(handler, 2, *args) == (q.NO_ROOM, ())
    assert (one.t.bytes, one.job(b"a").data, list(one.job(b"a").history)) == before
    assert one.job(b"a").state == q.RUNNING
    assert not one.said()
    one.t.room = 0  # no room for jobs, but for bytes
    assert one.call(handler, 2, *args)[0] == q.OK


def test_workers_go_on(one: Qless) -> None:
    assert one.call(locks.heartbeat, 2, b"a", b"w", SMALL)[0] == q.OK
    assert one.done(2, b"a", data=SMALL)[0] == q.OK
    assert one.call(failing.fail, 2, b"b", b"w", b"g", b"why", b"{}")[0] == q.OK
    assert one.call(failing.retry, 2, b"c", b"q", b"w", 0.0, b"g", b"why") == (q.OK, 4)


def test_a_new_worker_takes_the_place_of_the_one_not_seen_for_longest(one: Qless) -> None:
    """A pop is never refused, and anyone may pop with any name."""
    one.pop(2, worker=b"v")
    assert list(one.t.workers) == [b"v"]
    assert one.pop(3, worker=b"u", queue=b"nowhere") == []
    assert list(one.t.workers) == [b"u"]
    assert list(one.t.leases) == [b"w"], "it keeps its jobs"
    one.t.workers.remove(b"u")
    one.pop(4, worker=b"first")
    assert list(one.t.workers) == [b"first"]


def test_what_else_is_wrong_is_told_as_ever(one: Qless) -> None:
    assert one.call(locks.heartbeat, 2, b"nobody", b"w", LARGE) == (q.NO_JOB, (b"nobody",))


@pytest.mark.parametrize("code", [q.POP, q.PEEK])
def test_jobs_of_templates_are_made_when_there_is_room_for_their_data(code: int) -> None:
    cluster = opened()
    machine = cluster.machine

    def call(code: int, *args: Any, now: float = 0.0) -> Any:
        return cluster.do(*operations.command(1, code, q.CORE, now, args))

    more = (1.0, 1.0, 0.0, (), 5, 0.0, None)
    assert call(q.RECUR, b"q", b"large", b"k", bytes(100_000), *more)[0] == q.OK
    assert call(q.RECUR, b"q", b"small", b"k", b"{}", *more)[0] == q.OK
    machine.queue_bytes_max = accounts.memory_bytes(machine) + 1_000_000
    args = (b"q", b"w", 20) if code == q.POP else (b"q", 0, 20)
    code, jobs = call(code, *args, now=99.0)
    assert code == q.OK
    made = [job.jid.partition(b"-")[0] for job in jobs]
    assert 7 <= made.count(b"large") <= 9
    assert made.count(b"small") == 20 - made.count(b"large")
    assert accounts.memory_bytes(machine) <= machine.queue_bytes_max
    machine.queue_bytes_max *= 10
    assert len(call(q.POP, b"q", b"w", 20, now=9e9)[1]) == 20
    assert b"large-20" in machine.qless.jobs, "they are made later"
