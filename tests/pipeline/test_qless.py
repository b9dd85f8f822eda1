"""Events of qless in Spark: the audit accepts their chains, statistics equal those of `stats`."""

import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from beanpole import qless as q
from beanpole.core.image import restore
from beanpole.core.machine import Machine
from beanpole.core.operations import qless as operations
from beanpole.core.qless import statistics
from beanpole.exports import UNCOUNTED
from beanpoled.cli import main
from beanpoled.eventlog import columns
from beanpoled.eventlog.events import NOTE, Events
from pyspark_beanpole import chains, qless
from pyspark_beanpole.audit import audit
from pyspark_beanpole.schema import EVENTS
from pyspark_beanpole.statistics import answers
from pyspark_beanpole.statistics.parts import reduced
from tests.pipeline.double import event
from tests.pipeline.exported import write_export
from tests.unit.core.cluster import Cluster, image_of
from tests.unit.core.qless.random_calls import Calls
from tests.unit.core.qless.test_images import opened

pytestmark = pytest.mark.usefixtures("interpreted")
WALL_US = 1_700_000_000_000_000
# Durations are rounded to microseconds, and sums of floats lose digits.
NEARLY = 2e-6
# The kinds of events that random calls must cause, and the limit of entries until then.
KINDS = {"moved", "unblocked", "done", "failed", "timed_out"}
ENTRIES_MAX = 2500
# The names under which states are counted; jobs that wait for dependencies are not counted.
DEPTHS = {
    **dict.fromkeys((q.WAITING, q.STALLED), "ready"),
    q.RUNNING: "reserved",
    q.SCHEDULED: "delayed",
    **dict.fromkeys((q.FAILED, q.COMPLETE_), "kept"),
}


class Life:
    """A cluster under calls of qless, with its events in order and in the nodes' format."""

    def __init__(self, seed: int) -> None:
        self.cluster: Cluster = opened()
        self.calls = Calls(seed)
        self.batches: list[pa.RecordBatch] = []
        self.entries = 0
        self._names: dict[int, bytes] = {}
        self._take()

    @property
    def kinds(self) -> set[str]:
        """Return the kinds of events so far."""
        return {kind for batch in self.batches for kind in batch.column("event").to_pylist()}

    def run(self, entries: int) -> None:
        """Make random calls; sometimes replace the machine by one loaded from its image."""
        dice = random.Random(self.entries + entries)
        self.entries += entries
        for _ in range(entries):
            self.calls.tables = self.cluster.machine.qless
            self.cluster.time_us += dice.choice((0, 1_000_000))
            self.cluster.batch(*[self.calls.command() for _ in range(3)])
            self._take()
            if dice.random() < 0.02:
                self.cluster.machine = restore.load(image_of(self.cluster.machine))

    def call(self, now: float, code: int, *args: Any) -> Any:
        """Make one call."""
        found, value = self.cluster.do(*operations.command(1, code, q.DOTTED, now, args))
        assert found == q.OK, value
        self._take()
        return value

    def _take(self) -> None:
        machine: Machine = self.cluster.machine
        queue = machine.queue
        self._names.update(queue.tubes_named)
        queue.tubes_named.clear()
        if queue.events:
            first = queue.events_total - len(queue.externals)
            wall_us = WALL_US + queue.now_us
            note = NOTE.pack(machine.index, queue.now_us, wall_us, first, machine.state_hash)
            beside = (machine.hosts.names, list(queue.externals), list(queue.details))
            some = Events(first, bytes(queue.events), note, self._names, ("n0",), *beside)
            self.batches.append(columns.to_arrow(some))
        queue.events.clear()
        queue.externals.clear()
        queue.details.clear()

    def frame(self, spark: SparkSession) -> DataFrame:
        table = pa.Table.from_batches(self.batches)
        return spark.createDataFrame([tuple(row.values()) for row in table.to_pylist()], EVENTS)

    def days(self) -> Iterator[tuple[str, int, str, q.TimesView]]:
        """Yield the machine's statistics of all queues and days with a wait or a run."""
        tables = self.cluster.machine.qless
        for name, queue in tables.queues.items():
            for begin in queue.days:
                view = statistics.stats(tables, q.CORE, 0.0, (name, float(begin)))[1]
                assert isinstance(view, q.StatsView)
                for kind, times in (("wait", view.wait), ("run", view.run)):
                    if times.count:
                        yield name.decode(), begin, kind, times


def compare(life: Life, found: list[Any]) -> None:
    """Check that Spark's rows equal those of `stats`."""
    rows = {(row["queue"], row["day_s"], row["kind"]): row for row in found}
    expected = {(name, begin, kind): times for name, begin, kind, times in life.days()}
    assert rows.keys() == expected.keys()
    for key, times in expected.items():
        row = rows[key]
        assert row["count"] == times.count, key
        assert row["mean_s"] == pytest.approx(times.mean, rel=1e-9, abs=NEARLY), key
        spread = max(0.0, times.vk / (times.count - 1)) ** 0.5 if times.count > 1 else 0.0
        assert row["std_s"] == pytest.approx(spread, rel=1e-6, abs=2 * NEARLY), key
        assert tuple(row["histogram"]) == times.histogram, key


class Kept(Calls):
    """Calls that drop no statistics, neither of a queue nor of a day."""

    def call(self) -> tuple[int, tuple[Any, ...]]:
        code, args = super().call()
        while code in (q.FLUSH, q.FORGET_QUEUES):
            code, args = super().call()
        return code, args


def test_spark_has_the_statistics_of_random_calls_and_the_audit_adds_up(
    spark: SparkSession,
) -> None:
    seed = random.randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    life = Life(seed)
    life.calls = Kept(seed)
    life.call(0.0, q.CONFIG_SET, b"stats-history", b"60")
    while life.entries < ENTRIES_MAX and KINDS - life.kinds:
        life.run(250)
    events = life.frame(spark).cache()
    compare(life, qless.stats(events).collect())
    result = audit(events, jobs={}, jobs_before={})
    assert result.findings == (), result.lines()
    assert result.events == life.cluster.machine.queue.events_total
    kinds = {row["event"] for row in events.select("event").distinct().collect()}
    assert kinds >= KINDS


@pytest.mark.parametrize("seed", range(40, 46))
def test_depths_of_queues_are_the_jobs_that_they_have(seed: int) -> None:
    """Depths follow jobs that move between queues, and count ended jobs where they ended."""
    life = Life(seed)
    life.run(200)
    rows = answers.depth(reduced(life.batches)).to_pylist()
    last = {row["tube"]: row for row in sorted(rows, key=lambda row: row["minute"])}
    names = ("ready", "reserved", "delayed", "buried", "kept")
    expected: Counter[tuple[str, str]] = Counter()
    for job in life.cluster.machine.qless.jobs.values():
        queue = (job.queue or job.completed_in).decode()
        if job.state in DEPTHS:
            expected[UNCOUNTED + queue, DEPTHS[job.state]] += 1
    found = {(tube, name): row[name] for tube, row in last.items() for name in names}
    assert {key: count for key, count in found.items() if count} == expected


def test_a_run_that_goes_on_in_another_queue(spark: SparkSession) -> None:
    """The run counts where and when it ended, with the day by the client's clock."""
    life = Life(1)
    day = 3 * 86_400.0
    put = (b"K", b"{}", 0.0, b"", None, None, None, (), None, False)
    life.call(day - 100, q.PUT, b"a", b"j", *put)
    life.call(day - 40, q.POP, b"a", b"w", 1)
    life.call(day + 20.5, q.COMPLETE, b"j", b"w", b"a", b"{}", b"b", 0.0, ())
    life.call(day + 21.5, q.POP, b"b", b"w", 1)
    life.call(day + 19.5, q.COMPLETE, b"j", b"w", b"b", b"{}", None, 0.0, ())
    events = life.frame(spark)
    rows = qless.stats(events).collect()
    assert [tuple(row)[:6] for row in rows] == [
        ("a", 2 * 86_400, "wait", 1, 60.0, 0.0),
        ("a", 3 * 86_400, "run", 1, 60.5, 0.0),
        ("b", 3 * 86_400, "run", 1, -2.0, 0.0),
        ("b", 3 * 86_400, "wait", 1, 1.0, 0.0),
    ]
    assert [sum(row["histogram"]) for row in rows] == [1, 1, 0, 1]
    assert rows[0]["histogram"][60] == 1
    compare(life, rows)
    times = answers.times(reduced(life.batches), ("tube",)).to_pylist()
    assert [(row["tube"], row["kind"], row["count"]) for row in times] == [
        ("qless:a", "run", 1),
        ("qless:a", "wait", 1),
        ("qless:b", "wait", 1),
    ]


def test_the_audit_takes_any_time_of_a_client(spark: SparkSession) -> None:
    far = 2**62  # the limit of the times that nodes write
    counters = dict.fromkeys(("attempt", "timeouts", "releases", "buries", "kicks"), 0)
    job = {"job_id": 1, "tube": "qless:a", "protocol": "qless", **counters}
    lease = {"event": "reserved", "state_before": "ready", "state": "reserved", "wait_us": -far}
    end = {"event": "done", "state_before": "reserved", "state": "done", "run_us": far}
    events = [
        event(0, **job, ready_at_us=0, client_time_us=0),
        event(1, **job, **lease, client_time_us=-far),
        event(2, **job, **end, client_time_us=far),
    ]
    found = spark.createDataFrame([tuple(one.values()) for one in events], EVENTS)
    assert audit(found, first=0, end=3).findings == ()


@pytest.mark.long
def test_the_audit_names_what_no_call_of_qless_does(spark: SparkSession) -> None:
    life = Life(2)
    put = (b"K", b"{}", 0.0, b"", None, None, None, (), (b"t",), False)
    life.call(1.0, q.THROTTLE_SET, b"t", 1, 0)
    for jid in (b"i", b"j"):
        life.call(1.0, q.PUT, b"a", jid, *put)
    life.call(2.0, q.POP, b"a", b"w", 2)
    life.call(5.0, q.COMPLETE, b"j", b"w", b"a", b"{}", b"b", 0.0, ())
    life.call(6.0, q.POP, b"a", b"w", 2)
    frame = life.frame(spark)
    kinds = [row["event"] for row in frame.orderBy("offset").collect()]
    again = ["unblocked", "reserved"]
    assert kinds == ["put", "put", "reserved", "blocked", "released", "moved", *again]

    def faults(**changed: Any) -> dict[str, int]:
        changes = {name: F.lit(value) for name, value in changed.items() if name != "of"}
        there = F.col("event") == changed["of"]
        wrong = frame.select(
            *[
                F.when(there, changes[name]).otherwise(F.col(name)).alias(name)
                if name in changes
                else F.col(name)
                for name in EVENTS.names
            ]
        )
        return {one.kind: one.total for one in audit(wrong, jobs={}, jobs_before={}).findings}

    assert faults(of="none") == {}
    assert faults(of="released", run_us=7_000_000) == {chains.WRONG_RUN: 1}
    assert faults(of="unblocked", state_before="ready") == {
        chains.BROKEN: 1,
        chains.IMPOSSIBLE: 1,
    }
    assert faults(of="moved", ready_at_us=1) == {chains.WRONG_READY: 1}
    assert faults(of="blocked", tube="mail")[chains.IMPOSSIBLE] == 1


def test_the_command(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(3)
    put = (b"K", b"{}", 0.0, b"", None, None, None, (), None, False)
    life.call(10.0, q.PUT, b"a", b"j", *put)
    life.call(70.0, q.POP, b"a", b"w", 1)
    life.call(2.0**53, q.COMPLETE, b"j", b"w", b"a", b"{}", None, 0.0, ())
    write_export(tmp_path / "export", pa.Table.from_batches(life.batches).to_pylist())
    where = ["pipeline", "qless", "--from", str(tmp_path / "export")]
    assert main([*where, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    wait = said["queues"][0]
    assert (said["cluster"], wait["queue"], wait["day_s"], wait["mean_s"]) == ("double", "a", 0, 60)
    assert len(wait["histogram"]) == 148
    assert main(where) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["queue", "day", "kind", "count", "mean", "s", "std", "s"]
    assert lines[1].split() == ["a", "1970-01-01", "wait", "1", "60.000000", "0.000000"]
    assert lines[2].split()[:3] == ["a", str(2**62 // 10**6 // 86_400 * 86_400), "run"]
    write_export(tmp_path / "none", [event(number) for number in range(3)])
    assert main(["pipeline", "qless", "--from", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == "no job of qless was popped\n"
