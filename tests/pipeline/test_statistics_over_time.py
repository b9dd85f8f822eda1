"""Depth, backlog and the oldest job at any time equal a naive walk through random histories."""

from collections import Counter
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics import depth
from pyspark_beanpole.statistics.backlog import backlog
from pyspark_beanpole.statistics.oldest import oldest
from tests.pipeline import naive
from tests.pipeline.histories import SECOND_US, TUBES, Event, History, Pace, rows

pytestmark = pytest.mark.usefixtures("interpreted")
STATES = ("ready", "reserved", "delayed", "buried")
MINUTES = Pace(longest_us=61 * SECOND_US)
JUMPS = Pace(longest_us=61 * SECOND_US, jumps=True)
few = settings(
    max_examples=1, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
seeds = st.integers(0, 2**32)


def frame(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(rows(events), EVENTS).cache()


def seconds(column: str) -> Column:
    """A time as a number, so that no time zone of this process comes between."""
    return (F.unix_micros(column) / SECOND_US).alias(column)


@few
@example(seed=2)
@given(seed=seeds)
def test_depth_is_what_a_walk_through_the_events_finds(spark: SparkSession, seed: int) -> None:
    events = History(seed, MINUTES).run(1200).events
    whole = frame(spark, events)
    halves = [whole.where("offset < 500"), whole.where("offset >= 500")]
    parts = depth.partial(halves[0]).unionByName(depth.partial(halves[1]))
    table = depth.finish(parts).withColumn("at", F.unix_micros("minute")).collect()
    expected = {
        (tube, round(minute.timestamp()) * SECOND_US): row
        for (tube, minute), row in naive.depths(events).items()
    }
    assert {
        (row["tube"], row["at"]): {state: row[state] for state in STATES} for row in table
    } == expected
    puts = sum(event["event"] == "put" for event in events)
    assert sum(row["puts"] for row in table) == puts
    assert sum(row["reservations"] for row in table) == sum(
        event["event"] == "reserved" for event in events
    )


@few
@example(seed=3)
@given(seed=seeds)
def test_depth_is_never_negative_when_wall_clocks_jump(spark: SparkSession, seed: int) -> None:
    events = History(seed, JUMPS).run(1200).events
    table = depth.finish(depth.partial(frame(spark, events))).orderBy("minute").collect()
    assert all(row[state] >= 0 for row in table for state in STATES)
    last = {row["tube"]: row for row in table}
    now = {event["job_id"]: (event["tube"], event["state"]) for event in events}
    counts = Counter(now.values())
    assert {(tube, state): row[state] for tube, row in last.items() for state in STATES} == {
        (tube, state): counts[tube, state] for tube in last for state in STATES
    }


def test_depth_of_a_log_whose_beginning_is_gone_counts_the_jobs_that_were_there(
    spark: SparkSession,
) -> None:
    whole = History(11, MINUTES).run(900).events
    rest = whole[300:]
    seen = {event["job_id"] for event in rest}
    events = frame(spark, rest)
    table = depth.finish(depth.partial(events), depth.before(events))
    found = {
        (row["tube"], row["at"]): {state: row[state] for state in STATES}
        for row in table.withColumn("at", F.unix_micros("minute")).collect()
    }
    # A job that has no event since then cannot be known.
    known = naive.depths([event for event in whole if event["job_id"] in seen])
    expected = {
        (tube, round(minute.timestamp()) * SECOND_US): row
        for (tube, minute), row in known.items()
        if minute > naive.minute_of(rest[0])
    }
    assert expected
    assert {key: row for key, row in found.items() if key in expected} == expected


@few
@example(seed=4)
@given(seed=seeds)
def test_backlog_is_the_minutes_in_which_nobody_took_what_was_there(
    spark: SparkSession, seed: int
) -> None:
    events = History(seed, MINUTES).run(600).events
    table = backlog(depth.finish(depth.partial(frame(spark, events))))
    found: dict[str, set[datetime]] = {tube: set() for tube in TUBES}
    ends: dict[str, set[float]] = {tube: set() for tube in TUBES}
    stretches = table.select("tube", seconds("from"), seconds("until"), "minutes").collect()
    for row in stretches:
        assert row["until"] - row["from"] == 60 * row["minutes"]
        first = datetime.fromtimestamp(row["from"], tz=events[0]["wall_time"].tzinfo)
        for number in range(row["minutes"]):
            found[row["tube"]].add(first + timedelta(minutes=number))
        ends[row["tube"]] |= {row["from"], row["until"]}
    for tube in TUBES:
        assert found[tube] == naive.unserved(events, tube)
        own = [row for row in stretches if row["tube"] == tube]
        assert len(ends[tube]) == 2 * len(own), "stretches that touch are one"


@few
@example(seed=5)
@given(seed=seeds)
def test_the_oldest_ready_job_is_known_at_every_full_minute(spark: SparkSession, seed: int) -> None:
    events = History(seed, MINUTES).run(600).events
    table = oldest(frame(spark, events))
    found: dict[str, dict[float, tuple[int, float]]] = {tube: {} for tube in TUBES}
    columns = ("from", "until", "ready_since")
    for row in table.select("tube", "job_id", *[seconds(name) for name in columns]).collect():
        at = row["from"]
        while at < row["until"]:
            assert at not in found[row["tube"]], "reigns do not overlap"
            found[row["tube"]][at] = (row["job_id"], row["ready_since"])
            at += 60
    for tube in TUBES:
        expected = {
            minute.timestamp(): (job, since.timestamp())
            for minute, (job, since) in naive.oldest(events, tube).items()
        }
        assert found[tube] == expected
