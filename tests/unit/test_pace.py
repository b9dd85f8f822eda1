"""The pace of deferrable work."""

import pytest

from beanpole.pace import REST_PER_SLICE, SLICE_US_MAX, STEPS_PER_SLICE_MAX, Pace

SHARE = 1 + REST_PER_SLICE
DAY_US = 24 * 3600 * 1_000_000


class Loop:
    """Turns with a slice of work in each, whose steps all take the same time."""

    def __init__(self, step_us: int, steps_max: int = DAY_US) -> None:
        self.now_us = DAY_US
        self.took: list[int] = []
        self._pace = Pace(lambda: self.now_us)
        self._step_us = step_us
        self._steps_max = steps_max
        self._steps = 0

    def slice(self) -> int:
        """Run a slice if one is due; return the number of steps."""
        begun_us, self._steps = self.now_us, 0
        self._pace.slice(self._step)
        if self._steps:
            self.took.append(self.now_us - begun_us)
        return self._steps

    def run(self, turns_us: int, until_us: int = 1_000_000) -> list[int]:
        """Run turns at this interval until the given time; return the duration of each slice."""
        while self.now_us < DAY_US + until_us:
            self.slice()
            self.now_us += turns_us
        return self.took

    def _step(self) -> bool:
        self.now_us += self._step_us
        self._steps += 1
        return self._steps < self._steps_max


def test_a_busy_loop_has_short_slices_and_all_of_its_share() -> None:
    took = Loop(step_us=100).run(turns_us=200)
    assert set(took[2:]) == {100}, "behind those that use what was left over before"
    assert sum(took) == pytest.approx(SLICE_US_MAX + 1_000_000 / SHARE, rel=0.01)


def test_an_idle_loop_has_long_slices() -> None:
    took = Loop(step_us=100).run(turns_us=10_000)
    assert set(took) == {SLICE_US_MAX}


def test_a_step_that_takes_long_has_a_long_rest() -> None:
    took = Loop(step_us=20_000).run(turns_us=1_000)
    assert 5 <= len(took) <= 7 and set(took) == {20_000}


def test_a_slice_ends_although_the_clock_stands() -> None:
    loop = Loop(step_us=0)
    assert loop.slice() == STEPS_PER_SLICE_MAX
    assert loop.slice() == STEPS_PER_SLICE_MAX, "no time went by: there is nothing to rest from"


def test_an_owner_that_ends_its_slices_early_has_no_more_than_its_share() -> None:
    """An image ends its slices early while the disk lags behind: it once ran without any rest."""
    took = Loop(step_us=100, steps_max=1).run(turns_us=200)
    assert set(took) == {100}
    assert sum(took) == pytest.approx(SLICE_US_MAX + 1_000_000 / SHARE, rel=0.01)
