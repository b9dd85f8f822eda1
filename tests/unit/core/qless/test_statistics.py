"""Statistics by days, against those of a list of all waits."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole import qless as q
from beanpole.core.qless import config, statistics
from tests.unit.core.qless.checking import Qless
from tests.unit.core.qless.making import empty_tables

DAY = statistics.DAY


def shown(t: q.StatsView | object) -> q.StatsView:
    assert isinstance(t, q.StatsView)
    return t


@given(st.lists(st.floats(0, 10.0 * DAY), max_size=50))
def test_mean_and_variance_are_those_of_the_list(waits: list[float]) -> None:
    t = empty_tables()
    queue = t.queue(b"q")
    for wait in waits:
        statistics.note_wait(t, queue, 5.5 * DAY, wait)
    view = shown(statistics.stats(t, q.CORE, 0.0, (b"q", 5.0 * DAY + 7))[1])
    assert view.wait.count == len(waits)
    assert view.run == q.TimesView(0, 0.0, 0.0, (0,) * q.HISTOGRAM_BINS)
    mean = sum(waits) / len(waits) if waits else 0.0
    assert isclose(view.wait.mean, mean, rel_tol=1e-9, abs_tol=1e-9)
    vk = sum([(wait - mean) ** 2 for wait in waits])
    assert isclose(view.wait.vk, vk, rel_tol=1e-6, abs_tol=1e-6)
    assert sum(view.wait.histogram) == sum([wait < 7 * DAY for wait in waits])


@pytest.mark.parametrize(
    ("seconds", "place"),
    [
        (-0.5, None),
        (0.0, 0),
        (59.9, 59),
        (60.0, 60),
        (119.0, 60),
        (120.0, 61),
        (3599.0, 118),
        (3600.0, 119),
        (7199.0, 119),
        (86_399.0, 141),
        (86_400.0, 142),
        (6.9 * DAY, 147),
        (7.0 * DAY, None),
    ],
)
def test_places_of_the_histogram(seconds: float, place: int | None) -> None:
    assert statistics.place_in_histogram(seconds) == place


def test_counts_are_of_their_day() -> None:
    t = empty_tables()
    queue = t.queue(b"q")
    statistics.bump(t, queue, 10.0, retries=1)
    statistics.bump(t, queue, DAY + 1.0, failed=1, failures=1)
    statistics.bump(t, queue, DAY + 2.0, failed=-1)
    first = shown(statistics.stats(t, q.CORE, 0.0, (b"q", 0.0))[1])
    assert (first.retries, first.failed, first.failures) == (1, 0, 0)
    second = shown(statistics.stats(t, q.CORE, 0.0, (b"q", DAY + 99.0))[1])
    assert (second.retries, second.failed, second.failures) == (0, 0, 1)


def test_a_queue_that_is_not_there_is_not_made_by_a_question() -> None:
    t = empty_tables()
    view = shown(statistics.stats(t, q.CORE, 0.0, (b"no", 0.0))[1])
    assert view.wait.count == 0
    assert not t.queues


@pytest.mark.parametrize(("wanted", "kept"), [(b"3", 3), (b"1000", q.STATS_DAYS_MAX), (b"0", 1)])
def test_old_days_go(wanted: bytes, kept: int) -> None:
    t = empty_tables()
    config.config_set(t, q.CORE, 0.0, (b"stats-history", wanted))
    queue = t.queue(b"q")
    for day in range(100):
        statistics.bump(t, queue, day * float(DAY), retries=1)
    statistics.bump(t, queue, 0.0, failed=-1)
    assert sorted(queue.days) == [day * DAY for day in range(100 - kept, 100)]


def test_a_job_of_the_seed_form_waits_since_it_was_put() -> None:
    """This holds even if its lock expired; later dialects count since its last pop."""
    for flavour, waits in ((q.SEED, [10.0, 100.0]), (q.CORE, [10.0, 90.0])):
        one = Qless(flavour)
        one.t.set_option(b"grace-period", b"0")
        one.put(1000.5, b"jid")
        one.pop(1010.5)
        one.pop(1100.5)
        view = one.give(statistics.stats, 1100, b"q", 1100.0).wait
        assert (view.count, view.mean) == (2, sum(waits) / 2)
