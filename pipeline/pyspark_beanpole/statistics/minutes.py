"""The flows of each minute, and the number of jobs in each state, at most and at its end.

Every event takes a job out of one state and puts it into another. For each state, a row has the
change over its events, and the peak: the maximal rise above the number before its first event.
Adjacent rows are merged in the order of offsets.

After a wall clock was set back, events count in the latest minute until the clock has caught up:
minutes never go back as offsets rise. Rows exist only for minutes with events.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from beanpole import events as e
from pyspark_beanpole.statistics.chunks import DEPTH_OF, Chunk, failing, outcomes
from pyspark_beanpole.statistics.counts import LONG, TEXT
from pyspark_beanpole.statistics.grouping import Ints, ints, made, numbered
from pyspark_beanpole.statistics.keys import DEPTHS, MINUTE_US, OUTCOMES

FLOWS: Final = ("puts", "reservations", *OUTCOMES, "failed")
CHANGES: Final = tuple(f"{state}_change" for state in DEPTHS)
PEAKS: Final = tuple(f"{state}_peak" for state in DEPTHS)

# `minutes` are those of each tube, `whole_minutes` those of all tubes together: the peaks of tubes
# occur at different times, so they cannot be added up.
TOTAL: Final = pa.schema(
    [(name, LONG) for name in ("minute", "first_offset", *FLOWS, *CHANGES, *PEAKS)]
)
SCHEMAS: Final = {"minutes": pa.schema([("tube", TEXT), *TOTAL]), "whole_minutes": TOTAL}


def reduced(chunk: Chunk) -> dict[str, pa.Table]:
    """Return the tables of SCHEMAS for a chunk of events."""
    event, before, after = (texts.codes for texts in (chunk.event, chunk.before, chunk.after))
    minute = np.maximum.accumulate(chunk.wall_us // MINUTE_US)
    outcome = outcomes(event, before, after, chunk.complete)
    flows = {
        "puts": event == e.PUT,
        "reservations": event == e.RESERVED,
        **{name: outcome == number for number, name in enumerate(OUTCOMES)},
        "failed": failing(event, before, chunk.reason),
    }
    # The two depths that each event changes; unknown states are not counted.
    known = len(DEPTH_OF)
    padded = np.append(DEPTH_OF, -1)
    left = padded[np.where((before >= 0) & (before < known), before, known)]
    entered = padded[np.where((after >= 0) & (after < known), after, known)]
    # A stable sort keeps the events of a tube in order; 16-bit codes are sorted by radix.
    codes = chunk.tube.codes
    narrow = codes.astype(np.int16) if len(chunk.tube.words) < (1 << 15) else codes
    order = np.argsort(narrow, kind="stable")
    tube = codes[order]
    rows = _Rows(chunk.offset, minute, flows, left, entered)
    by_tube, starts = rows.taken(order).joined(tube)
    whole, _ = rows.joined(np.zeros(chunk.size, np.int64))
    return {
        "minutes": made(SCHEMAS["minutes"], {"tube": chunk.tube.texts(tube[starts]), **by_tube}),
        "whole_minutes": made(TOTAL, whole),
    }


class _Rows:
    """Individual events, in order."""

    def __init__(
        self, offset: Ints, minute: Ints, flows: dict[str, Any], left: Ints, entered: Ints
    ) -> None:
        self.offset, self.minute, self.flows = offset, minute, flows
        self.left, self.entered = left, entered

    def taken(self, order: Ints) -> "_Rows":
        flows = {name: flow[order] for name, flow in self.flows.items()}
        return _Rows(
            self.offset[order], self.minute[order], flows, self.left[order], self.entered[order]
        )

    def joined(self, tube: Ints) -> tuple[dict[str, Ints], Ints]:
        """Merge adjacent rows of the same tube and minute; return columns, and the rows' starts."""
        starts = _starts(tube, self.minute)
        found = {"minute": self.minute[starts], "first_offset": self.offset[starts]}
        for name, flow in self.flows.items():
            found[name] = np.add.reduceat(flow, starts, dtype=np.int64)
        for number, (change_name, peak_name) in enumerate(zip(CHANGES, PEAKS, strict=True)):
            change = (self.entered == number).astype(np.int64) - (self.left == number)
            found[change_name], found[peak_name] = _peaks(change, np.maximum(change, 0), starts)
        return found, starts


def _starts(*keys: Ints) -> Ints:
    """Return the indices of rows that differ from their predecessor."""
    new = np.zeros(len(keys[0]), bool)
    new[:1] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)


def _peaks(change: Ints, peak: Ints, starts: Ints) -> tuple[Ints, Ints]:
    """Merge the changes and peaks of the rows from each start to the next."""
    changes = np.add.reduceat(change, starts)
    before = np.cumsum(change) - change
    lengths = np.diff(np.append(starts, len(change)))
    within = before - np.repeat(before[starts], lengths) + peak
    return changes, np.maximum.reduceat(within, starts)


def merged(table: pa.Table, spans: Ints) -> pa.Table:
    """Merge the rows that belong to the same minute of a tube.

    Args:
        table: one of SCHEMAS, of ranges that do not overlap, in any order.
        spans: the first offsets of the contiguous spans of the ranges, ascending; rows are not
            merged across a hole, which other events may fill later.
    """
    if table.num_rows == 0:
        return table
    has_tubes = "tube" in table.schema.names
    in_order = np.argsort(ints(table, "first_offset"), kind="stable")
    table = table.take(pa.array(in_order))
    first = ints(table, "first_offset")
    minute = np.maximum.accumulate(ints(table, "minute"))
    tube = numbered(table["tube"]) if has_tubes else np.zeros(len(first), np.int64)
    order = np.argsort(tube, kind="stable")
    tube, minute, first = tube[order], minute[order], first[order]
    starts = _starts(tube, minute, np.searchsorted(spans, first, side="right"))
    found: dict[str, Any] = {"minute": minute[starts], "first_offset": first[starts]}
    if has_tubes:
        found["tube"] = table["tube"].take(pa.array(order[starts]))
    table = table.take(pa.array(order))
    for name in FLOWS:
        found[name] = np.add.reduceat(ints(table, name), starts)
    for change, peak in zip(CHANGES, PEAKS, strict=True):
        joined = _peaks(ints(table, change), ints(table, peak), starts)
        found[change], found[peak] = joined
    return made(table.schema, found)


def depths(table: pa.Table, start: pa.Table, end_min: int) -> pa.Table:
    """Return a row for each tube and minute with events: flows, maximum and end of each state.

    Args:
        table: `minutes` or `whole_minutes`, complete.
        start: (tube, DEPTHS...): the number of jobs before the first event; a state without a
            column is unknown, and null in all rows.
        end_min: the end of the log, to which each tube's last row is valid.
    """
    has_tubes = "tube" in table.schema.names
    if table.num_rows == 0:
        return depth_schema(has_tubes).empty_table()
    table = merged(table, np.zeros(1, np.int64))
    rows = table.num_rows
    minute = ints(table, "minute")
    tube = numbered(table["tube"]) if has_tubes else np.zeros(rows, np.int64)
    starts = _starts(tube)
    until = np.append(minute[1:], 0)
    until[np.append(starts[1:], rows) - 1] = end_min
    found: dict[str, Any] = {name: ints(table, name) for name in FLOWS}
    found |= {"minute": minute * MINUTE_US, "until": until * MINUTE_US}
    if has_tubes:
        found["tube"] = table["tube"]
    lengths = np.diff(np.append(starts, rows))
    for state, change_name, peak in zip(DEPTHS, CHANGES, PEAKS, strict=True):
        if state not in start.schema.names:
            found[state] = found[f"{state}_max"] = pa.nulls(rows, LONG)
            continue
        begun = _started(table, start, state, starts)
        change = ints(table, change_name)
        total = np.cumsum(change)
        before = total - change
        base = np.repeat(begun - before[starts], lengths)
        found[state] = total + base
        found[f"{state}_max"] = before + base + ints(table, peak)
    answer = made(depth_schema(has_tubes), found)
    return answer.sort_by([("tube", "ascending"), ("minute", "ascending")]) if has_tubes else answer


def depth_schema(has_tubes: bool) -> pa.Schema:
    """Return the schema of `depths`."""
    time = pa.timestamp("us", "UTC")
    most = [f"{state}_max" for state in DEPTHS]
    longs = [(name, LONG) for name in (*FLOWS, *DEPTHS, *most)]
    tube = [("tube", TEXT)] if has_tubes else []
    return pa.schema([*tube, ("minute", time), ("until", time), *longs])


def _started(table: pa.Table, start: pa.Table, state: str, starts: Ints) -> Ints:
    """Return the number of jobs in a state with which each tube begins."""
    amounts = ints(start, state)
    if "tube" not in table.schema.names:
        return np.full(len(starts), amounts.sum())
    known = dict(zip(start["tube"].to_pylist(), amounts.tolist(), strict=True))
    tubes = table["tube"].take(pa.array(starts)).to_pylist()
    return np.array([known.get(tube, 0) for tube in tubes], np.int64)
