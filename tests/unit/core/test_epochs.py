"""EPOCH: the values that a new leader's first entry sets, and the reservations that it spares."""

from beanpole import commands as c
from beanpole.core.applied import Applied
from tests.unit.core.cluster import Cluster

SECOND = 1_000_000
SECRET = b"0123456789abcdef"


def epoch(cluster: Cluster, grace_s: int, term: int = 1) -> Applied:
    expiry_floor_us = cluster.time_us + grace_s * SECOND
    return cluster.lead((c.EPOCH, term, expiry_floor_us, 100, 100, 100, 10_000))


def test_epoch_sets_term_limits_and_floor(cluster: Cluster) -> None:
    assert epoch(cluster, grace_s=5, term=7).epoch == 7
    machine = cluster.machine
    assert (machine.term, machine.jobs_max, machine.queue_bytes_max) == (7, 100, 10_000)
    assert machine.queue.expiry_floor_us == cluster.time_us + 5 * SECOND


def test_leaderless_time_does_not_expire_a_reserved_job(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=2)
    delayed = cluster.put(delay_s=2)
    cluster.reserve()
    cluster.time_us += 100 * SECOND  # the EPOCH is the entry with this time
    epoch(cluster, grace_s=10)
    assert cluster.state(job) == b"reserved"
    assert cluster.state(delayed) == b"ready"
    assert cluster.stats_job(job)["left"] == 10
    cluster.pass_s(9.999_999)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"
    assert cluster.stats_job(job)["timeouts"] == 1


def test_a_leader_that_is_behind_the_log_gives_the_whole_grace(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=2)
    cluster.reserve()
    known_us = cluster.time_us
    cluster.time_us -= 1 * SECOND  # elected before it applied the newest entries
    epoch(cluster, grace_s=5)
    cluster.time_us = known_us
    cluster.pass_s(4.999_999)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"


def test_a_touch_within_the_grace_counts_from_then(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=20)
    cluster.reserve()
    cluster.time_us += 100 * SECOND
    epoch(cluster, grace_s=10)
    cluster.pass_s(5)
    assert cluster.do(c.TOUCH, 1, job) == c.OK
    cluster.pass_s(19)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"


def test_the_floor_lets_later_deadlines_be(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=60)
    cluster.reserve()
    epoch(cluster, grace_s=10)
    cluster.pass_s(59)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"


def test_a_reservation_after_the_epoch_ends_in_its_own_time(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=1)
    epoch(cluster, grace_s=10)
    cluster.reserve()
    assert cluster.stats_job(job)["left"] == 1
    cluster.pass_s(1)
    assert cluster.state(job) == b"ready"


def test_the_floor_never_sinks(cluster: Cluster) -> None:
    epoch(cluster, grace_s=100)
    expiry_floor_us = cluster.machine.queue.expiry_floor_us
    epoch(cluster, grace_s=1, term=2)
    assert cluster.machine.queue.expiry_floor_us == expiry_floor_us


def lost(cluster: Cluster, version: int) -> int:
    """Reserve a job, lose the connection of a kept session, and elect a leader too late for it."""
    cluster.lead((c.RAISE, version))
    job = cluster.put(ttr_s=20)
    cluster.reserve()
    cluster.do(c.KEEP, 1, SECRET, 30 * SECOND)
    cluster.do(c.CLOSE, 1, 1)  # 1: its connection is lost
    cluster.time_us += 60 * SECOND
    epoch(cluster, grace_s=2)
    return job


def test_a_kept_session_does_not_end_before_the_floor(cluster: Cluster) -> None:
    """Its client had no leader to which it could send `resume`."""
    job = lost(cluster, 4)
    due_us = cluster.machine.next_due_us(cluster.time_us)
    assert due_us is not None and due_us > cluster.time_us + 1.9 * SECOND
    cluster.pass_s(1.999_999)
    assert cluster.state(job) == b"reserved"
    cluster.open(2)
    assert cluster.do(c.RESUME, 2, SECRET) == c.OK
    assert cluster.do(c.TOUCH, 2, job) == c.OK


def test_a_kept_session_ends_at_the_floor(cluster: Cluster) -> None:
    job = lost(cluster, 4)
    cluster.pass_s(2)
    assert cluster.state(job) == b"ready"
    cluster.open(2)
    assert cluster.do(c.RESUME, 2, SECRET) == c.NOT_FOUND


def test_a_kept_session_ends_before_the_floor_in_release_0_3_0(cluster: Cluster) -> None:
    assert cluster.state(lost(cluster, 3)) == b"ready"
