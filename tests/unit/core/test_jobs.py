"""The effects of commands on jobs are those of beanstalkd 1.13, except that a TTR always fires."""

import pytest

from beanpole import commands as c
from beanpole.constants import JOB_SIZE_MAX_BYTES, KICK_MAX, SECOND_US, U32_MAX
from beanpole.core.applied import NONE_READY
from beanpole.core.jobs.job import BURIED, DELAYED
from tests.unit.core.cluster import DEFAULT, Cluster


def bury(cluster: Cluster, *ids: int) -> None:
    for job_id in ids:
        cluster.do(c.RESERVE_JOB, 1, job_id)
        assert cluster.do(c.BURY, 1, job_id, 0) == c.OK


# --- order ----------------------------------------------------------------------------------------


def test_ids_are_dense_from_one_and_never_used_again(cluster: Cluster) -> None:
    assert [cluster.put(), cluster.put()] == [1, 2]
    assert cluster.do(c.DELETE, 1, 2) == c.OK
    assert cluster.put() == 3


def test_ready_jobs_come_by_priority_then_id(cluster: Cluster) -> None:
    for priority in (5, 1, 5, 1024, 0, U32_MAX):
        cluster.put(priority=priority)
    assert [cluster.reserve() for _ in range(7)] == [5, 2, 1, 3, 4, 6, 0]


def test_a_released_job_is_first_of_its_priority_again(cluster: Cluster) -> None:
    cluster.put()
    cluster.put()
    assert cluster.reserve() == 1
    assert cluster.do(c.RELEASE, 1, 1, 0, 0) == c.OK
    assert cluster.reserve() == 1


def test_a_job_is_handed_out_once_however_often_it_was_ready(cluster: Cluster) -> None:
    cluster.put()
    for _ in range(100):
        cluster.do(c.RESERVE_JOB, 1, 1)
        cluster.do(c.RELEASE, 1, 1, 0, 0)
    assert [cluster.reserve(), cluster.reserve()] == [1, 0]
    assert cluster.do(c.PEEK_READY, 1, DEFAULT) == c.NOT_FOUND


def test_a_job_that_was_moved_back_to_an_older_priority_is_in_its_place(cluster: Cluster) -> None:
    cluster.put(priority=5)
    cluster.put(priority=6)
    cluster.put(priority=0)
    for priority in (7, 5, 7):
        cluster.do(c.RESERVE_JOB, 1, 1)
        cluster.do(c.RELEASE, 1, 1, priority, 0)
    assert [cluster.reserve() for _ in range(4)] == [3, 2, 1, 0]


def test_the_best_job_of_all_watched_tubes_is_granted(cluster: Cluster) -> None:
    cluster.put(tube=b"abc", priority=999_999)
    cluster.put(tube=b"def", priority=99)
    cluster.put(tube=b"other", priority=0)
    cluster.batch((c.WATCH, 1, b"abc"), (c.WATCH, 1, b"def"))
    assert [cluster.reserve() for _ in range(3)] == [2, 1, 0]


# --- delay ----------------------------------------------------------------------------------------


def test_a_delayed_job_becomes_ready_when_it_is_due_and_not_before(cluster: Cluster) -> None:
    job = cluster.put(delay_s=2)
    cluster.pass_s(1.999_999)
    assert cluster.state(job) == b"delayed"
    assert cluster.machine.next_due_us(cluster.time_us) == cluster.time_us + 1
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"


def test_delayed_jobs_are_peeked_and_kicked_by_due_time_then_id(cluster: Cluster) -> None:
    for delay_s in (3, 1, 2, 1):
        cluster.put(delay_s=delay_s)
    peeked = []
    for _ in range(4):
        peeked.append(cluster.do(c.PEEK_DELAYED, 1, DEFAULT)[0])
        assert cluster.do(c.KICK, 1, DEFAULT, 1, 0) == (1, DELAYED, 0)
    assert peeked == [2, 4, 3, 1]
    assert cluster.do(c.PEEK_DELAYED, 1, DEFAULT) == c.NOT_FOUND


def test_release_with_a_delay(cluster: Cluster) -> None:
    job = cluster.put()
    cluster.reserve()
    assert cluster.do(c.RELEASE, 1, job, 9, 3) == c.OK
    stats = cluster.stats_job(job)
    shown = [stats[name] for name in ("state", "pri", "delay", "left", "releases")]
    assert shown == [b"delayed", 9, 3, 3, 1]


# --- TTR ------------------------------------------------------------------------------------------


def test_a_ttr_fires_at_its_end_and_never_earlier(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=1)
    cluster.reserve()
    cluster.pass_s(0.999_999)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(0.000_001)
    assert cluster.state(job) == b"ready"
    stats = cluster.stats_job(job)
    assert (stats["timeouts"], stats["reserves"], stats["releases"]) == (1, 1, 0)
    assert cluster.do(c.STATS, 1)[5] == 1
    assert cluster.do(c.DELETE, 1, job) == c.OK


def test_the_ttr_counts_from_the_reserve_and_touch_starts_it_anew(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=10)
    cluster.pass_s(100)
    cluster.reserve()
    cluster.pass_s(9)
    assert cluster.do(c.TOUCH, 1, job) == c.OK
    assert cluster.stats_job(job)["left"] == 10
    cluster.pass_s(9.9)
    assert cluster.state(job) == b"reserved"
    cluster.pass_s(0.1)
    assert cluster.state(job) == b"ready"
    assert cluster.do(c.TOUCH, 1, job) == c.NOT_FOUND


def test_a_ttr_fires_for_each_of_many_idle_workers(cluster: Cluster) -> None:
    for session in range(2, 42):
        cluster.open(session)
        cluster.put(ttr_s=1)
        assert cluster.reserve(session)
    cluster.pass_s(1)
    assert cluster.machine.queue.ready == 40


def test_time_never_goes_back(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=2)
    cluster.reserve()
    cluster.pass_s(1)
    cluster.pass_s(-100)
    assert cluster.stats_job(job)["left"] == 1


def test_the_time_of_an_entry_counts_before_its_commands(cluster: Cluster) -> None:
    job = cluster.put(ttr_s=1)
    cluster.reserve()
    cluster.time_us += SECOND_US
    assert cluster.do(c.TOUCH, 1, job) == c.NOT_FOUND


# --- bury and kick --------------------------------------------------------------------------------


def test_buried_jobs_are_first_in_first_out(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.put()
    bury(cluster, 2, 3, 1)
    assert cluster.do(c.PEEK_BURIED, 1, DEFAULT)[0] == 2
    assert cluster.do(c.KICK, 1, DEFAULT, 1, 0) == (1, BURIED, 0)
    assert [cluster.state(job) for job in (1, 2, 3)] == [b"buried", b"ready", b"buried"]
    assert cluster.do(c.PEEK_BURIED, 1, DEFAULT)[0] == 3


def test_a_kick_never_mixes_buried_and_delayed_jobs(cluster: Cluster) -> None:
    cluster.put()
    cluster.put(delay_s=9)
    bury(cluster, 1)
    assert cluster.do(c.KICK, 1, DEFAULT, 100, 0) == (1, BURIED, 0)
    assert cluster.do(c.KICK, 1, DEFAULT, 100, BURIED) == (0, BURIED, 0)
    assert cluster.do(c.KICK, 1, DEFAULT, 100, 0) == (1, DELAYED, 0)
    assert cluster.do(c.KICK, 1, DEFAULT, 100, 0) == (0, DELAYED, 0)


def test_a_kick_moves_a_bounded_number(cluster: Cluster) -> None:
    put = (c.PUT, 1, DEFAULT, 0, 9, 9, b"")
    cluster.batch(*[put] * (KICK_MAX + 5))
    assert cluster.do(c.KICK, 1, DEFAULT, U32_MAX, 0) == (KICK_MAX, DELAYED, 1)
    assert cluster.do(c.KICK, 1, DEFAULT, U32_MAX - KICK_MAX, DELAYED) == (5, DELAYED, 0)


def test_kick_keeps_delay_and_priority(cluster: Cluster) -> None:
    job = cluster.put(priority=7, delay_s=9)
    assert cluster.do(c.KICK_JOB, 1, job) == c.OK
    stats = cluster.stats_job(job)
    shown = [stats[name] for name in ("state", "pri", "delay", "left", "kicks")]
    assert shown == [b"ready", 7, 9, 0, 1]
    cluster.pass_s(10)  # its old delay would end now, and must have no effect
    assert cluster.reserve() == job
    assert cluster.stats_job(job)["timeouts"] == 0


def test_kick_job_takes_buried_and_delayed_jobs_only(cluster: Cluster) -> None:
    assert cluster.do(c.KICK_JOB, 1, 100) == c.NOT_FOUND
    job = cluster.put()
    assert cluster.do(c.KICK_JOB, 1, job) == c.NOT_FOUND
    bury(cluster, job)
    assert cluster.do(c.KICK_JOB, 1, job) == c.OK
    assert cluster.do(c.KICK_JOB, 1, job) == c.NOT_FOUND
    cluster.reserve()
    assert cluster.do(c.KICK_JOB, 1, job) == c.NOT_FOUND


def test_a_bound_below_one_and_an_unknown_tube_kick_nothing(cluster: Cluster) -> None:
    cluster.put(delay_s=1)
    assert cluster.do(c.KICK, 1, DEFAULT, 0, 0) == (0, DELAYED, 0)
    assert cluster.do(c.KICK, 1, DEFAULT, -(2**63), 0) == (0, DELAYED, 0)
    assert cluster.do(c.KICK, 1, b"nobody", 1, 0)[0] == 0


# --- rights of sessions ---------------------------------------------------------------------------


def test_reserve_job_takes_any_job_that_is_not_reserved(cluster: Cluster) -> None:
    cluster.put(tube=b"unwatched")
    cluster.put(delay_s=9)
    cluster.put()
    bury(cluster, 3)
    cluster.do(c.PAUSE_TUBE, 1, DEFAULT, 100)
    assert [cluster.do(c.RESERVE_JOB, 1, job) for job in (1, 2, 3)] == [
        (1, b"body"),
        (2, b"body"),
        (3, b"body"),
    ]
    assert cluster.do(c.RESERVE_JOB, 1, 1) == c.NOT_FOUND
    assert cluster.do(c.RESERVE_JOB, 1, 4) == c.NOT_FOUND
    assert cluster.do(c.RELEASE, 1, 2, 0, 0) == c.OK
    assert cluster.state(2) == b"ready"
    cluster.pass_s(9)
    assert cluster.stats_job(2)["timeouts"] == 0


def test_only_the_holder_may_touch_release_bury_return_or_delete(cluster: Cluster) -> None:
    cluster.open(2)
    job = cluster.put()
    cluster.reserve(1)
    for command in [
        (c.TOUCH, 2, job),
        (c.RELEASE, 2, job, 0, 0),
        (c.BURY, 2, job, 0),
        (c.RETURN, 2, job),
        (c.DELETE, 2, job),
    ]:
        assert cluster.do(*command) == c.NOT_FOUND
        assert cluster.do(command[0], 3, *command[2:]) == c.BAD_COMMAND
        assert cluster.do(*command[:2], True, *command[3:]) == c.BAD_COMMAND
    assert cluster.state(job) == b"reserved"
    assert cluster.do(c.DELETE, 1, job) == c.OK


def test_the_same_session_number_of_another_node_is_another_session(cluster: Cluster) -> None:
    job = cluster.put()
    cluster.reserve(1)
    cluster.open(1, origin=1)
    assert cluster.do(c.DELETE, 1, job, origin=1) == c.NOT_FOUND
    assert cluster.state(job) == b"reserved"


def test_anybody_may_delete_what_is_not_reserved(cluster: Cluster) -> None:
    cluster.put()
    cluster.put(delay_s=5)
    cluster.put()
    bury(cluster, 3)
    cluster.open(2)
    assert [cluster.do(c.DELETE, 2, job) for job in (1, 2, 3, 3)] == [1, 1, 1, c.NOT_FOUND]
    assert not cluster.machine.queue.jobs
    assert cluster.machine.queue.body_bytes == 0
    assert cluster.stats_tube()["deletes"] == 3


def test_return_moves_no_counter_and_keeps_the_priority(cluster: Cluster) -> None:
    job = cluster.put(priority=3)
    cluster.reserve()
    assert cluster.do(c.RETURN, 1, job) == c.OK
    stats = cluster.stats_job(job)
    assert (stats["state"], stats["pri"]) == (b"ready", 3)
    assert [stats[n] for n in ("reserves", "timeouts", "releases", "buries")] == [1, 0, 0, 0]


def test_a_job_knows_its_history(cluster: Cluster) -> None:
    job = cluster.put(priority=1, ttr_s=5)
    cluster.reserve()
    cluster.do(c.RELEASE, 1, job, 2, 0)
    cluster.reserve()
    cluster.pass_s(5)
    cluster.reserve()
    cluster.do(c.BURY, 1, job, 3)
    cluster.do(c.KICK, 1, DEFAULT, 1, 0)
    cluster.pass_s(2.5)
    assert cluster.do(c.STATS_JOB, 1, job) == (
        *(job, DEFAULT, b"ready", 3, 7, 0, 5, 0, 0),
        *(3, 1, 1, 1, 1),
    )


def test_urgent_jobs_are_the_ready_ones_below_1024(cluster: Cluster) -> None:
    for priority in (0, 1023, 1024):
        cluster.put(priority=priority)
    assert cluster.stats_tube()["urgent"] == 2
    cluster.reserve()
    assert cluster.stats_tube()["urgent"] == 1
    cluster.do(c.RELEASE, 1, 1, 1024, 0)
    assert cluster.do(c.STATS, 1)[:2] == (1, 3)


# --- stale entries --------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_s", [0, 1])
def test_jobs_that_leave_from_the_front_leave_nothing_behind(
    cluster: Cluster, delay_s: int
) -> None:
    put = (c.PUT, 1, DEFAULT, 0, delay_s, 9, b"")
    cluster.batch(*[put] * 40)
    tube = cluster.machine.queue.default
    for job in range(1, 40):
        if delay_s:
            cluster.do(c.KICK_JOB, 1, job)
        else:
            cluster.do(c.DELETE, 1, job)
        assert len(tube.delayed if delay_s else tube.ready) == 40 - job


def test_jobs_that_leave_from_elsewhere_leave_nothing_behind(cluster: Cluster) -> None:
    put = (c.PUT, 1, DEFAULT, 0, 0, 9, b"")
    cluster.batch(*[put] * 1000)
    for job in range(1000, 1, -1):
        cluster.do(c.DELETE, 1, job)
    tube = cluster.machine.queue.default
    assert len(tube.ready) == tube.ready_count == 1
    assert cluster.reserve() == 1


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("priority", "delay_s", "ttr_s"),
    [
        (-1, 0, 1),
        (U32_MAX + 1, 0, 1),
        (0, -1, 1),
        (0, U32_MAX + 1, 1),
        (0, 0, 0),
        (0, 0, U32_MAX + 1),
    ],
)
def test_put_refuses_numbers_out_of_range(
    cluster: Cluster, priority: int, delay_s: int, ttr_s: int
) -> None:
    assert cluster.do(c.PUT, 1, b"new", priority, delay_s, ttr_s, b"") == c.BAD_COMMAND
    assert b"new" not in cluster.machine.queue.tubes
    assert cluster.put() == 1


def test_the_largest_numbers_are_fine(cluster: Cluster) -> None:
    body = bytes(JOB_SIZE_MAX_BYTES)
    assert cluster.do(c.PUT, 1, DEFAULT, U32_MAX, U32_MAX, U32_MAX, body) == 1
    assert cluster.do(c.PUT, 1, DEFAULT, 0, 0, 1, body + b"x") == c.BAD_COMMAND
    assert cluster.do(c.RESERVE_JOB, 1, 1) == (1, body)
    assert cluster.stats_job(1)["left"] == U32_MAX
    assert cluster.do(c.RELEASE, 1, 1, U32_MAX + 1, 0) == c.BAD_COMMAND
    assert cluster.do(c.RELEASE, 1, 1, 0, -1) == c.BAD_COMMAND
    assert cluster.do(c.BURY, 1, 1, -1) == c.BAD_COMMAND
    assert cluster.do(c.RELEASE, 1, 1, U32_MAX, U32_MAX) == c.OK
    assert cluster.reserve() == 0


def test_a_grant_of_an_empty_queue_keeps_the_waiter(cluster: Cluster) -> None:
    assert cluster.grant(request=1) == (NONE_READY, 0)
    job = cluster.put()
    assert cluster.grant(request=1)[1] == job
