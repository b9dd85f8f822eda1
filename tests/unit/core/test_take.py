"""TAKE: a reserve that its own entry answers, with the choice and the limits of a GRANT."""

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import LOOKS_PER_ENTRY_MAX, WATCHED_TUBES_MAX
from beanpole.core import machine as machine_module
from beanpole.core.applied import LATER
from tests.unit.core.cluster import DEFAULT, Cluster, events_of

TAKE = (c.TAKE, 1)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.open(1)
    cluster.open(2)
    cluster.lead((c.RAISE, 3))
    return cluster


def test_it_is_a_bad_command_in_version_2() -> None:
    cluster = Cluster()
    cluster.open(1)
    job = cluster.put()
    assert cluster.do(*TAKE) == c.BAD_COMMAND
    assert cluster.state(job) == b"ready"


def test_jobs_come_by_priority_then_age_and_then_none(cluster: Cluster) -> None:
    for priority, body in ((2, b"c"), (1, b"a"), (1, b"b")):
        cluster.put(body, priority)
    assert cluster.batch(TAKE, TAKE, TAKE, TAKE) == [(2, b"a"), (3, b"b"), (1, b"c"), c.NOT_FOUND]


def test_it_sees_what_stands_before_it_in_its_batch(cluster: Cluster) -> None:
    put = (c.PUT, 1, DEFAULT, 0, 0, 60, b"x")
    results = cluster.batch(TAKE, put, TAKE, (c.RELEASE, 1, 1, 0, 0), (c.TAKE, 2), TAKE)
    assert results == [c.NOT_FOUND, 1, (1, b"x"), c.OK, (1, b"x"), c.NOT_FOUND]


def test_only_watched_queues_that_are_not_paused_count(cluster: Cluster) -> None:
    cluster.put(tube=b"other")
    cluster.put(priority=1)
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 5)
    assert cluster.do(*TAKE) == c.NOT_FOUND
    cluster.do(c.WATCH, 1, b"other")
    assert cluster.batch(TAKE, TAKE) == [(1, b"body"), c.NOT_FOUND]
    cluster.pass_s(5)
    assert cluster.do(*TAKE) == (2, b"body")


def test_its_event_and_its_lease_are_those_of_a_grant(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.put(ttr_s=3)
    cluster.pass_s(1)
    events_of(cluster.machine)
    assert cluster.do(*TAKE) == (1, b"body")
    assert cluster.reserve(2) == 2
    taken, granted = events_of(cluster.machine)
    assert taken.kind == e.RESERVED
    assert taken == granted._replace(job=1, session=1)
    assert cluster.do(c.TOUCH, 1, 1) == c.OK
    assert cluster.do(c.DELETE, 2, 1) == c.NOT_FOUND
    cluster.pass_s(3)
    assert cluster.state(1) == b"ready"


def test_the_job_of_a_session_that_ends_returns(cluster: Cluster) -> None:
    job = cluster.put()
    cluster.batch(TAKE, (c.CLOSE, 1, 1))
    assert cluster.state(job) == b"ready"


def test_a_late_grant_of_an_earlier_wait_is_still_good(cluster: Cluster) -> None:
    """A TAKE does not answer a wait: the last grant stays valid."""
    cluster.put()
    cluster.put()
    cluster.do(*TAKE)
    assert cluster.reserve(1) == 2


@pytest.mark.constants
def test_beyond_what_an_entry_may_look_at_it_is_to_be_asked_again(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    """GRANTs and TAKEs share the limit; the leader's own commands come first."""
    monkeypatch.setattr(machine_module, "LOOKS_PER_ENTRY_MAX", 3)
    for _ in range(4):
        cluster.put()
    grant = (c.GRANT, 0, 1, 2, 1, 0)
    section = cluster.section(TAKE, TAKE, TAKE)
    applied = cluster.apply([(c.LEADER, 0, 0, (grant,)), section, (c.LEADER, 0, 0, (grant,))])
    assert applied.results[0][2] == [(2, b"body"), (3, b"body"), c.AGAIN]
    cluster.do(c.WATCH, 1, b"a")
    late = (c.GRANT, 0, 1, 2, 2, 0)
    applied = cluster.apply([cluster.section(TAKE, TAKE), (c.LEADER, 0, 0, (late,))])
    assert applied.results[0][2] == [(4, b"body"), c.AGAIN]
    assert applied.grants[0][4:] == (LATER, None)


def test_sixty_four_of_the_longest_lists_fit_into_an_entry() -> None:
    assert LOOKS_PER_ENTRY_MAX // WATCHED_TUBES_MAX == 64
