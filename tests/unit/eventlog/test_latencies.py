"""Quantiles and rates of queues, against exact ones: sampled, over time, across segments."""

import random
import sys

import pytest

from beanpole import commands as c
from beanpole import events as e
from beanpole.core.jobs.job import DONE, FAILED, GONE, READY, RESERVED
from beanpole.events import RECORD
from beanpoled.eventlog.latencies import (
    GENERATION_US,
    LOOK_PERIOD_US,
    LOOK_RECORDS_MAX,
    QUEUES_TRACKED_MAX,
    Latencies,
)
from beanpoled.eventlog.sketch import DURATION_MAX_US, Sketch, bin_of, middle_us
from beanpoled.eventlog.store import EventLog
from tests.unit.eventlog.made import Driver
from tests.unit.node.stage import StageHost, config

QUANTILES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
FIELDS = dict.fromkeys(e.FIELDS, 0)


def record(
    kind: int, tube: int = 1, wait_us: int = -1, run_us: int = -1, before: int = 0, after: int = 0
) -> bytes:
    fields = FIELDS | {"kind": kind, "tube": tube, "state_before": before, "state": after}
    return RECORD.pack(*(fields | {"wait_us": wait_us, "run_us": run_us}).values())


def seeded() -> random.Random:
    seed = random.SystemRandom().randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    return random.Random(seed)


def test_bins_are_ascending_without_a_gap_and_narrow() -> None:
    chance = seeded()
    ends = [*range(5000), *(1 << power for power in range(13, 40)), DURATION_MAX_US]
    for us in (*ends, *(chance.randrange(DURATION_MAX_US) for _ in range(2000))):
        assert abs(middle_us(bin_of(us)) - us) <= us / 32
        assert bin_of(us) <= bin_of(us + 1) <= bin_of(us) + 1
    assert bin_of(-5) == 0
    assert bin_of(1 << 60) == bin_of(DURATION_MAX_US)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_quantiles_are_near_the_exact_ones(size: int) -> None:
    chance = seeded()
    values = sorted(int(chance.lognormvariate(9, 3)) for _ in range(size))
    sketch = Sketch()
    for value in chance.sample(values, size):
        sketch.add(value, 1)
    for quantile, found in zip(QUANTILES, sketch.quantiles_us(QUANTILES), strict=True):
        exact = values[int(quantile * (size - 1))]
        assert abs(found - exact) <= exact / 32, quantile


def test_two_sketches_add_up_to_one() -> None:
    chance = seeded()
    whole, parts = Sketch(), [Sketch(), Sketch()]
    for _ in range(500):
        value, weight = chance.randrange(10**9), chance.randint(1, 4)
        whole.add(value, weight)
        chance.choice(parts).add(value, weight)
    parts[0].add_all(parts[1])
    assert parts[0].quantiles_us(QUANTILES) == whole.quantiles_us(QUANTILES)
    assert (parts[0].count, parts[0].total_us) == (whole.count, whole.total_us)
    assert Sketch().quantiles_us((0.5,)) == [0.0]


def test_a_job_that_is_kept_with_its_result_ends_once() -> None:
    latencies = Latencies()
    latencies.look(b"", 0, 1)
    made = (
        record(e.DONE, before=RESERVED, after=DONE),
        record(e.EXPIRED, before=DONE, after=GONE),
        record(e.FAILED, before=RESERVED, after=READY),
        record(e.FAILED, before=RESERVED, after=FAILED),
        record(e.DELETED, before=FAILED, after=GONE),
        record(e.EXPIRED, before=READY, after=GONE),
    )
    latencies.look(b"".join(made), 0, 1 + LOOK_PERIOD_US)
    assert latencies.of(1).ended_per_s == 3.0


def test_events_before_the_first_look_are_of_earlier_times() -> None:
    latencies = Latencies()
    records = record(e.PUT) * 10
    latencies.look(records, 0, 1)
    assert latencies.of(1).puts_per_s == 0
    latencies.look(records + record(e.PUT) * 5, 0, 1 + LOOK_PERIOD_US)
    assert latencies.of(1).puts_per_s == 5.0
    assert latencies.busiest(3) == [1]


def test_a_look_has_a_bound_and_its_figures_stand_for_all() -> None:
    latencies = Latencies()
    latencies.look(b"", 0, 0)
    count = 10 * LOOK_RECORDS_MAX
    taken = [record(e.RESERVED, tube, wait_us=10_000 * tube) for tube in (1, 2)]
    chance = seeded()
    latencies.look(b"".join(chance.choices(taken, (3, 1), k=count)), 0, LOOK_PERIOD_US)
    first, second, whole = latencies.of(1), latencies.of(2), latencies.of_all()
    assert whole.wait.durations == count == whole.reserved_per_s
    assert 0.6 < first.reserved_per_s / count < 0.9
    assert (first.wait.p50_s, second.wait.p99_s) == pytest.approx((0.01, 0.02), rel=1 / 32)
    assert latencies.busiest(5) == [1, 2]


@pytest.mark.parametrize("stride", [2, 3, 4, 6])
def test_events_that_come_in_turn_are_all_seen(stride: int) -> None:
    latencies = Latencies()
    latencies.look(b"", 0, 0)
    kinds = (record(e.PUT), record(e.RESERVED, wait_us=1), record(e.DELETED, before=RESERVED))
    jobs = stride * LOOK_RECORDS_MAX // len(kinds)
    latencies.look(b"".join(kinds) * jobs, 0, LOOK_PERIOD_US)
    whole = latencies.of_all()
    rates = (whole.puts_per_s, whole.reserved_per_s, whole.ended_per_s)
    assert rates == pytest.approx((jobs, jobs, jobs), rel=0.05)


def test_figures_are_forgotten_after_two_generations() -> None:
    latencies = Latencies()
    latencies.look(b"", 0, 0)
    events = record(e.DELETED, run_us=500, before=RESERVED)
    latencies.look(events, 0, LOOK_PERIOD_US)
    assert latencies.of(1).run.durations == 1
    for generation, known in ((1, 1), (2, 0)):
        latencies.look(events, 0, generation * GENERATION_US)
        assert latencies.of(1).run.durations == known
    assert latencies.seconds == GENERATION_US / 1e6
    # A node that was suspended for a long time.
    latencies.look(events * 2, 0, 2 * GENERATION_US + 1)
    latencies.look(events * 2, 0, 9 * GENERATION_US)
    assert latencies.of(1).run.durations == 0


def test_queues_that_are_tracked_have_a_bound() -> None:
    latencies = Latencies()
    latencies.look(b"", 0, 0)
    records = b""
    for number in range(QUEUES_TRACKED_MAX + 50):
        records += record(e.PUT, number)
        if not number % 100:
            latencies.look(records, 0, LOOK_PERIOD_US)
    latencies.look(records, 0, LOOK_PERIOD_US)
    assert len(latencies.busiest(2 * QUEUES_TRACKED_MAX)) == QUEUES_TRACKED_MAX
    # The sum of all queues includes the untracked ones, also a generation later.
    assert latencies.of_all().puts_per_s == QUEUES_TRACKED_MAX + 50
    latencies.look(records, 0, GENERATION_US)
    assert latencies.of_all().puts_per_s * latencies.seconds == QUEUES_TRACKED_MAX + 50
    latencies.look(records, 0, 2 * GENERATION_US)
    assert latencies.of_all().puts_per_s == 0


def test_a_segment_that_is_sealed_was_looked_at() -> None:
    host = StageHost()
    settings = {"event_segment_bytes": 10 * RECORD.size, "disk_reserve_bytes": 0}
    log = EventLog(config(**settings), host, Driver().machine)
    log.open()
    driver = Driver(log, log._machine)
    log.run_periodic(LOOK_PERIOD_US)
    for _ in range(5):
        driver.put(10)
    driver.put(3)
    log.run_periodic(2 * LOOK_PERIOD_US)
    assert log.latencies.of_all().puts_per_s == 53.0
    assert list(log.busiest(3)) == [b"work"]
    driver.do((c.DELETE, 1, 1), (c.DELETE, 1, 2))
    log.run_periodic(3 * LOOK_PERIOD_US)
    assert log.latencies.of_all().ended_per_s * 2 == 2.0
