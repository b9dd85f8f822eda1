"""Events of jobs with attached clients: counters change with their events, and only then.

Other tests cover SUBMIT itself; here each entry is compared with its events.
"""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import FAILED
from tests.unit.core.cluster import Cluster, Event, events_of
from tests.unit.core.ledger import Ledger

QUEUE = b"\x02resize"
CLIENT, WORKER = 1, 2
SECOND_US = 1_000_000


class Checked(Cluster):
    """A client and a worker of Gearman; every event is booked in the ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.booked: list[Event] = []
        self.lead((c.RAISE, 4), (c.EPOCH, 1, 0, 10**6, 10**6, 10**6, 2**40))
        for session in (CLIENT, WORKER):
            self.open(session)
            assert self.do(c.SET_PROTOCOL, session, e.GEARMAN) == c.OK
        assert self.do(c.WATCH, WORKER, QUEUE) == c.OK

    def apply(self, *arguments: Any, **named: Any) -> Any:
        applied = super().apply(*arguments, **named)
        records = bytes(self.machine.queue.events)
        self.booked += map(Event._make, e.RECORD.iter_unpack(records))
        self.ledger.follow(self.machine)
        return applied

    def running(self, attempts_max: int = 0) -> int:
        """Submit a foreground job that the worker reserves, with a TTR of a second."""
        submit = (c.SUBMIT, CLIENT, QUEUE, 5, 0, b"resize\0u", attempts_max, 1, b"", b"body")
        job_id, known = self.do(*submit)
        assert known == 0
        assert self.do(c.TAKE, WORKER)[0] == job_id
        assert self.do(c.SET_TTR, WORKER, job_id, SECOND_US) == c.OK
        return int(job_id)

    def last(self) -> tuple[Any, ...]:
        """Return kind, reason and counters of the last event."""
        event = self.booked[-1]
        return event.kind, event.reason, event.reserves, event.timeouts, event.releases


def end(cluster: Checked, how: str, job: int) -> None:
    """Return a reserved job to its queue."""
    if how == "ttr":
        cluster.pass_s(1)
    elif how == "release":
        assert cluster.do(c.RELEASE, WORKER, job, 5, 0) == c.OK
    else:
        assert cluster.do(c.CLOSE, WORKER, 1) == c.OK


@pytest.mark.parametrize("how", ["ttr", "release", "close"])
def test_an_abandoned_job_that_comes_back_is_deleted_and_moves_no_counter(how: str) -> None:
    cluster = Checked()
    job = cluster.running()
    assert cluster.do(c.CLOSE, CLIENT, 1) == c.OK
    assert cluster.state(job) == b"reserved"
    end(cluster, how, job)
    assert cluster.last() == (e.DELETED, e.ABANDONED, 1, 0, 0)


@pytest.mark.parametrize(
    ("how", "reason", "timeouts"),
    [("ttr", e.TTR, 1), ("release", e.NO_REASON, 0), ("close", e.CONNECTION_LOST, 0)],
)
def test_a_job_without_further_attempts_fails_as_it_came_back(
    how: str, reason: int, timeouts: int
) -> None:
    cluster = Checked()
    end(cluster, how, cluster.running(attempts_max=1))
    assert cluster.last() == (e.FAILED, reason, 1, timeouts, 0)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("ttr", (e.TIMED_OUT, e.TTR, 1, 1, 0)),
        ("release", (e.RELEASED, e.NO_REASON, 1, 0, 1)),
        ("close", (e.RETURNED, e.CONNECTION_LOST, 1, 0, 0)),
    ],
)
def test_a_job_that_comes_back_uses_up_a_number(how: str, expected: tuple[Any, ...]) -> None:
    """The audit recognises these events by their kind and their queue."""
    cluster = Checked()
    before = cluster.running() + 1
    end(cluster, how, before - 1)
    assert cluster.last() == expected
    assert cluster.machine.queue.next_id == before + 1


def test_every_event_has_the_unique() -> None:
    cluster = Checked()
    job = cluster.running()
    queue = cluster.machine.queue
    assert not queue.externals  # the ledger cleared them
    events_of(cluster.machine)
    total = queue.events_total
    assert cluster.machine.queue.jobs[job].ext is not None
    section = cluster.section((c.FINISH, WORKER, job, FAILED, b""))
    super(Checked, cluster).apply([section])
    assert queue.externals == [(total, e.GEARMAN, b"resize\0u")]
