"""Partial statistics of single jobs (burials, jobs from before the log), and the events seen.

`covered` has a row for each contiguous span of events. `buried` has the last event of each job
that entered or left the buried state: no job leaves it without an event. A job that is moved to
another queue leaves it and may enter it again with the next event; it stays buried then, and has
its earlier event. Up to the merge of both, rows of both are kept, and the rows before.

`before` has the first event of each job that existed before the span: ids are dense and grow, so
such a job has a lower id than the first put of the span.
"""

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from beanpole import events as e
from pyspark_beanpole.statistics.chunks import (
    BURIED,
    DEPTH_OF,
    GONE,
    LETTER,
    MOVING,
    STATE_WORDS,
    Chunk,
    worded,
)
from pyspark_beanpole.statistics.counts import LONG, TEXT
from pyspark_beanpole.statistics.grouping import (
    NONE,
    Coded,
    Ints,
    coded,
    grouped,
    ints,
    made,
    numbered,
)
from pyspark_beanpole.statistics.keys import DEPTHS

_TEXTS: Final = ("protocol", "tube", "external_id", "state", "reason", "worker")
_KINDS: Final = {**dict.fromkeys(_TEXTS, TEXT), "wall_time": pa.timestamp("us", "UTC")}

BURIED_SCHEMA: Final = pa.schema([(name, _KINDS.get(name, LONG)) for name in LETTER])
BEFORE: Final = pa.schema(
    [("job_id", LONG), ("offset", LONG), ("tube", TEXT), ("state_before", TEXT)]
)
STARTS: Final = pa.schema([("tube", TEXT), *[(state, LONG) for state in DEPTHS]])


class Span(NamedTuple):
    """Events first <= offset < end; fields without a value, for lack of events, are NONE."""

    first: int
    end: int
    # Of all tubes, whichever were selected.
    events: int
    begin_wall_us: int
    until_wall_us: int
    # The times of the first and of the last event.
    begin_time_us: int
    last_time_us: int
    last_wall_us: int
    # The id of the first job that was put.
    put_from: int


COVERED: Final = pa.schema([(name, LONG) for name in Span._fields])


def span_of(batch: pa.RecordBatch) -> Span:
    """Return the span of a non-empty batch, which must hold all events of its range."""
    offset, time_us, job_id = (batch.column(n).to_numpy() for n in ("offset", "time_us", "job_id"))
    wall_us = batch.column("wall_time").cast(LONG).to_numpy()
    puts = coded(batch.column("event"), (e.KIND_NAMES[e.PUT],)).codes == 0
    return Span(
        int(offset[0]),
        int(offset[-1]) + 1,
        len(offset),
        int(wall_us.min()),
        int(wall_us.max()),
        int(time_us[0]),
        int(time_us[-1]),
        int(wall_us[-1]),
        int(job_id[np.argmax(puts)]) if puts.any() else NONE,
    )


def joined(spans: list[Span]) -> list[Span]:
    """Join adjacent spans.

    Raises:
        ValueError: spans overlap.
    """
    found: list[Span] = []
    for span in sorted(spans):
        if found and found[-1].end > span.first:
            raise ValueError(f"ranges overlap: {found[-1][:2]} and {span[:2]}")
        if found and found[-1].end == span.first:
            found[-1] = _both(found[-1], span)
        else:
            found.append(span)
    return found


def _both(left: Span, right: Span) -> Span:
    if not left.events or not right.events:
        some = left if left.events else right
        return some._replace(first=left.first, end=right.end)
    return Span(
        left.first,
        right.end,
        left.events + right.events,
        min(left.begin_wall_us, right.begin_wall_us),
        max(left.until_wall_us, right.until_wall_us),
        left.begin_time_us,
        right.last_time_us,
        right.last_wall_us,
        left.put_from if left.put_from != NONE else right.put_from,
    )


def spans_of(covered: pa.Table) -> list[Span]:
    """Return the spans of a table, in order."""
    return sorted(Span(**row) for row in covered.to_pylist())


def covered_of(spans: list[Span]) -> pa.Table:
    """Return the table of spans."""
    columns = {name: [span[place] for span in spans] for place, name in enumerate(Span._fields)}
    return pa.table(columns, COVERED)


def reduced(chunk: Chunk, put_from: int) -> dict[str, pa.Table]:
    """Return the tables `buried` and `before` for a chunk of events.

    Args:
        chunk: the events.
        put_from: jobs with lower ids may be from before the log; 0 if there are none.
    """
    # A change of a job that stays buried, as by an administrator, is no burial.
    moved = (chunk.before.codes == BURIED) != (chunk.after.codes == BURIED)
    rows = np.flatnonzero(moved)
    if len(rows):
        borders = _Borders(chunk.offset[:1], chunk.offset[-1:] + 1)
        after = Coded(chunk.after.codes[rows], chunk.after.words)
        rows = rows[_lasting(chunk.job_id[rows], chunk.offset[rows], after, borders)]
    taken = chunk.rows.select(list(LETTER)).take(pa.array(rows))
    letters = {name: taken.column(name).cast(_KINDS.get(name, LONG)) for name in LETTER}
    old = np.flatnonzero(chunk.job_id < put_from)
    first = old[grouped(chunk.job_id[old]).firsts]
    before = {
        "job_id": chunk.job_id[first],
        "offset": chunk.offset[first],
        "tube": chunk.tube.texts(chunk.tube.codes[first]),
        "state_before": chunk.before.texts(chunk.before.codes[first]),
    }
    return {"buried": made(BURIED_SCHEMA, letters), "before": made(BEFORE, before)}


class _Borders(NamedTuple):
    """The first offsets of spans, and their ends."""

    firsts: Ints
    ends: Ints


def _lasting(job_id: Ints, offset: Ints, after: Coded, borders: _Borders) -> Ints:
    """Return, in order, the rows of `buried` that tell whether each job is buried, and since when.

    These are the last row of each job, and the rows before it that may be the last ones when events
    beyond a border are known.

    Args:
        job_id: of each row.
        offset: of each row.
        after: the state after each row.
        borders: of the spans with the events.
    """
    order = np.lexsort((offset, job_id))
    job_id, offset = job_id[order], offset[order]
    leaving = worded(after, (MOVING,))[order]
    entering = (after.codes == BURIED)[order]
    both = leaving[:-1] & entering[1:] & (job_id[:-1] == job_id[1:])
    both &= offset[:-1] + 1 == offset[1:]
    stayed = np.zeros(len(order), bool)
    stayed[:-1] |= both
    stayed[1:] |= both
    order, job_id, offset = order[~stayed], job_id[~stayed], offset[~stayed]
    leaving, entering = leaving[~stayed], entering[~stayed]
    # The other half of the move may lie beyond the border, but not before the log.
    is_open = leaving & np.isin(offset + 1, borders.ends)
    is_open |= entering & np.isin(offset, borders.firsts) & (offset > 0)
    # A row lasts if all later rows of its job are open.
    closed = np.cumsum(~is_open)
    last = np.searchsorted(job_id, job_id, side="right") - 1
    found: Ints = np.sort(order[closed[last] == closed])
    return found


def merged_buried(table: pa.Table, spans: list[Span]) -> pa.Table:
    """Keep the last rows of each job; drop departures once all rows before them are known."""
    offset, after = ints(table, "offset"), coded(table["state"], STATE_WORDS)
    borders = _Borders(firsts(spans), np.array([span.end for span in spans], np.int64))
    last = _lasting(ints(table, "job_id"), offset, after, borders)
    left = after.codes[last] != BURIED
    # The log is known from offset 0 to here, so no earlier rows can arrive. The last event may be
    # the first half of a move.
    whole = spans[0].end if spans and spans[0].first == 0 else 0
    is_half = worded(after, (MOVING,))[last] & (offset[last] + 1 == whole)
    last = last[~(left & ~is_half & (offset[last] < whole))]
    return table.take(pa.array(last))


def letters(table: pa.Table) -> pa.Table:
    """Return the rows of the burials of jobs that are buried, of the table `buried`.

    A job that is being moved still counts.
    """
    after = coded(table["state"], STATE_WORDS)
    rows = np.flatnonzero(~worded(after, (MOVING,)))
    rows = rows[np.argsort(-ints(table, "offset")[rows], kind="stable")]
    last = rows[grouped(ints(table, "job_id")[rows]).firsts]
    last = last[after.codes[last] == BURIED]
    return table.take(pa.array(np.sort(last)))


def merged_before(table: pa.Table, spans: list[Span]) -> pa.Table:
    """Keep the first row of each job that existed before its span."""
    offset, job_id = ints(table, "offset"), ints(table, "job_id")
    limits = [old_below(span) for span in spans]
    place: Ints = np.searchsorted(firsts(spans), offset, side="right") - 1
    if len(offset):
        kept = np.flatnonzero(job_id < np.array(limits)[place])
        order = kept[np.argsort(offset[kept], kind="stable")]
        rows = order[grouped(job_id[order], place[order]).firsts]
        rows.sort()
        table = table.take(pa.array(rows))
    return table


def old_below(span: Span) -> int:
    """Return the id below which jobs may be from before a span."""
    if span.first == 0:
        return 0
    return span.put_from if span.put_from != NONE else np.iinfo(np.int64).max


def before(table: pa.Table, spans: list[Span]) -> pa.Table:
    """Return (tube, DEPTHS...): the number of jobs in each state before the first event.

    Jobs that had no event since are not counted.
    """
    if not spans or spans[0].first == 0:
        return STARTS.empty_table()
    table = merged_before(table, spans)
    inside = ints(table, "offset") < spans[0].end
    # Jobs that were put in a hole appear later, but with higher ids.
    limit = old_below(spans[0])
    table = table.filter(pa.array(inside | (ints(table, "job_id") < limit)))
    order = np.argsort(ints(table, "offset"), kind="stable")
    table = table.take(pa.array(np.sort(order[grouped(ints(table, "job_id")[order]).firsts])))
    states = coded(table["state_before"], STATE_WORDS).codes
    table = table.filter(pa.array((states != GONE) & (states < len(DEPTH_OF))))
    states = DEPTH_OF[coded(table["state_before"], STATE_WORDS).codes]
    groups = grouped(numbered(table["tube"]))
    found: dict[str, Any] = {"tube": table["tube"].take(pa.array(groups.firsts))}
    found |= {state: groups.counted(states == n) for n, state in enumerate(DEPTHS)}
    return made(STARTS, found)


def firsts(spans: list[Span]) -> Ints:
    """Return the first offsets of spans."""
    return np.array([span.first for span in spans], np.int64)
