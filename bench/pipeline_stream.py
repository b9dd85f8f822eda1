"""Compare the cost of a batch of `beanpole pipeline stream` after 16 hours with the first hour.

A generated log of 16 hours goes through the stream's own code in batches of equal size, one for
each of its minutes, with a refresh of the tables every five batches as in production. Spark's job
is left out, because it does not depend on earlier batches: this process does its work.
"""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from beanpole.client.events import Extent
from beanpole.exporting.files import write_range
from beanpole.exports import STATES
from beanpole.places import resolved
from bench import pipeline_events
from pyspark_beanpole.statistics.parts import reduced
from pyspark_beanpole.streaming import batches
from pyspark_beanpole.streaming.batches import Batch, Written
from pyspark_beanpole.streaming.stream import Settings, Stream

HOURS: Final = 16
EVENTS: Final = 4_000_000
# `stream` refreshes tables every five minutes.
REFRESH_BATCHES: Final = 5


class Cost(NamedTuple):
    """The mean processor time of an hour's batches in seconds, and the files of DIR after them."""

    batch_s: float
    refresh_s: float
    files: int


class Nodes:
    """Answers like nodes whose log ends at `end`."""

    def __init__(self) -> None:
        self.end = 0

    def extent(self) -> Extent:
        zero = dict.fromkeys(STATES, 0)
        return Extent("made-up", 0, self.end, 0, zero, zero, {})

    def extent_to(self, offset: int, first: int = 0) -> Extent:
        return self.extent()

    def whole(self) -> Extent:
        return self.extent()

    def __exit__(self, *_: object) -> None:
        """Do nothing: no connection is open."""


def run(folder: Path, events: int = EVENTS, hours: int = HOURS) -> list[Cost]:
    """Feed a log minute by minute; return the cost of each hour."""
    table = pipeline_events.make(events, hours)
    count = 60 * hours
    ends = [table.num_rows * (number + 1) // count for number in range(count)]

    def work(spark: object, batch: Batch) -> Written:
        first, end = batch.ranges[0].first, batch.ranges[-1].end
        rows = table.slice(first, end - first).to_batches()
        files = write_range(resolved(batch.folder), batch.cluster, rows)
        return Written(files, reduced(rows, put_from=batch.put_from))

    nodes: Any = Nodes()
    spark: Any = None
    before, batches.run = batches.run, work
    stream = Stream(
        Settings(str(folder), ("made-up:1",), 1, "earliest", events, False, True), nodes
    )
    try:
        stream.open()
        stream.restore(spark)
        return list(_hours(stream, nodes, ends, folder, hours))
    finally:
        batches.run = before
        stream.close()


def _hours(
    stream: Stream, nodes: Nodes, ends: list[int], folder: Path, hours: int
) -> Iterator[Cost]:
    spark: Any = None
    for hour in range(hours):
        batch_s, refresh_s = [], []
        for number, end in enumerate(ends[hour * 60 : (hour + 1) * 60]):
            nodes.end = end
            begun_s = time.process_time()
            stream.step(spark, end)
            stream.compact()
            stepped_s = time.process_time()
            batch_s.append(stepped_s - begun_s)
            if number % REFRESH_BATCHES == 0:
                stream.refresh()
                refresh_s.append(time.process_time() - stepped_s)
        yield Cost(
            fmean(batch_s), fmean(refresh_s), len(list(folder.glob("events/date=*/*.parquet")))
        )


def main() -> int:
    """Print the costs of the first and the last hour."""
    with tempfile.TemporaryDirectory(prefix="beanpole-bench-") as folder:
        costs = run(Path(folder))
        files = sum(len(names) for _, _, names in os.walk(folder))
    print(f"{EVENTS:,} events of {HOURS} hours in batches of a minute, tables every 5 batches")
    for name, cost in (("first hour", costs[0]), (f"hour {HOURS}", costs[-1])):
        each_s = cost.batch_s + cost.refresh_s / REFRESH_BATCHES
        print(
            f"{name:<12} {1000 * each_s:7.1f} ms a batch ({1000 * cost.batch_s:.1f} ms and a "
            f"fifth of {1000 * cost.refresh_s:.1f} ms for tables), {cost.files} event files"
        )
    print(f"{files} files in DIR after {HOURS} hours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
