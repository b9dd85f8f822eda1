"""Shorthands for tests of policies, and invariants of every machine that has policies."""

from typing import Any

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.policies import Policy
from tests.unit.core.cluster import Cluster, copy_of, events_of, image_of
from tests.unit.core.guests import Guests

WORK = b"work"
OTHERS = b"\x02*"


def check(guests: Guests) -> None:
    """Assert that a copy through an image is equal, also in state derived from the image."""
    machine = guests.machine
    copy = copy_of(machine)
    assert image_of(copy) == image_of(machine)
    for name, tube in machine.queue.tubes.items():
        same = copy.queue.tubes[name]
        assert (same.body_bytes, same.closed) == (tube.body_bytes, tube.closed), name
        bodies = [len(job.body) for job in machine.queue.jobs.values() if job.tube is tube]
        assert (tube.jobs_count(), tube.body_bytes) == (len(bodies), sum(bodies)), name
    assert copy.next_due_us(guests.time_us) == machine.next_due_us(guests.time_us)
    assert len(copy.queue.timers) == len(machine.queue.timers)


def set_policy(cluster: Cluster, pattern: bytes = WORK, **rules: Any) -> None:
    assert cluster.do(c.SET_POLICY, 1, pattern, *Policy(**rules)) == c.OK


def put(cluster: Cluster, body: bytes = b"x", priority: int = 0, **fields: Any) -> int:
    return cluster.put(body, priority, tube=WORK, **fields)


def try_put(cluster: Cluster, body: bytes = b"x", tube: bytes = WORK) -> Any:
    return cluster.do(c.PUT, 1, tube, 0, 0, 60, body)


def ids(cluster: Cluster) -> list[int]:
    return [job.id for job in cluster.machine.queue.jobs.values()]


def reasons(cluster: Cluster) -> list[tuple[int, int, int]]:
    """Return (job, state before, reason) of each job that a policy has deleted."""
    return [
        (event.job, event.before, event.reason)
        for event in events_of(cluster.machine)
        if event.kind == e.DELETED and event.origin == e.NO_ORIGIN
    ]


def bury(cluster: Cluster, job: int) -> None:
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.BURY, 1, job, 0) == c.OK
