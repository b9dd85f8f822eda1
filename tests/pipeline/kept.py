"""Parts of random histories: whole, or of random ranges that are merged in random order."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st

from pyspark_beanpole.schema import EVENTS, arrow_schema
from pyspark_beanpole.statistics.keys import Limits, Parts
from pyspark_beanpole.statistics.parts import merged, reduced
from tests.pipeline.histories import SECOND_US, Event, History, Pace

LIMITS = Limits(wait_s=5.0, run_s=0.5)
DAYS = Pace(results=True, administered=True)
MINUTES = Pace(longest_us=61 * SECOND_US, results=True, administered=True)
JUMPS = Pace(longest_us=61 * SECOND_US, jumps=True, results=True)
HOSTS = {"n0": "10.0.0.1", "n1": "10.0.0.2", "n2": None}
SCHEMA = arrow_schema(EVENTS)
FAILING = ("timed_out", "returned", "buried", "failed", "moved")

seeds = st.integers(0, 2**32)
many = settings(max_examples=20, deadline=None)
Row = dict[str, Any]


def history(seed: int, pace: Pace, count: int = 700, first: int = 0) -> list[Event]:
    """Return the events of workers at two hosts, and of some with unknown hosts."""
    events = History(seed, pace, first).run(count).events
    return [{**event, "host": HOSTS.get(event["node"])} for event in events]


def batch(events: Sequence[Event]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(events), schema=SCHEMA)


def whole(events: Sequence[Event]) -> Parts:
    return reduced([batch(events)], LIMITS)


def scattered(events: Sequence[Event], seed: int) -> Parts:
    """Return the parts of random ranges, merged in random order and in several steps."""
    random = Random(seed)
    cuts = sorted(random.sample(range(len(events) + 1), min(6, len(events))))
    edges = [0, *cuts, len(events)]
    pieces = [reduced([batch(events[low:high])], LIMITS) for low, high in pairwise(edges)]
    while len(pieces) > 1:
        random.shuffle(pieces)
        some = random.randint(1, len(pieces))
        pieces = [merged(pieces[:some]), *pieces[some:]]
    return pieces[0]


def by_key(table: pa.Table, *key: str) -> dict[tuple[Any, ...], Row]:
    rows = table.to_pylist()
    found = {tuple(row[name] for name in key): row for row in rows}
    assert len(found) == len(rows), "keys are unique"
    return found
