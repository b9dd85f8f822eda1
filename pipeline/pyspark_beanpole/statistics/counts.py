"""Sums by day, tube and protocol, and by worker: partial results that can be added in any order.

This includes the moments of durations: n, sum, and the sum of squared differences from the mean
(m2), merged by Chan's formula, because plain sums of squares lose the significant digits.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from beanpole import events as e
from pyspark_beanpole.statistics.bins import bins_of, slots_of
from pyspark_beanpole.statistics.chunks import (
    RESERVED,
    Chunk,
    ended_by_others,
    failing,
    losing,
    outcomes,
    worker_of,
)
from pyspark_beanpole.statistics.grouping import (
    NONE,
    Groups,
    Ints,
    Shape,
    folded,
    grouped,
    ints,
    made,
    table_groups,
)
from pyspark_beanpole.statistics.keys import (
    DAY_US,
    KEYS,
    KINDS,
    OUTCOMES,
    SECOND_US,
    Limits,
)

WAIT_KIND, RUN_KIND, UNFINISHED_KIND = range(len(KINDS))
# The value of a limit that does not exist.
UNLIMITED_US: Final = NONE

TEXT: Final = pa.string()
LONG: Final = pa.int64()
_DAY_TUBE_PROTOCOL: Final = [("day", pa.date32()), ("tube", TEXT), ("protocol", TEXT)]
WORKER_SUMS: Final = (
    *("reservations", "done", "released", "buried", "timed_out", "returned", "failed", "ends"),
    *("lost_leases", "run_s", "run_us"),
)
_TRANSITION: Final = ("event", "reason", "state_before", "state")


def _schema(texts: Sequence[str], longs: Sequence[str]) -> pa.Schema:
    return pa.schema([*[(name, TEXT) for name in texts], *[(name, LONG) for name in longs]])


def _of_day(texts: Sequence[str], longs: Sequence[str]) -> pa.Schema:
    return pa.schema([*_DAY_TUBE_PROTOCOL, *_schema(texts, longs)])


# Sums of times are split into whole seconds and remaining microseconds: a sum of microseconds alone
# would overflow 64 bits when a hundred million jobs a day wait for hours.
SCHEMAS: Final[dict[str, pa.Schema]] = {
    "transitions": _of_day(_TRANSITION, ("events", "body_bytes", "run_s", "run_us")),
    "durations": _of_day(("kind",), ("bin", "slot", "count")),
    "moments": _of_day(
        ("kind",),
        ("limit_us", "count", "within", "total_s", "total_us", "min_us", "max_us"),
    ).append(pa.field("m2_us2", pa.float64())),
    "attempts": _of_day(("outcome",), ("attempts", "jobs")),
    "workers": _schema(("worker", "tube"), (*WORKER_SUMS, "first_us", "last_us")),
}
SHAPES: Final[dict[str, Shape]] = {
    "transitions": Shape((*KEYS, *_TRANSITION), ("events", "body_bytes", "run_s", "run_us")),
    "durations": Shape((*KEYS, "kind", "bin", "slot"), ("count",)),
    "attempts": Shape((*KEYS, "outcome", "attempts"), ("jobs",)),
    "workers": Shape(("worker", "tube"), WORKER_SUMS, ("first_us",), ("last_us",)),
}
MOMENT_KEYS: Final = (*KEYS, "kind", "limit_us")


def reduced(chunk: Chunk, limits: Limits) -> dict[str, pa.Table]:
    """Return the tables of SCHEMAS for a chunk of events."""
    day = chunk.wall_us // DAY_US
    cells = grouped(day, chunk.tube.codes, chunk.protocol.codes)
    keys = _Keys(chunk, cells, day[cells.firsts])
    return {
        "transitions": _transitions(chunk, keys),
        **_durations(chunk, keys, limits),
        "attempts": _attempts(chunk, keys),
        "workers": _workers(chunk),
    }


class _Keys:
    """The cells (day, tube, protocol) that the events of a chunk belong to."""

    def __init__(self, chunk: Chunk, cells: Groups, days: Ints) -> None:
        self.of = cells.of
        self._days = days
        self._tubes = chunk.tube.texts(chunk.tube.codes[cells.firsts])
        self._protocols = chunk.protocol.texts(chunk.protocol.codes[cells.firsts])

    def columns(self, cells: Ints) -> dict[str, Any]:
        """Return the columns of KEYS for the given cells."""
        places = pa.array(cells)
        return {
            "day": self._days[cells],
            "tube": self._tubes.take(places),
            "protocol": self._protocols.take(places),
        }


def _transitions(chunk: Chunk, keys: _Keys) -> pa.Table:
    event, reason, before, after = chunk.event, chunk.reason, chunk.before, chunk.after
    groups = grouped(keys.of, event.codes, reason.codes, before.codes, after.codes)
    first = groups.firsts
    run_s, run_us = parted(np.maximum(chunk.run_us, 0))
    return made(
        SCHEMAS["transitions"],
        {
            **keys.columns(keys.of[first]),
            "event": event.texts(event.codes[first]),
            "reason": reason.texts(reason.codes[first]),
            "state_before": before.texts(before.codes[first]),
            "state": after.texts(after.codes[first]),
            "events": np.bincount(groups.of, minlength=groups.size),
            "body_bytes": groups.summed(chunk.body_bytes),
            "run_s": groups.summed(run_s),
            "run_us": groups.summed(run_us),
        },
    )


def parted(duration_us: Ints) -> tuple[Ints, Ints]:
    """Return the whole seconds and the remaining microseconds."""
    whole_s = duration_us // SECOND_US
    return whole_s, duration_us - whole_s * SECOND_US


def _durations(chunk: Chunk, keys: _Keys, limits: Limits) -> dict[str, pa.Table]:
    """Count durations: waits on the day of the reservation, runs on the day of their end."""
    rows = np.flatnonzero((chunk.wait_us >= 0) | (chunk.run_us >= 0))
    waited = chunk.wait_us[rows] >= 0
    duration_us = np.where(waited, chunk.wait_us[rows], chunk.run_us[rows])
    ran = chunk.complete[rows]
    kind = np.where(waited, WAIT_KIND, np.where(ran, RUN_KIND, UNFINISHED_KIND))
    cell = keys.of[rows]
    kinds = pa.array(KINDS, TEXT)
    bins, slots = bins_of(duration_us), slots_of(duration_us)
    groups = grouped(cell, kind, bins, slots)
    first = groups.firsts
    counted = {
        **keys.columns(cell[first]),
        "kind": kinds.take(pa.array(kind[first])),
        "bin": bins[first],
        "slot": slots[first],
        "count": np.bincount(groups.of, minlength=groups.size),
    }
    groups = grouped(cell, kind)
    first = groups.firsts
    limit_us = np.array([*(round(limit_s * SECOND_US) for limit_s in limits), UNLIMITED_US])[kind]
    count = np.bincount(groups.of, minlength=groups.size)
    total_s, total_us = (groups.summed(part) for part in parted(duration_us))
    mean_us = (total_s * float(SECOND_US) + total_us) / np.maximum(count, 1)
    moments = {
        **keys.columns(cell[first]),
        "kind": kinds.take(pa.array(kind[first])),
        "limit_us": limit_us[first],
        "count": count,
        "within": groups.counted(duration_us <= limit_us),
        "total_s": total_s,
        "total_us": total_us,
        "min_us": groups.least(duration_us),
        "max_us": groups.most(duration_us),
        "m2_us2": groups.added((duration_us - mean_us[groups.of]) ** 2),
    }
    return {
        "durations": made(SCHEMAS["durations"], counted),
        "moments": made(SCHEMAS["moments"], moments),
    }


def _attempts(chunk: Chunk, keys: _Keys) -> pa.Table:
    codes = (chunk.event.codes, chunk.before.codes, chunk.after.codes)
    outcome = outcomes(*codes, chunk.complete)
    rows = np.flatnonzero(outcome != NONE)
    cell, outcome, attempts = keys.of[rows], outcome[rows], chunk.attempt[rows]
    groups = grouped(cell, outcome, attempts)
    first = groups.firsts
    return made(
        SCHEMAS["attempts"],
        {
            **keys.columns(cell[first]),
            "outcome": pa.array(OUTCOMES, TEXT).take(pa.array(outcome[first])),
            "attempts": attempts[first],
            "jobs": np.bincount(groups.of, minlength=groups.size),
        },
    )


def _workers(chunk: Chunk) -> pa.Table:
    """Count the outcomes of reservations by worker and tube."""
    worker = worker_of(chunk)
    held = (chunk.before.codes == RESERVED) | (chunk.after.codes == RESERVED)
    rows = np.flatnonzero(held & (worker.codes != NONE) & ~ended_by_others(chunk))
    event, before = chunk.event.codes[rows], chunk.before.codes[rows]
    names, tubes, time_us = worker.codes[rows], chunk.tube.codes[rows], chunk.time_us[rows]
    groups = grouped(names, tubes)
    spent_us = np.maximum(chunk.run_us[rows], 0)
    run_s, run_us = parted(spent_us)
    ended = (before == RESERVED) & (event != e.TOUCHED)
    done = chunk.complete[rows] & (before == RESERVED)
    failed = failing(chunk.event.codes, chunk.before.codes, chunk.reason)[rows]
    lost = losing(chunk)[rows]
    return made(
        SCHEMAS["workers"],
        {
            "worker": worker.texts(names[groups.firsts]),
            "tube": chunk.tube.texts(tubes[groups.firsts]),
            "reservations": groups.counted(event == e.RESERVED),
            "done": groups.counted(ended & done),
            "released": groups.counted(event == e.RELEASED),
            "buried": groups.counted(event == e.BURIED),
            "timed_out": groups.counted(event == e.TIMED_OUT),
            "returned": groups.counted(event == e.RETURNED),
            "failed": groups.counted(failed),
            "ends": groups.counted(ended),
            "lost_leases": groups.counted(lost),
            "run_s": groups.summed(run_s),
            "run_us": groups.summed(run_us),
            # A reservation that ends here may have begun before these events: the worker was there.
            "first_us": groups.least(time_us - spent_us),
            "last_us": groups.most(time_us),
        },
    )


def merged(name: str, table: pa.Table) -> pa.Table:
    """Add up rows of one of the tables of SCHEMAS."""
    return merged_moments(table) if name == "moments" else folded(table, SHAPES[name])


def merged_moments(table: pa.Table, keys: Sequence[str] = MOMENT_KEYS) -> pa.Table:
    """Merge rows of moments that have equal `keys`, a subset of their keys."""
    groups = table_groups(table, keys)
    if table.num_rows == 0:
        return table.select([*keys, *_moment_columns()])
    count = ints(table, "count")
    total_us = ints(table, "total_s") * float(SECOND_US) + ints(table, "total_us")
    first = pa.array(groups.firsts)
    found: dict[str, Any] = {name: table[name].take(first) for name in keys}
    found |= {
        name: groups.summed(ints(table, name))
        for name in ("count", "within", "total_s", "total_us")
    }
    found["min_us"] = groups.least(ints(table, "min_us"))
    found["max_us"] = groups.most(ints(table, "max_us"))
    mean_us = (found["total_s"] * float(SECOND_US) + found["total_us"]) / found["count"]
    apart = total_us / count - mean_us[groups.of]
    m2 = table["m2_us2"].to_numpy() + count * apart * apart
    found["m2_us2"] = groups.added(m2)
    fields = [table.schema.field(name) for name in (*keys, *_moment_columns())]
    return made(pa.schema(fields), found)


def _moment_columns() -> list[str]:
    names = SCHEMAS["moments"].names
    return [name for name in names if name not in MOMENT_KEYS]
