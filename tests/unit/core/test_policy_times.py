"""The rules of policies about equal puts and rates of delivery, and their images."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.core import accounts
from beanpole.core import machine as machine_module
from beanpole.core.applied import GRANTED, NONE_READY
from beanpole.core.equal_puts import EqualPuts
from beanpole.core.image import policies as image_policies
from beanpole.core.image.image import Image
from beanpole.core.jobs import tubes
from beanpole.core.jobs.job import RATE_SPENT
from beanpole.core.jobs.policies import Policy
from beanpole.core.jobs.rates import (
    Bucket,
)
from tests.unit.core.cluster import DEFAULT, chunks_of, image_of
from tests.unit.core.guests import PING, Guests
from tests.unit.core.policy_words import (
    OTHERS,
    WORK,
    bury,
    check,
    put,
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


# --- unique puts ----------------------------------------------------------------------------------


def test_an_equal_put_in_the_window_answers_the_same_id(cluster: Guests) -> None:
    set_policy(cluster, unique_window_us=10 * SECOND_US)
    set_policy(cluster, DEFAULT, unique_window_us=10 * SECOND_US)
    first = put(cluster, b"same")
    cluster.pass_s(9.9)
    assert try_put(cluster, b"same") == (first, 1)
    assert cluster.do(c.DELETE, 1, first) == c.OK
    assert try_put(cluster, b"same") == (first, 1)  # also after the job is deleted
    assert try_put(cluster, b"other") == first + 1
    assert try_put(cluster, b"same", DEFAULT) == first + 2
    check(cluster)
    cluster.pass_s(0.1)
    assert try_put(cluster, b"same") == first + 3  # counted from the first put, not from the last
    assert try_put(cluster, b"same") == (first + 3, 1)


def test_keys_of_clients_are_something_else(cluster: Guests) -> None:
    set_policy(cluster, unique_window_us=10 * SECOND_US)
    keyed = (c.PUT_KEYED, 1, WORK, 0, 0, 60)
    assert cluster.do(*keyed, b"same", b"key") == (1, 0)
    assert cluster.do(*keyed, b"same", b"other key") == (1, 1)
    assert cluster.do(*keyed, b"another", b"key") == (1, 1)
    assert try_put(cluster, b"another") == 2
    cluster.pass_s(20)
    # A key whose put met an equal body refers to that job from then on.
    assert cluster.do(*keyed, b"third", b"other key") == (1, 1)


def test_a_put_that_is_refused_is_not_remembered(cluster: Guests) -> None:
    set_policy(cluster, unique_window_us=10 * SECOND_US, jobs_max=1)
    first = put(cluster, b"1")
    assert try_put(cluster, b"2") == c.FULL
    assert cluster.do(c.DELETE, 1, first) == c.OK
    assert try_put(cluster, b"2") == first + 1


def test_another_window_begins_anew(cluster: Guests) -> None:
    set_policy(cluster, unique_window_us=10 * SECOND_US)
    first = put(cluster, b"same")
    set_policy(cluster, unique_window_us=20 * SECOND_US)
    assert try_put(cluster, b"same") == first + 1


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from([b"a", b"b"])), max_size=20),
)
def test_the_window_is_exact(window_us: int, puts: list[tuple[int, bytes]]) -> None:
    puts_known, known = EqualPuts(), dict[bytes, tuple[int, int]]()
    now_us = 0
    for job, (passed_us, body) in enumerate(puts, 1):
        now_us += passed_us
        put_us, wanted = known.get(body, (-window_us, 0))
        if now_us - put_us >= window_us:
            wanted = 0
        found, key = puts_known.find_equal(b"q", body, window_us, now_us)
        assert found == wanted
        if not found:
            puts_known.remember_equal(key, job, now_us)
            known[body] = now_us, job


# --- rates ----------------------------------------------------------------------------------------


def test_a_queue_that_has_spent_its_rate_gives_out_nothing_until_it_is_due(cluster: Guests) -> None:
    set_policy(cluster, rate=2, rate_period_us=10 * SECOND_US)
    jobs = [put(cluster) for _ in range(5)]
    assert cluster.grant() == (GRANTED, jobs[0])
    check(cluster)
    assert cluster.do(c.TAKE, 1) == (jobs[1], b"x")
    assert cluster.grant() == (NONE_READY, 0)
    assert cluster.do(c.TAKE, 1) == c.NOT_FOUND
    check(cluster)
    queue = cluster.machine.queue
    assert queue.tubes[WORK].closed
    assert cluster.machine.next_due_us(cluster.time_us) == cluster.time_us + 5 * SECOND_US
    # Other queues are not affected; a job reserved by its id is delivered.
    other = cluster.put()
    assert cluster.reserve() == other
    assert cluster.do(c.RESERVE_JOB, 1, jobs[4])[0] == jobs[4]
    cluster.pass_s(4.9)
    queue.ready_tubes.clear()
    assert cluster.grant() == (NONE_READY, 0)
    assert not queue.ready_tubes
    cluster.pass_s(0.1)
    assert queue.ready_tubes == {WORK: None}  # waiters are notified
    assert cluster.grant() == (GRANTED, jobs[2])
    assert cluster.grant() == (NONE_READY, 0)
    # After a period without a delivery nothing needs to be remembered.
    cluster.pass_s(10)
    assert not queue.rates.buckets


def test_a_pause_and_a_spent_rate_both_close_a_queue(cluster: Guests) -> None:
    set_policy(cluster, rate=1, rate_period_us=10 * SECOND_US)
    put(cluster), put(cluster)
    assert cluster.reserve()
    assert cluster.do(c.PAUSE_TUBE, 1, WORK, 5) == c.OK
    check(cluster)
    cluster.pass_s(5)
    assert not cluster.reserve()
    assert cluster.do(c.PAUSE_TUBE, 1, WORK, 60) == c.OK
    cluster.pass_s(5)
    assert not cluster.reserve()
    assert cluster.do(c.PAUSE_TUBE, 1, WORK, 0) == c.OK
    assert cluster.reserve()


def test_the_rate_outlives_its_queue(cluster: Guests) -> None:
    set_policy(cluster, b"*", rate=1, rate_period_us=10 * SECOND_US)
    for number in range(2):
        assert cluster.do(c.WATCH, 1, b"rest") == c.OK
        job = cluster.put(tube=b"rest")
        assert (cluster.reserve() == job) == (number == 0)
        assert cluster.do(c.DELETE, 1, job) == c.OK
        assert cluster.do(c.IGNORE, 1, b"rest") == c.OK
        assert b"rest" not in cluster.machine.queue.tubes
        check(cluster)
    cluster.pass_s(10)
    assert not cluster.machine.queue.rates.buckets


def test_another_rate_counts_at_once(cluster: Guests) -> None:
    long = {"rate": 1, "rate_period_us": 3600 * SECOND_US}
    set_policy(cluster, b"w*", **long)
    jobs = [put(cluster) for _ in range(4)]
    assert cluster.reserve() == jobs[0]
    set_policy(cluster, DEFAULT, rate=1, rate_period_us=SECOND_US)  # of another queue
    set_policy(cluster, b"*", jobs_max=9)
    set_policy(cluster, WORK, **long, jobs_max=9)  # an unchanged rate
    assert not cluster.reserve()
    set_policy(cluster, WORK, rate=2, rate_period_us=3600 * SECOND_US)
    assert [cluster.reserve() for _ in range(3)] == [*jobs[1:3], 0]
    assert cluster.do(c.DROP_POLICY, 1, WORK) == c.OK
    assert [cluster.reserve() for _ in range(2)] == [jobs[3], 0]
    assert cluster.do(c.DROP_POLICY, 1, b"w*") == c.OK
    assert not cluster.machine.queue.rates.buckets


def test_gearman_and_workq_have_rates_too(cluster: Guests) -> None:
    for pattern in (OTHERS, b"\x01*"):
        set_policy(cluster, pattern, rate=1, rate_period_us=SECOND_US)
    first, _ = cluster.submitted(foreground=0), cluster.submitted(foreground=0)
    assert [cluster.take(), cluster.take()] == [first, 0]
    for unique in (b"u" * 16, b"v" * 16):
        cluster.do(c.ADD, 5, PING, 0, 0, 0, 9 * SECOND_US, unique, 0, 0, b"")
    assert [bool(cluster.take(6)), bool(cluster.take(6))] == [True, False]


@pytest.mark.constants
def test_queues_with_a_rate_have_a_bound(cluster: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tubes, "BUCKETS_MAX", 2)
    set_policy(cluster, b"*", rate=1, rate_period_us=10 * SECOND_US)
    names = [b"q%d" % number for number in range(3)]
    for name in names:
        cluster.do(c.WATCH, 1, name)
        cluster.put(tube=name), cluster.put(tube=name)
        cluster.pass_s(1)
    queue = cluster.machine.queue
    for _ in names:
        assert cluster.reserve()
    # The bucket that is due first may deliver again.
    assert list(queue.rates.buckets) == names[1:]
    assert [queue.tubes[name].closed for name in names] == [0, RATE_SPENT, RATE_SPENT]
    before = accounts.memory_bytes(cluster.machine)
    cluster.pass_s(20)
    cluster.do()
    assert before - accounts.memory_bytes(cluster.machine) == 2 * accounts.BUCKET_BYTES


@pytest.mark.constants
def test_one_entry_changes_so_many_rates(cluster: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    set_policy(cluster, rate=1, rate_period_us=SECOND_US)
    put(cluster)
    assert cluster.reserve()
    monkeypatch.setattr(machine_module, "LOOKS_PER_ENTRY_MAX", 8)
    drop = (c.DROP_POLICY, 1, WORK)
    change = (c.SET_POLICY, 1, DEFAULT, *Policy(ttr_s=1))
    assert cluster.batch(change, drop, change) == [c.OK, c.AGAIN, c.AGAIN]
    assert cluster.batch(drop, change) == [c.OK, c.OK]


@given(
    st.integers(1, 7),
    st.integers(1_000, 3_000),
    st.lists(st.integers(0, 2_000), max_size=40),
)
def test_no_stretch_of_time_has_more_than_its_share(
    rate: int, period_us: int, steps: list[int]
) -> None:
    bucket = Bucket(rate, period_us, 0, 0)
    now_us, given_out = 0, list[int]()
    for step_us in steps:
        now_us += step_us
        bucket.pass_time(now_us)
        while not bucket.is_spent():
            bucket.used += period_us
            given_out.append(now_us)
        # The due time is exact: not a microsecond early.
        due_us = bucket.due_us()
        for at_us, spent in ((due_us - 1, True), (due_us, False)):
            later = Bucket(rate, period_us, bucket.used, bucket.at_us)
            later.pass_time(at_us)
            assert later.is_spent() == spent
    for first, began_us in enumerate(given_out):
        for last, ended_us in enumerate(given_out[first:], first):
            assert (last - first + 1 - rate) * period_us <= rate * (ended_us - began_us)


# --- images ---------------------------------------------------------------------------------------


def test_an_image_in_progress_is_of_its_beginning(cluster: Guests) -> None:
    rules: dict[str, Any] = {"unique_window_us": 10 * SECOND_US, "retain_buried_us": 10 * SECOND_US}
    set_policy(cluster, **rules, rate=2, rate_period_us=10 * SECOND_US)
    first, second = put(cluster, b"1"), put(cluster, b"2")
    bury(cluster, first)
    assert cluster.reserve() == second
    before = image_of(cluster.machine)
    image = Image(cluster.machine)
    put(cluster, b"3")
    assert cluster.reserve() == second + 1
    cluster.pass_s(11)
    put(cluster, b"4")
    assert chunks_of(image) == before
    assert image_of(cluster.machine) != before


@pytest.mark.constants
def test_all_of_it_fits_into_chunks(cluster: Guests, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHUNK_EQUALS", "CHUNK_RATES", "CHUNK_NOTES"):
        monkeypatch.setattr(image_policies, name, 2)
    set_policy(*(cluster, b"*"), unique_window_us=SECOND_US, rate=9, rate_period_us=SECOND_US * 9)
    for number in range(300):
        cluster.put(b"%d" % number, tube=b"q%d" % (number % 5))
    for number in range(5):
        cluster.do(c.WATCH, 1, b"q%d" % number)
    for _ in range(40):
        assert cluster.reserve()
    check(cluster)
