"""Bins, slots, percentiles and moments of durations equal the naive ones; the limits of bins."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyspark_beanpole.statistics import answers, bins
from pyspark_beanpole.statistics.keys import KEYS, Parts
from pyspark_beanpole.statistics.parts import reduced
from tests.pipeline import naive
from tests.pipeline.histories import SECOND_US, Event, History
from tests.pipeline.kept import DAYS, LIMITS, batch, by_key, history, many, scattered, seeds


@many
@example(seed=1)
@given(seed=seeds)
def test_durations_are_the_naive_ones(seed: int) -> None:
    events = history(seed, DAYS)
    parts = scattered(events, seed)
    for by in (KEYS, ("tube",), ("day", "protocol"), ()):
        check_durations(parts, events, by)


def check_durations(parts: Parts, events: list[Event], by: tuple[str, ...]) -> None:
    places = [KEYS.index(name) for name in by]
    found = by_key(answers.times(parts, by), *by, "kind")
    groups: dict[Any, list[float]] = {}
    for key, kind, seconds in naive.durations(events):
        groups.setdefault((*[key[place] for place in places], kind), []).append(seconds)
    assert groups.keys() == found.keys()
    curves = by_key(answers.percentiles(parts, by, (0, 0.1, 100)), *by, "kind")
    for key, values in groups.items():
        row = found[key]
        assert row["count"] == len(values)
        assert (row["min_s"], row["max_s"]) == (min(values), max(values))
        assert (curves[key]["p0_s"], curves[key]["p100_s"]) == (min(values), max(values))
        assert row["total_s"] == pytest.approx(sum(values))
        assert row["mean_s"] == pytest.approx(sum(values) / len(values))
        std_s = naive.std(values)
        assert row["std_s"] == (std_s and pytest.approx(std_s, rel=1e-9))
        for percent in answers.PERCENTILES:
            exact = naive.percentile(values, percent)
            assert row[f"p{percent}_s"] == pytest.approx(exact, rel=0.01)
    slots = Counter(
        (*[key[place] for place in places], kind, naive.qless_slot(seconds))
        for key, kind, seconds in naive.durations(events)
    )
    bars = by_key(answers.slots(parts, by), *by, "kind", "label")
    assert {key: row["count"] for key, row in bars.items()} == slots
    fine: Counter[tuple[Any, ...]] = Counter()
    for row in answers.bins(parts, by).to_pylist():
        fine[*[row[name] for name in (*by, "kind")]] += row["count"]
    assert fine == {key: len(values) for key, values in groups.items()}
    levels = by_key(answers.levels(parts, by), *by, "kind")
    assert levels.keys() == {key for key in groups if key[-1] != "unfinished"}
    for key, row in levels.items():
        limit_s = LIMITS.wait_s if key[-1] == "wait" else LIMITS.run_s
        within = sum(seconds <= limit_s for seconds in groups[key])
        assert (row["count"], row["within"]) == (len(groups[key]), within)
        assert row["limit_s"] == limit_s
        assert row["share"] == pytest.approx(within / len(groups[key]))


def waits(durations_us: Sequence[int]) -> Parts:
    """Return the parts of reservations after these waits."""
    [put] = History(1).run(1).events
    done = {"event": "reserved", "state": "reserved", "state_before": "ready", "tube": "t"}
    events = [
        {**put, **done, "offset": number, "wait_us": wait_us}
        for number, wait_us in enumerate(durations_us)
    ]
    return reduced([batch(events)])


def test_a_duration_falls_into_the_slot_that_qless_uses() -> None:
    day_s = 86_400
    seconds = [0, 0.999999, 1, 59.99, 60, 119.999999, 120, 3599.9, 3600, 7199.999999, 7200]
    seconds += [day_s - 0.000001, day_s, 2 * day_s - 1, 7 * day_s - 0.000001, 7 * day_s, 30 * day_s]
    parts = waits([round(second * 1e6) for second in seconds])
    found = by_key(answers.slots(parts, ("tube",)), "label")
    expected = Counter(naive.qless_slot(second) for second in seconds)
    assert {label: row["count"] for (label,), row in found.items()} == expected
    for (label,), row in found.items():
        assert bins.place(row["slot"]) == (label, row["from_s"], row["width_s"])
        assert row["count_per_s"] == pytest.approx(row["count"] / row["width_s"])
    [row] = answers.slot_lists(parts, ("tube",)).to_pylist()
    bars = row["histogram"]
    assert len(bars) == 148
    assert sum(bars) == len(seconds) - 2  # the bars exclude seven days and more
    assert [bars[slot] for slot in (0, 1, 59, 60, 61, 118, 119, 120, 141, 142, 147)] == (
        [2, 1, 1, 2, 1, 1, 2, 1, 1, 2, 1]
    )


def test_the_slots_touch_each_other_and_end_at_seven_days() -> None:
    end_s = 0
    for slot in range(bins.SLOTS):
        label, from_s, width_s = bins.place(slot)
        assert from_s == end_s, label
        end_s += width_s if label != "s59" else 1
    assert end_s == 7 * 86_400


@settings(deadline=None)
@given(durations=st.lists(st.integers(-5, 2**54), min_size=1, max_size=50))
def test_a_bin_holds_what_it_says_and_is_narrow(durations: list[int]) -> None:
    found = bins.bins_of(np.array(durations))
    begins, widths = bins.bin_edges(found)
    middles = bins.bin_middles(found)
    for us, begin, width, middle in zip(durations, begins, widths, middles, strict=True):
        us = min(max(us, 0), bins.DURATION_MAX_US)
        assert begin <= us < begin + width
        assert width == 1 if us < 128 else abs(middle - us) <= 0.008 * us
    order = np.argsort(durations)
    assert (np.diff(found[order]) >= 0).all(), "longer durations are not in lower bins"
    edges = np.arange(5000)
    begins, widths = bins.bin_edges(edges[:2000])
    assert (begins[1:] == begins[:-1] + widths[:-1]).all(), "bins touch each other"
    assert (bins.bins_of(begins) == edges[:2000]).all()


def test_mean_and_deviation_are_those_of_the_example_of_qless() -> None:
    [row] = answers.times(waits([second * 1_000_000 for second in range(20)]), ()).to_pylist()
    assert row["mean_s"] == pytest.approx(9.5)
    assert row["std_s"] == pytest.approx(5.916079783099)


def test_sums_of_times_do_not_overflow() -> None:
    century_us = 36_525 * 86_400 * SECOND_US
    parts = waits([century_us] * 3500)
    [row] = answers.times(parts, ()).to_pylist()
    assert row["total_s"] == pytest.approx(3500 * century_us / 1e6)
    assert row["mean_s"] == pytest.approx(century_us / 1e6)
    assert row["std_s"] == 0


def test_percentiles_of_many_values_are_within_a_percent() -> None:
    random = Random(1)
    values = [round(random.lognormvariate(10, 3)) for _ in range(20_000)]
    [row] = answers.percentiles(waits(values), (), (1, 50, 90, 95, 99, 99.9)).to_pylist()
    for percent in (1, 50, 90, 95, 99, 99.9):
        exact = sorted(values)[max(0, -(-len(values) * round(percent * 10) // 1000) - 1)]
        assert row[f"p{percent}_s"] == pytest.approx(exact / 1e6, rel=0.01)
