"""Attempts of Gearman's jobs by a policy: after the last one a job fails, as in gearmand."""

from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs import effects
from beanpole.core.jobs.job import RESERVED
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.spaces import RANK_NORMAL
from tests.unit.core.cluster import copy_of, events_of
from tests.unit.core.guests import PING, TURN, TWIST, Guests

THEIRS = b"\x02*"
WORK = b"work"


@pytest.fixture
def cluster(guests: Guests) -> Guests:
    return guests


def set_policy(cluster: Guests, pattern: bytes = THEIRS, **rules: Any) -> Any:
    return cluster.do(c.SET_POLICY, 1, pattern, *Policy(**rules))


@pytest.mark.parametrize("foreground", [0, 1])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("release", e.NO_REASON),
        ("ttr", e.TTR),
        ("close", e.CONNECTION_LOST),
        ("node", e.NODE_DOWN),
        ("return", e.NOBODY_WAITING),
    ],
)
def test_a_job_fails_however_its_last_attempt_ended(
    cluster: Guests, how: str, reason: int, foreground: int
) -> None:
    assert set_policy(cluster, attempts_max=2, ttr_s=1) == c.OK
    job = cluster.submitted(2, foreground=foreground)
    assert cluster.take(3) == job
    cluster.close(3)
    assert cluster.state(job) == b"ready"
    cluster.machine = copy_of(cluster.machine)
    cluster.open(9, origin=1)
    cluster.do(c.SET_PROTOCOL, 9, e.GEARMAN, origin=1)
    cluster.do(c.WATCH, 9, TURN, origin=1)
    assert cluster.do(c.TAKE, 9, origin=1)[0] == job
    events_of(cluster.machine)
    cluster.machine.queue.effects.listened[job] = None
    assert cluster.end_reservation(job, how) == [(job, effects.FAILED, b"")]
    assert cluster.state(job) == b"gone"
    failed = [event for event in events_of(cluster.machine) if event.kind == e.FAILED]
    assert [(event.before, event.reason) for event in failed] == [(RESERVED, reason)]


def test_a_policy_counts_for_the_jobs_that_there_are_and_no_longer_than_it_exists(
    cluster: Guests,
) -> None:
    first, second = cluster.submitted(foreground=0), cluster.submitted(foreground=0)
    for job in (first, second):
        assert cluster.take() == job
    assert set_policy(cluster, attempts_max=1) == c.OK
    assert cluster.do(c.RELEASE, 4, first, RANK_NORMAL, 0) == c.OK
    assert cluster.state(first) == b"gone"
    assert cluster.do(c.DROP_POLICY, 1, THEIRS) == c.OK
    assert cluster.do(c.RELEASE, 4, second, RANK_NORMAL, 0) == c.OK
    assert cluster.state(second) == b"ready"


def test_it_counts_for_no_job_of_another_protocol_in_that_queue(cluster: Guests) -> None:
    """A client of beanstalk expects to find its job, which it can bury itself."""
    assert cluster.do(c.SET_ALIAS, 1, WORK, TWIST) == c.OK
    assert set_policy(cluster, attempts_max=1) == c.OK
    job = cluster.put(tube=WORK)
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.RELEASE, 1, job, 0, 0) == c.OK
    assert cluster.state(job) == b"ready"


def test_it_counts_where_a_worker_of_beanstalk_has_the_job(cluster: Guests) -> None:
    assert cluster.do(c.SET_ALIAS, 1, WORK, TWIST) == c.OK
    assert set_policy(cluster, attempts_max=1) == c.OK
    job = cluster.submitted(queue=TWIST, foreground=0)
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.RELEASE, 1, job, 0, 0) == c.OK
    assert cluster.state(job) == b"gone"


def test_workq_refuses_it_and_gearman_a_dead_tube(cluster: Guests) -> None:
    assert set_policy(cluster, PING, attempts_max=1) == c.BAD_COMMAND
    assert set_policy(cluster, TURN, attempts_max=1, dead=TWIST) == c.BAD_COMMAND
    assert set_policy(cluster, TURN, attempts_max=1) == c.OK
    assert cluster.machine.queue.policies.rows[TURN].attempts_max == 1
