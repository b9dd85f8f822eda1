"""Reports of events without Spark: reduced as in a task, merged, and written as HTML."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from pyspark_beanpole.report import windows
from pyspark_beanpole.report.collect import Read, collect
from pyspark_beanpole.report.figures import Covered, Figures
from pyspark_beanpole.report.findings import Finding, findings
from pyspark_beanpole.report.page import page
from pyspark_beanpole.report.period import ANY, Asked, chosen
from pyspark_beanpole.schema import EVENTS, arrow_schema
from pyspark_beanpole.statistics import answers, parts, reigns
from pyspark_beanpole.statistics.grouping import ints
from pyspark_beanpole.statistics.keys import DEFAULT_LIMITS, Limits
from pyspark_beanpole.statistics.lives import COVERED
from tests.pipeline.histories import Event

SCHEMA = arrow_schema(EVENTS)
# Rows per batch: few, so that periods end within batches.
BATCH_ROWS = 64


class Made(NamedTuple):
    """A report that is not written to a disk."""

    read: Read
    figures: Figures
    findings: Sequence[Finding]

    @property
    def html(self) -> str:
        return page(self.figures, self.findings, None)

    def kinds(self, queue: str) -> set[str]:
        return {one.kind for one in self.findings if one.queue == queue}


def table_of(events: Sequence[Event]) -> pa.Table:
    return pa.Table.from_pylist(list(events), SCHEMA)


def read_of(
    events: pa.Table,
    asked: Asked = ANY,
    *,
    limits: Limits = DEFAULT_LIMITS,
    queues: Sequence[str] = (),
    missing: Sequence[tuple[int, int]] = (),
    ranges: int = 1,
    seed: int = 0,
) -> Read:
    """Reduce events in ranges of random length, as tasks would, including the second look."""
    wall_us, offsets = ints(events, "wall_time"), ints(events, "offset")
    covered = Covered(
        "example", int(offsets[0]), int(offsets[-1]) + 1, int(wall_us[0]), int(wall_us.max()),
        missing, "--from /srv/export",
    )  # fmt: skip
    period = chosen(asked, covered.begin_us, covered.last_us)
    ends_us = (period.before.since_us, period.since_us, period.until_us)
    later = [np.flatnonzero(wall_us >= end_us) for end_us in ends_us]
    ends = windows.Cuts(*(int(offsets[at[0]]) if len(at) else covered.end for at in later))
    random = Random(seed)
    count = min(ranges, events.num_rows)
    cuts = [0, *sorted(random.sample(range(1, events.num_rows), count - 1)), events.num_rows]
    kept = [
        windows.reduced(
            events.slice(first, end - first).to_batches(max_chunksize=BATCH_ROWS * 1000),
            period,
            limits,
            ends,
            tubes=tuple(queues) or None,
            put_from=0 if covered.first == 0 else None,
        )
        for first, end in pairwise(cuts)
    ]
    random.shuffle(kept)
    found = windows.merged(kept)
    log = found.log
    second = reigns.looked(events.to_batches(), answers.unresolved(log))
    log = parts.merged([log, {"covered": COVERED.empty_table(), "looked": second}])
    before = found.before if covered.begin_us < period.since_us else None
    return Read(covered, period, found.now, before, log, limits, None, tuple(queues), found.waits)


def made(events: pa.Table, asked: Asked = ANY, **more: object) -> Made:
    """Return the report of events; `more` is passed to `read_of`."""
    read = read_of(events, asked, **more)  # type: ignore[arg-type]
    figures = collect(read)
    return Made(read, figures, findings(figures))
