"""Timers against a sorted list, and the memory that they need."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beanpole.core.jobs import timers as module
from beanpole.core.jobs.timers import BUCKET_SHIFT, HEAP_MAX, Timers

BUCKET_US = 1 << BUCKET_SHIFT
# Near delays, delays at the edges of buckets, and far ones.
DELAYS = st.one_of(
    st.integers(0, 5),
    st.integers(-1, 1).map(lambda us: BUCKET_US + us),
    st.integers(0, 4 * BUCKET_US),
    st.integers(0, 2**40),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "pop", "pop", "pass", "due"]), DELAYS),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_timers_are_a_sorted_list(steps: list[tuple[str, int]]) -> None:
    check(steps)


@pytest.mark.constants
@given(STEPS, st.integers(1, 3))
def test_timers_beyond_a_heap_are_a_sorted_list(
    steps: list[tuple[str, int]], heap_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "HEAP_MAX", heap_max)
        check(steps)


def check(steps: list[tuple[str, int]]) -> None:
    timers = Timers()
    model: list[tuple[int, int]] = []
    now_us = 0
    for job_id, (step, number) in enumerate(steps, 1):
        model.sort()
        if step == "add":
            timers.add(now_us + number, job_id)
            model.append((now_us + number, job_id))
        elif step == "remove" and model:
            due_us, gone = model.pop(number % len(model))
            timers.remove(due_us, gone)
        elif step == "pop":
            due = bool(model) and model[0][0] <= now_us
            assert timers.pop(now_us) == (model.pop(0)[1] if due else 0)
        elif step == "pass":
            now_us += number
        elif step == "due":
            check_next_due(timers, model, now_us)
        assert len(timers) == len(model)
    assert drained(timers, 2**62) == [job_id for _, job_id in sorted(model)]


def check_next_due(timers: Timers, model: list[tuple[int, int]], now_us: int) -> None:
    due_us = timers.next_due_us(now_us)
    if not model:
        assert due_us is None
        return
    assert due_us is not None
    first_us = model[0][0]
    assert due_us <= first_us < due_us + BUCKET_US
    if first_us >> BUCKET_SHIFT <= now_us >> BUCKET_SHIFT:
        assert due_us == first_us


def drained(timers: Timers, now_us: int) -> list[int]:
    ids = []
    while job_id := timers.pop(now_us):
        ids.append(job_id)
    return ids


def test_one_step_makes_a_heap_of_no_more_than_its_limit() -> None:
    timers = Timers()
    for job_id in range(1, 3 * HEAP_MAX):
        timers.add(BUCKET_US, job_id)
    assert timers.pop(BUCKET_US) == 1
    assert len(timers._heap) < HEAP_MAX
    for job_id in range(2, 3 * HEAP_MAX):
        assert timers.pop(BUCKET_US) == job_id
    assert len(timers) == held(timers) == 0


def test_equal_times_come_by_id() -> None:
    timers = Timers()
    for job_id in (3, 1, 2):
        timers.add(10, job_id)
    assert drained(timers, 9) == []
    assert drained(timers, 10) == [1, 2, 3]


def test_a_time_that_has_passed_already_is_due_at_once() -> None:
    timers = Timers()
    timers.add(5 * BUCKET_US, 1)
    assert drained(timers, 9 * BUCKET_US) == [1]
    timers.add(BUCKET_US, 2)
    timers.add(7 * BUCKET_US, 3)
    assert timers.next_due_us(9 * BUCKET_US) == BUCKET_US
    assert drained(timers, 9 * BUCKET_US) == [2, 3]


def held(timers: Timers) -> int:
    """Count all elements that the timers hold in memory."""
    buckets = len(timers._buckets) + len(timers._others) + len(timers._waiting)
    return buckets + len(timers._heap) + len(timers._near) + len(timers._late)


def test_removed_times_of_long_ttrs_leave_nothing_behind() -> None:
    timers = Timers()
    for job_id in range(1, 5000):
        timers.add(job_id * BUCKET_US, job_id)
        timers.remove(job_id * BUCKET_US, job_id)
    assert held(timers) == 0


def test_one_long_job_does_not_keep_the_memory_of_many_short_ones() -> None:
    timers = Timers()
    for job in range(HEAP_MAX):
        timers.add(100 * BUCKET_US + job, job)
    for job in range(1, HEAP_MAX):
        timers.remove(100 * BUCKET_US + job, job)
    ((bucket, jobs),) = timers._buckets.items()
    assert (bucket, jobs) == (100, {0: 100 * BUCKET_US})
    assert sys.getsizeof(jobs) < 1024


def test_the_first_of_many_removed_times_leaves_none_of_the_others_to_be_dropped() -> None:
    """One delete, of the earliest job after those behind it, dropped the numbers of all buckets."""
    timers = Timers()
    for job_id in range(1, 5000):
        timers.add(job_id * BUCKET_US, job_id)
    for job_id in range(2, 2500):
        timers.remove(job_id * BUCKET_US, job_id)
    assert held(timers) == 2 * len(timers)
    timers.remove(BUCKET_US, 1)
    assert held(timers) == 2 * len(timers) == 5000
    assert timers.next_due_us(0) == 2500 * BUCKET_US


def test_a_jump_of_the_clock_begins_one_bucket_at_a_time() -> None:
    timers = Timers()
    for job_id in range(1, 1000):
        timers.add(job_id * BUCKET_US, job_id)
    assert timers.pop(2**50) == 1
    assert len(timers._heap) <= 1
    assert timers.next_due_us(2**50) == 2 * BUCKET_US
