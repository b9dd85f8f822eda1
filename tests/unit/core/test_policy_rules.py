"""The rules of policies other than attempts: limits, defaults, retention."""

from collections.abc import Iterator
from typing import Any

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.constants import SECOND_US, U32_MAX
from beanpole.core import machine as machine_module
from beanpole.core.jobs.job import DONE
from beanpole.core.jobs.policies import DROP_OLDEST, Policy
from beanpole.core.jobs.rates import (
    RATE_MAX,
    RATE_PERIOD_MAX_US,
    RATE_PERIOD_MIN_US,
)
from beanpole.core.operations import administering as a
from beanpole.core.operations import policy_puts
from tests.unit.core.cluster import DEFAULT, copy_of, events_of
from tests.unit.core.guests import PING, TURN, TWIST, Guests
from tests.unit.core.policy_words import (
    OTHERS,
    WORK,
    bury,
    check,
    ids,
    put,
    reasons,
    set_policy,
    try_put,
)


@pytest.fixture
def cluster() -> Iterator[Guests]:
    """Assert after the test that an image of the cluster is equal to it."""
    guests = Guests()
    guests.do(c.WATCH, 1, WORK)
    yield guests
    check(guests)


# --- valid policies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules",
    [
        *({"dead": b"d"}, {"jobs_max": U32_MAX + 1}, {"jobs_max": -1}, {"bytes_max": 2**62 + 1}),
        *({"when_full": 2}, {"when_full": -1}, {"ttr_s": U32_MAX + 1}, {"priority": -1}),
        *({"retain_buried_us": -1}, {"retain_delayed_us": U32_MAX * SECOND_US + 1}),
        *({"unique_window_us": 24 * 3600 * SECOND_US + 1}, {"rate": 1}, {"rate_period_us": 1000}),
        {"rate": RATE_MAX + 1, "rate_period_us": SECOND_US},
        {"rate": 1, "rate_period_us": RATE_PERIOD_MIN_US - 1},
        {"rate": 1, "rate_period_us": RATE_PERIOD_MAX_US + 1},
    ],
)
def test_numbers_that_cannot_be_are_refused(cluster: Guests, rules: dict[str, Any]) -> None:
    assert cluster.do(c.SET_POLICY, 1, WORK, *Policy(**rules)) == c.BAD_COMMAND
    assert not cluster.machine.queue.policies.rows


def test_queues_of_other_protocols_have_some_rules_only(cluster: Guests) -> None:
    for policy in (Policy(unique_window_us=1), Policy(priority=1)):
        assert cluster.do(c.SET_POLICY, 1, OTHERS, *policy) == c.BAD_COMMAND
    assert cluster.do(c.SET_POLICY, 1, PING, *Policy(attempts_max=1)) == c.BAD_COMMAND
    assert cluster.do(c.SET_POLICY, 1, b"\x03*", *Policy(ttr_s=1)) == c.BAD_COMMAND  # qless
    set_policy(cluster, OTHERS, jobs_max=1)
    set_policy(cluster, b"*", jobs_max=2)
    policies = cluster.machine.queue.policies
    counts = {name: policies.of(name) for name in (TURN, PING, WORK, b"")}
    assert counts == {TURN: Policy(jobs_max=1), PING: None, WORK: Policy(jobs_max=2), b"": None}


def test_a_policy_without_rules_excepts_a_queue(cluster: Guests) -> None:
    set_policy(cluster, b"*", jobs_max=1)
    set_policy(cluster, WORK)
    assert [try_put(cluster) for _ in range(3)] == [1, 2, 3]
    assert [try_put(cluster, tube=DEFAULT) for _ in range(2)] == [4, c.FULL]


# --- limits ---------------------------------------------------------------------------------------


def test_a_full_queue_refuses_puts_until_a_job_goes(cluster: Guests) -> None:
    set_policy(cluster, jobs_max=3)
    buried = put(cluster)
    assert cluster.do(c.RESERVE_JOB, 1, buried)
    assert cluster.do(c.BURY, 1, buried, 0) == c.OK
    put(cluster, delay_s=60)
    reserved = put(cluster)
    assert cluster.do(c.RESERVE_JOB, 1, reserved)
    assert try_put(cluster) == c.FULL
    assert cluster.do(c.PUT_KEYED, 1, WORK, 0, 0, 60, b"x", b"key") == c.FULL
    assert cluster.do(c.DELETE, 1, reserved) == c.OK
    assert cluster.do(c.PUT_KEYED, 1, WORK, 0, 0, 60, b"x", b"key") == (4, 0)
    assert try_put(cluster, tube=DEFAULT) == 5


def test_bytes_are_those_of_all_bodies(cluster: Guests) -> None:
    first = put(cluster, b"1234")  # older than the policy
    set_policy(cluster, bytes_max=10)
    put(cluster, b"123456")
    assert try_put(cluster) == c.FULL
    assert try_put(cluster, b"") > 0
    # A moved job counts in the other queue with its bytes, even beyond that queue's limit.
    set_policy(cluster, DEFAULT, bytes_max=1)
    assert cluster.do(c.CHANGE_JOB, 1, first, a.MOVE, -1, WORK, DEFAULT, a.READY_IF_BURIED) == c.OK
    assert try_put(cluster, b"1234") > 0
    assert try_put(cluster, b"", DEFAULT) == c.FULL
    check(cluster)


@pytest.mark.parametrize("when_full", [0, DROP_OLDEST])
def test_a_body_larger_than_the_queue_is_refused(cluster: Guests, when_full: int) -> None:
    set_policy(cluster, bytes_max=2, when_full=when_full)
    first = put(cluster, b"1")
    assert try_put(cluster, b"123") == c.FULL
    assert try_put(cluster, b"123", b"new") > 0
    assert cluster.do(c.SET_POLICY, 1, b"newer", *Policy(bytes_max=1)) == c.OK
    assert try_put(cluster, b"12", b"newer") == c.FULL
    assert b"newer" not in cluster.machine.queue.tubes
    assert first in ids(cluster)


def test_the_oldest_ready_job_goes_whatever_its_priority(cluster: Guests) -> None:
    set_policy(cluster, jobs_max=4, when_full=DROP_OLDEST)
    reserved = put(cluster, priority=0)
    assert cluster.reserve() == reserved
    jobs = [put(cluster, priority=priority) for priority in (5, 0, 7)]
    events_of(cluster.machine)
    fresh = [put(cluster, priority=priority) for priority in (0, 9, 3)]
    assert reasons(cluster) == [(job, 1, e.QUEUE_FULL) for job in jobs]
    assert ids(cluster) == [reserved, *fresh]
    assert cluster.stats_tube(WORK)["deletes"] == 0
    assert cluster.do(c.DELETE, 1, reserved) == c.OK


def test_a_put_is_not_refused_because_no_job_is_ready(cluster: Guests) -> None:
    set_policy(cluster, jobs_max=1, when_full=DROP_OLDEST)
    reserved = put(cluster)
    assert cluster.reserve() == reserved
    delayed = [put(cluster, delay_s=9), put(cluster, delay_s=9)]
    ready = put(cluster)
    assert ids(cluster) == [reserved, *delayed, ready]
    # Every put drops as many jobs as it may, so the queue does not grow any further.
    last = put(cluster)
    assert ids(cluster) == [reserved, *delayed, last]


@pytest.mark.constants
def test_a_lowered_limit_is_reached_bit_by_bit(
    cluster: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_module, "DROPS_PER_ENTRY_MAX", 9)
    for _ in range(20):
        put(cluster)
    set_policy(cluster, jobs_max=2, when_full=DROP_OLDEST)
    counts = []
    for _ in range(7):
        put(cluster)
        counts.append(cluster.machine.queue.tubes[WORK].jobs_count())
    # Each entry drops one job for its put, and up to three more.
    assert counts == [17, 14, 11, 8, 5, 2, 2]
    # Each of many puts in one entry drops at least one job.
    command = (c.PUT, 1, WORK, 0, 0, 60, b"x")
    cluster.batch(*[command] * 30)
    assert cluster.machine.queue.tubes[WORK].jobs_count() == 2


def test_the_last_job_of_a_queue_may_go(cluster: Guests) -> None:
    set_policy(cluster, b"*", jobs_max=1, when_full=DROP_OLDEST)
    assert [try_put(cluster, tube=b"rest") for _ in range(3)] == [1, 2, 3]
    assert ids(cluster) == [3]


@pytest.mark.parametrize("limit", [{"jobs_max": 1}, {"bytes_max": 4}])
def test_a_queue_stays_paused_when_its_last_job_is_dropped(
    cluster: Guests, limit: dict[str, int]
) -> None:
    """The queue went with the job, and the put made another one without a pause."""
    cluster.do(c.SET_ALIAS, 1, TWIST, b"rest")
    set_policy(cluster, b"rest", when_full=DROP_OLDEST, **limit)
    assert try_put(cluster, tube=b"rest", body=b"data") == 1
    assert cluster.do(c.PAUSE_QUEUE, 1, b"rest", 3600) == c.OK
    assert try_put(cluster, tube=b"rest", body=b"data") == 2
    assert cluster.submitted(unique=b"one", queue=TWIST) == 3
    assert ids(cluster) == [3]
    cluster.do(c.WATCH, 1, b"rest")
    assert cluster.reserve() == 0
    assert cluster.stats_tube(b"rest")["total"] == 3


def test_no_job_is_dropped_for_a_put_that_finds_no_place_for_its_tube(cluster: Guests) -> None:
    set_policy(cluster, b"rest", jobs_max=1, when_full=DROP_OLDEST)
    assert try_put(cluster, tube=b"rest") == 1
    cluster.machine.tubes_max = len(cluster.machine.queue.tubes) - 1
    assert try_put(cluster, tube=b"other") == c.OUT_OF_MEMORY
    assert try_put(cluster, tube=b"rest") == 2
    assert ids(cluster) == [2]


def test_no_job_is_dropped_for_a_put_that_the_memory_does_not_allow(cluster: Guests) -> None:
    set_policy(cluster, jobs_max=1, when_full=DROP_OLDEST)
    assert try_put(cluster) == 1
    cluster.machine.jobs_max = 1
    assert try_put(cluster) == c.OUT_OF_MEMORY
    assert ids(cluster) == [1]
    cluster.machine.jobs_max = 2
    assert try_put(cluster) == 2
    assert ids(cluster) == [2]


@pytest.mark.constants
def test_with_very_many_priorities_the_least_urgent_are_looked_at(
    cluster: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy_puts, "RANKS_MAX", 2)
    set_policy(cluster, jobs_max=4, when_full=DROP_OLDEST)
    jobs = [put(cluster, priority=priority) for priority in (1, 2, 3, 4)]
    put(cluster, priority=0)
    assert set(jobs) - set(ids(cluster)) == {jobs[2]}


def test_full_queues_of_other_protocols_say_so(cluster: Guests) -> None:
    set_policy(cluster, OTHERS, jobs_max=1)
    set_policy(cluster, b"\x01*", bytes_max=5)
    cluster.submitted(unique=b"one")
    assert cluster.submit(unique=b"two") == c.FULL
    assert cluster.submit(unique=b"one") == (1, 1)  # no new job
    add = (c.ADD, 5, PING, 0, 0, 0, SECOND_US, b"u" * 16, 0, 0)
    assert cluster.do(*add, b"123456") == c.FULL
    assert cluster.do(*add, b"12345") == (2, 0)
    assert cluster.do(c.ADD, 5, PING, 0, 0, 0, SECOND_US, b"v" * 16, 0, 0, b"") == (3, 0)


def test_jobs_of_workq_that_are_done_count_and_stay(cluster: Guests) -> None:
    set_policy(cluster, b"\x01*", jobs_max=2, when_full=DROP_OLDEST)
    add = (c.ADD, 5, PING, 0, 0, SECOND_US, 60 * SECOND_US)
    done = []
    for name in (b"a" * 16, b"b" * 16):
        done.append(cluster.do(*add, name, 0, 0, b"x")[0])
        cluster.take(5)
        assert cluster.do(c.FINISH_NAMED, 5, name, DONE, b"r") == c.OK
    for name in (b"c" * 16, b"d" * 16, b"e" * 16):
        waiting, _ = cluster.do(*add, name, 0, 0, b"x")
        assert ids(cluster) == [*done, waiting]


def test_clients_of_a_job_that_is_dropped_hear_it(cluster: Guests) -> None:
    set_policy(cluster, OTHERS, jobs_max=1, when_full=DROP_OLDEST)
    first = cluster.submitted(unique=b"one", body=b"1")
    cluster.machine.queue.effects.asked_for[first] = None
    second = cluster.submitted(unique=b"two", body=b"2")
    assert ids(cluster) == [second]
    assert not cluster.machine.origins[0].sessions[2].attached.count_below(second)


# --- defaults -------------------------------------------------------------------------------------


def test_what_a_put_leaves_out_its_queue_says(cluster: Guests) -> None:
    command = (c.PUT, 1, WORK, -1, 0, -60, b"x")
    plain = cluster.do(*command)
    set_policy(cluster, ttr_s=300, priority=7)
    ruled_by = cluster.do(*command)
    given = cluster.do(c.PUT, 1, WORK, 0, 0, 1, b"x")
    keyed, _ = cluster.do(c.PUT_KEYED, 1, WORK, -1, 0, -1, b"x", b"key")
    shown = [(cluster.stats_job(job)["pri"], cluster.stats_job(job)["ttr"]) for job in range(1, 5)]
    assert shown == [(0, 60), (7, 300), (0, 1), (7, 300)]
    assert [plain, ruled_by, given, keyed] == [1, 2, 3, 4]
    for priority, ttr_s in ((-2, 1), (0, 0), (0, -(2**31) - 1), (U32_MAX + 1, -1)):
        assert cluster.do(c.PUT, 1, WORK, priority, 0, ttr_s, b"x") == c.BAD_COMMAND


def test_before_there_were_policies_a_put_had_all(cluster: Guests) -> None:
    old = Guests(version=3)
    for priority, ttr_s in ((-1, 1), (0, -1)):
        assert old.do(c.PUT, 1, WORK, priority, 0, ttr_s, b"x") == c.BAD_COMMAND


def test_jobs_of_protocols_without_ttr_have_that_of_their_queue(cluster: Guests) -> None:
    set_policy(cluster, OTHERS, ttr_s=2)
    set_policy(cluster, PING, ttr_s=3)
    job = cluster.submitted(foreground=0)
    assert cluster.take() == job
    cluster.pass_s(3)
    assert cluster.state(job) == b"ready"
    for ttr_us, wanted in ((0, 3 * SECOND_US), (5, 5)):
        unique = b"%016d" % ttr_us
        added, _ = cluster.do(c.ADD, 5, PING, 0, 0, ttr_us, SECOND_US, unique, 0, 0, b"")
        assert cluster.machine.queue.jobs[added].ttr_us == wanted


# --- retention ------------------------------------------------------------------------------------


def test_what_was_buried_for_so_long_is_deleted(cluster: Guests) -> None:
    before = put(cluster)
    bury(cluster, before)
    set_policy(cluster, retain_buried_us=10 * SECOND_US)
    jobs = [put(cluster) for _ in range(2)]
    for job in jobs:
        bury(cluster, job)
        cluster.pass_s(1)
    check(cluster)  # with timers running
    assert cluster.machine.next_due_us(cluster.time_us) is not None
    cluster.pass_s(7.9)
    assert [cluster.state(job) for job in jobs] == [b"buried", b"buried"]
    events_of(cluster.machine)
    cluster.pass_s(0.1)
    assert [cluster.state(job) for job in jobs] == [b"gone", b"buried"]
    assert reasons(cluster) == [(jobs[0], 4, e.RETENTION)]
    # A kick saves the other job; jobs buried before the policy stay.
    assert cluster.do(c.KICK_JOB, 1, jobs[1]) == c.OK
    cluster.pass_s(100)
    assert [cluster.state(job) for job in (before, jobs[1])] == [b"buried", b"ready"]
    assert cluster.stats_tube(WORK)["deletes"] == 0


def test_what_was_delayed_for_so_long_is_deleted_and_not_ready(cluster: Guests) -> None:
    set_policy(cluster, retain_delayed_us=10 * SECOND_US)
    short, long = put(cluster, delay_s=10), put(cluster, delay_s=11)
    kicked = put(cluster, delay_s=60)
    moved = put(cluster, delay_s=60)
    again = put(cluster, delay_s=60)
    check(cluster)
    assert cluster.do(c.KICK_JOB, 1, kicked) == c.OK
    move = (c.CHANGE_JOB, 1, moved, a.MOVE, -1, WORK, DEFAULT, a.READY_IF_BURIED)
    assert cluster.do(*move) == c.OK
    cluster.pass_s(5)
    set_delay = (c.CHANGE_JOB, 1, again, a.SET_DELAY, -1, b"", b"", 20 * SECOND_US)
    assert cluster.do(*set_delay) == c.OK
    events_of(cluster.machine)
    cluster.pass_s(5)
    states = [cluster.state(job) for job in (short, long, kicked, moved, again)]
    assert states == [b"ready", b"gone", b"ready", b"delayed", b"delayed"]
    assert reasons(cluster) == [(long, 3, e.RETENTION)]
    assert cluster.stats_job(moved)["left"] == 50  # its due time is unchanged
    cluster.pass_s(5)
    assert cluster.state(again) == b"gone"  # a new delay starts again
    cluster.pass_s(45)
    assert cluster.state(moved) == b"ready"


def test_a_delay_that_was_cut_short_is_forgotten_with_it(cluster: Guests) -> None:
    set_policy(cluster, retain_delayed_us=10 * SECOND_US)
    job = put(cluster, delay_s=60)
    assert cluster.do(c.KICK_JOB, 1, job) == c.OK
    assert cluster.do(c.DROP_POLICY, 1, WORK) == c.OK
    set_delay = (c.CHANGE_JOB, 1, job, a.SET_DELAY, -1, b"", b"", 5 * SECOND_US)
    assert cluster.do(*set_delay) == c.OK
    cluster.pass_s(5)
    assert cluster.state(job) == b"ready"


@pytest.mark.constants
def test_retention_is_bounded_work(cluster: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_module, "TRANSITIONS_PER_ENTRY_MAX", 2)
    set_policy(cluster, retain_buried_us=SECOND_US)
    for _ in range(5):
        bury(cluster, put(cluster))
    left = []
    cluster.time_us += 2 * SECOND_US
    for _ in range(3):
        cluster.pass_s(0)
        left.append(len(ids(cluster)))
    assert left == [3, 1, 0]


def test_what_attempts_bury_is_retained_as_long(cluster: Guests) -> None:
    set_policy(cluster, attempts_max=1, retain_buried_us=SECOND_US)
    job = put(cluster)
    assert cluster.do(c.RESERVE_JOB, 1, job)[0] == job
    assert cluster.do(c.RELEASE, 1, job, 0, 0) == c.OK
    assert cluster.state(job) == b"buried"
    cluster.pass_s(1)
    assert cluster.state(job) == b"gone"
    assert not cluster.machine.queue.policies.notes


def test_a_job_that_a_policy_deletes_needs_a_version_with_policies(cluster: Guests) -> None:
    old = Guests(version=3)
    job = put(old)
    bury(old, job)
    old.machine.queue.jobs[job].due_us = 9
    with pytest.raises(Exception, match="before there were any"):
        copy_of(old.machine)
