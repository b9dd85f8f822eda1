"""The statistics equal a naive recomputation, on random histories that come in several batches."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pyspark_beanpole.expressions import FINE_KEYS as KEYS
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics import attempts, histogram, slo, throughput, times
from pyspark_beanpole.statistics.keys import Limits
from pyspark_beanpole.statistics.tables import finished, partials
from tests.pipeline import naive
from tests.pipeline.histories import Event, History, rows

LIMITS = Limits(wait_s=5.0, run_s=0.5)
SUMS = ("puts", "put_bytes", "done", "removed", "reserved", "touched", "kicked", "due", "growth")
# An example takes seconds, so there are two: one that is known and one at random.
few = settings(
    max_examples=1, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
seeds = st.integers(0, 2**32)

Tables = dict[str, DataFrame]


def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(rows(events), EVENTS)


def in_batches(spark: SparkSession, events: list[Event], cuts: tuple[int, ...]) -> Tables:
    """The partials of consecutive slices of a history, put together."""
    whole = frame(spark, events).cache()
    together: Tables = {}
    for low, high in zip((0, *cuts), (*cuts, len(events)), strict=True):
        parts = partials(whole.where(F.col("offset").between(low, high - 1)), LIMITS)
        for name, part in parts.items():
            together[name] = together[name].unionByName(part) if name in together else part
    return together


def by_key(table: DataFrame, *key: str) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in key): row for row in table.collect()}


def check_durations(tables: Tables, events: list[Event]) -> None:
    groups = naive.grouped(naive.durations(events))
    found = by_key(tables["times"], *KEYS, "kind")
    assert {(*key, kind) for key, kind in groups} == found.keys()
    for (key, kind), values in groups.items():
        row = found[*key, kind]
        assert row["count"] == len(values)
        assert row["max_s"] == max(values)
        assert row["mean_s"] == pytest.approx(sum(values) / len(values))
        assert row["std_s"] == pytest.approx(naive.std(values))
        for percent in (50, 90, 95, 99):
            assert row[f"p{percent}_s"] == naive.percentile(values, percent)
    slots = Counter(
        (*key, kind, naive.qless_slot(seconds)) for key, kind, seconds in naive.durations(events)
    )
    bars = by_key(tables["histogram"], *KEYS, "kind", "label")
    assert {key: row["count"] for key, row in bars.items()} == slots


def check_service_levels(tables: Tables, events: list[Event]) -> None:
    total: Counter[tuple[Any, ...]] = Counter()
    within: Counter[tuple[Any, ...]] = Counter()
    for key, kind, seconds in naive.durations(events):
        if kind != "unfinished":
            total[*key[:3], kind] += 1
            within[*key[:3], kind] += seconds <= (5.0 if kind == "wait" else 0.5)
    found = by_key(tables["slo"], *slo.SLO_KEYS, "kind")
    assert {key: row["count"] for key, row in found.items()} == total
    assert {key: row["within"] for key, row in found.items()} == {key: within[key] for key in total}
    for key, row in found.items():
        assert row["share"] == pytest.approx(within[key] / total[key])


def check_counts(tables: Tables, events: list[Event]) -> None:
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for event in events:
        cell = counts.setdefault(naive.key_of(event), Counter())
        name = event["event"]
        if name == "put":
            cell["puts"] += 1
            cell["put_bytes"] += event["body_bytes"]
            cell["growth"] += 1
        elif name == "deleted":
            cell["done" if event["state_before"] == "reserved" else "removed"] += 1
            cell["growth"] -= 1
        else:
            cell[name] += 1
    found = by_key(tables["throughput"], *KEYS)
    assert found.keys() == counts.keys()
    for key, cell in counts.items():
        assert {name: found[key][name] for name in SUMS} == {name: cell[name] for name in SUMS}
    reasons = Counter(
        (*naive.key_of(event), event["event"], event["reason"] or "unsaid")
        for event in events
        if event["event"] in ("released", "returned", "timed_out", "buried")
    )
    failed = by_key(tables["failures"], *KEYS, "event", "reason")
    assert {key: row["count"] for key, row in failed.items()} == reasons
    ended = Counter(
        (
            *naive.key_of(event)[:3],
            "done" if event["state_before"] == "reserved" else "removed",
            event["attempt"],
        )
        for event in events
        if event["event"] == "deleted"
    )
    tried = by_key(tables["attempts"], *attempts.ATTEMPT_KEYS, "outcome", "attempts")
    assert {key: row["jobs"] for key, row in tried.items()} == ended


def check_workers(tables: Tables, events: list[Event]) -> None:
    found = by_key(tables["workers"], "worker")
    assert found.keys() == {(event["worker"],) for event in events if event["worker"]}
    for (worker,), row in found.items():
        own = [event for event in events if event["worker"] == worker]
        happened = Counter(event["event"] for event in own)
        lost = [event for event in own if event["reason"] in ("connection_lost", "node_down")]
        assert row["reservations"] == happened["reserved"]
        assert row["done"] == happened["deleted"]
        assert row["lost_leases"] == happened["timed_out"] + len(lost)
        assert row["tubes"] == len({event["tube"] for event in own})
        failed = happened["timed_out"] + happened["returned"] + happened["buried"]
        ends = failed + happened["deleted"] + happened["released"]
        assert row["failed_share"] == (pytest.approx(failed / ends) if ends else None)
        busy_s = sum(
            seconds
            for key, kind, seconds in naive.durations(events)
            if key[3] == worker and kind != "wait"
        )
        assert row["busy_s"] == pytest.approx(busy_s)
        present_s = (own[-1]["time_us"] - own[0]["time_us"]) / 1e6
        assert row["utilisation"] == (pytest.approx(busy_s / present_s) if present_s else None)


def check_dead_letters(tables: Tables, events: list[Event]) -> None:
    last = {event["job_id"]: event for event in events}
    buried = {job: event for job, event in last.items() if event["state"] == "buried"}
    found = by_key(tables["dead_letters"], "job_id")
    assert {job for (job,) in found} == buried.keys()
    for (job,), row in found.items():
        for column in ("offset", "tube", "worker", "attempt", "buries", "kicks", "run_us"):
            assert row[column] == buried[job][column]


@few
@example(seed=1)
@given(seed=seeds)
def test_all_tables_equal_the_naive_ones_after_merging_batches(
    spark: SparkSession, seed: int
) -> None:
    events = History(seed).run(1500).events
    parts = in_batches(spark, events, cuts=(700,))
    tables = {name: table.cache() for name, table in finished(parts).items()}
    check_durations(tables, events)
    check_service_levels(tables, events)
    check_counts(tables, events)
    check_workers(tables, events)
    check_dead_letters(tables, events)
    coarse = times.finish(parts["times"], by=("tube",))
    groups = naive.grouped(
        naive.Duration((duration.key[1],), *duration[1:]) for duration in naive.durations(events)
    )
    for key, row in by_key(coarse, "tube", "kind").items():
        values = groups[key[:1], key[1]]
        assert row["count"] == len(values)
        assert row["mean_s"] == pytest.approx(sum(values) / len(values))
        assert row["std_s"] == pytest.approx(naive.std(values))
        assert row["p95_s"] == naive.percentile(values, 95)


def waits(spark: SparkSession, durations_us: list[int]) -> DataFrame:
    """Events of reservations after these waits."""
    events = []
    for number, wait_us in enumerate(durations_us):
        event = History(number).run(1).events[0]
        done = {"event": "reserved", "state": "reserved", "state_before": "ready"}
        events.append({**event, **done, "offset": number, "tube": "t", "wait_us": wait_us})
    return frame(spark, events)


def test_a_duration_falls_into_the_slot_that_qless_uses(spark: SparkSession) -> None:
    day_s = 86_400
    seconds = [0, 0.999999, 1, 59.99, 60, 119.999999, 120, 3599.9, 3600, 7199.999999, 7200]
    seconds += [day_s - 0.000001, day_s, 2 * day_s - 1, 7 * day_s - 0.000001, 7 * day_s, 30 * day_s]
    partial = histogram.partial(waits(spark, [round(second * 1e6) for second in seconds]))
    found = by_key(histogram.finish(partial, ("tube",)), "label")
    expected = Counter(naive.qless_slot(second) for second in seconds)
    assert {label: row["count"] for (label,), row in found.items()} == expected
    for (label,), row in found.items():
        assert histogram.place(row["slot"]) == (label, row["from_s"], row["width_s"])
        assert row["count_per_s"] == pytest.approx(row["count"] / row["width_s"])
    [row] = histogram.as_lists(partial, ("tube",)).collect()
    bars = row["histogram"]
    assert len(bars) == 148
    assert sum(bars) == len(seconds) - 2  # seven days and more are not among them
    assert [bars[slot] for slot in (0, 1, 59, 60, 61, 118, 119, 120, 141, 142, 147)] == (
        [2, 1, 1, 2, 1, 1, 2, 1, 1, 2, 1]
    )


def test_the_slots_touch_each_other_and_end_at_seven_days() -> None:
    end_s = 0
    for slot in range(histogram.SLOTS):
        label, from_s, width_s = histogram.place(slot)
        assert from_s == end_s, label
        end_s += width_s if label != "s59" else 1
    assert end_s == 7 * 86_400


def test_a_duration_below_zero_counts_as_zero(spark: SparkSession) -> None:
    [row] = spark.range(1).select(histogram.slot(F.lit(-1).cast("long")).alias("slot")).collect()
    assert row["slot"] == 0


def test_mean_and_deviation_are_those_of_the_example_of_qless(spark: SparkSession) -> None:
    partial = times.partial(waits(spark, [second * 1_000_000 for second in range(20)]))
    [row] = times.finish(partial, ("tube",)).collect()
    assert row["mean_s"] == pytest.approx(9.5)
    assert row["std_s"] == pytest.approx(5.916079783099)


def test_percentiles_of_many_values_are_near_after_merging(spark: SparkSession) -> None:
    parts = None
    for batch in range(4):
        events = spark.range(batch, 40_000, 4).select(
            F.lit(datetime(2026, 3, 1, tzinfo=UTC)).alias("wall_time"),
            F.lit("t").alias("tube"),
            F.lit("beanstalk").alias("protocol"),
            F.lit("w").alias("worker"),
            F.lit("reserved").alias("event"),
            (F.col("id") * 1000).alias("wait_us"),
            F.lit(None).cast("long").alias("run_us"),
        )
        part = times.partial(events)
        parts = part if parts is None else parts.unionByName(part)
    assert parts is not None
    [row] = times.finish(parts, ("tube",)).collect()
    assert row["count"] == 40_000
    for percent in (50, 90, 95, 99):
        rank = row[f"p{percent}_s"] * 1000 / 40_000
        assert abs(rank - percent / 100) < 0.006


def test_days_are_those_of_utc_in_any_time_zone(spark: SparkSession) -> None:
    events = History(7).run(300).events
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        parts = partials(frame(spark, events))
        table = throughput.throughput(parts["transitions"], ("day",))
        found = {row["day"] for row in table.collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert found == {naive.key_of(event)[0] for event in events}


def test_no_events_give_empty_tables(spark: SparkSession) -> None:
    for name, table in finished(partials(spark.createDataFrame([], EVENTS))).items():
        assert table.collect() == [], name
