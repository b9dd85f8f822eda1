"""The pace of work that can wait."""

import pytest

from beanpole.pace import REST_PER_SLICE, SLICE_US_MAX, STEPS_PER_SLICE_MAX, Pace

SHARE = 1 + REST_PER_SLICE
DAY_US = 24 * 3600 * 1_000_000


def slices(turns_us: int, step_us: int, until_us: int = 1_000_000) -> list[int]:
    """Return how long each slice took, with turns so far apart and steps of that length."""
    pace, now_us, took = Pace(), DAY_US, []
    while now_us < DAY_US + until_us:
        begun_us = now_us
        if pace.begins(now_us):
            now_us += step_us
            while pace.goes_on(now_us):
                now_us += step_us
            took.append(now_us - begun_us)
        now_us += turns_us
    return took


def test_a_busy_loop_has_short_slices_and_all_of_its_share() -> None:
    took = slices(turns_us=200, step_us=100)
    assert set(took[2:]) == {100}, "behind those that use what was left over before"
    assert sum(took) == pytest.approx(SLICE_US_MAX + 1_000_000 / SHARE, rel=0.01)


def test_an_idle_loop_has_long_slices() -> None:
    took = slices(turns_us=10_000, step_us=100)
    assert set(took) == {SLICE_US_MAX}


def test_a_step_that_takes_long_has_a_long_rest() -> None:
    took = slices(turns_us=1_000, step_us=20_000)
    assert 5 <= len(took) <= 7 and set(took) == {20_000}


def test_a_slice_ends_although_the_clock_stands() -> None:
    pace = Pace()
    assert pace.begins(DAY_US)
    steps = 1
    while pace.goes_on(DAY_US):
        steps += 1
    assert steps == STEPS_PER_SLICE_MAX
    assert pace.begins(DAY_US), "no time went by, so there is nothing to rest from"


def test_an_owner_that_ends_its_slices_early_has_no_more_than_its_share() -> None:
    """An image does while the disk does not follow: it ran on without any rest."""
    pace, now_us, took_us = Pace(), DAY_US, 0
    while now_us < DAY_US + 1_000_000:
        if pace.begins(now_us):
            now_us += 100
            took_us += 100
            pace.goes_on(now_us)
        now_us += 200
    assert took_us == pytest.approx(SLICE_US_MAX + 1_000_000 / SHARE, rel=0.01)
