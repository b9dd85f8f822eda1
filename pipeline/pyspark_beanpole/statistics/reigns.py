"""Find the oldest ready job at any full minute, and since when it was ready.

An event by which a job leaves the ready state tells when the job entered it. Of two jobs that are
ready at once the one with the earlier time is the older, so in the order of these times a job is
the oldest only after all jobs before it have left: each tube's time falls into reigns that do not
overlap, and there are never more of them than minutes.

Jobs that are still ready at the end all leave at that end, so only the eldest of each tube counts.
`ready` has, by minute of becoming ready, the number of jobs that came less those that left: the
first minute with a positive number is the eldest's. If one job is left in it, the sums identify it;
among several, a second look at the events of that minute's jobs finds it (`unresolved`, `looked`).

Queues of qless are left out: events by which their jobs leave the ready state do not tell when the
job entered it, so that every job would seem to stay.
"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beanpole.exports import UNCOUNTED
from pyspark_beanpole.statistics.chunks import READY, Chunk, column_ints
from pyspark_beanpole.statistics.counts import LONG, TEXT
from pyspark_beanpole.statistics.grouping import (
    Coded,
    Groups,
    Ints,
    Shape,
    coded,
    folded,
    grouped,
    ints,
    made,
    numbered,
)
from pyspark_beanpole.statistics.keys import MINUTE_US

_TIME: Final = pa.timestamp("us", "UTC")

# Jobs that left the ready state, with the full minutes (since 1970) between which they were ready.
# `ready_at_us` orders them; `since_us` is by the wall clock, which drifts and may be set.
LEFT: Final = pa.schema(
    [("tube", TEXT), *[(n, LONG) for n in ("first", "end", "ready_at_us", "since_us", "job_id")]]
)
# By minute of cluster time at which jobs became ready: the number that came less the number that
# left, and the same sums of their ids and of their times within the minute.
READY_SCHEMA: Final = pa.schema(
    [("tube", TEXT), *[(name, LONG) for name in ("ready_minute", "jobs", "ids", "rest_us")]]
)
READY_SHAPE: Final = Shape(("tube", "ready_minute"), ("jobs", "ids", "rest_us"))
# The same for single jobs, in the minutes that needed a second look.
LOOKED: Final = pa.schema([("tube", TEXT), *[(n, LONG) for n in ("job_id", "ready_at_us", "jobs")]])
LOOKED_SHAPE: Final = Shape(("tube", "job_id", "ready_at_us"), ("jobs",))
REIGNS: Final = pa.schema(
    [("tube", TEXT), ("begin", _TIME), ("until", _TIME), ("job_id", LONG), ("ready_since", _TIME)]
)
# The columns that a second look needs.
LOOK_COLUMNS: Final = ("tube", "job_id", "state_before", "state", "ready_at_us")


def reduced(chunk: Chunk) -> dict[str, pa.Table]:
    """Return the tables `left` and `ready` for a chunk of events."""
    before, after = chunk.before.codes, chunk.after.codes
    known = (chunk.ready_at_us >= 0) & ~_uncounted(chunk)
    leaves = (before == READY) & (after != READY) & known
    enters = (after == READY) & (before != READY) & known
    return {"left": _left(chunk, np.flatnonzero(leaves)), "ready": _ready(chunk, leaves, enters)}


def _uncounted(chunk: Chunk) -> Any:
    """Return which events are of queues of qless."""
    found = pc.starts_with(chunk.tube.words, UNCOUNTED).to_numpy(zero_copy_only=False)
    return np.append(found, False)[chunk.tube.codes]  # the last one is for events without a tube


def _left(chunk: Chunk, rows: Ints) -> pa.Table:
    # Ages are in cluster time, so `since_us` is computed back from the wall clock.
    until_us, ready_at_us = chunk.wall_us[rows], chunk.ready_at_us[rows]
    since_us = until_us - (chunk.time_us[rows] - ready_at_us)
    first, end = _rounded_up(since_us), _rounded_up(until_us)
    seen = np.flatnonzero(first < end)
    tube = chunk.tube.codes[rows][seen]
    columns = {
        "first": first[seen],
        "end": end[seen],
        "ready_at_us": ready_at_us[seen],
        "since_us": since_us[seen],
        "job_id": chunk.job_id[rows][seen],
    }
    kept = _reigning(tube, columns)
    found = {name: column[kept] for name, column in columns.items()}
    return made(LEFT, {"tube": chunk.tube.texts(tube[kept]), **found})


def _rounded_up(time_us: Ints) -> Ints:
    return -(-time_us // MINUTE_US)


def _reigning(tube: Ints, columns: dict[str, Ints]) -> Ints:
    """Return the rows that no older job of their tube outlives, in the order of tube and age.

    Applying it again to its result with additional rows equals applying it once to all rows.
    """
    ready_at_us, job_id, end = columns["ready_at_us"], columns["job_id"], columns["end"]
    # Of the jobs that end together only the eldest counts; few remain, which can be sorted.
    groups = grouped(tube, end)
    eldest = np.flatnonzero(ready_at_us == groups.least(ready_at_us)[groups.of])
    alike = Groups(groups.of[eldest], groups.firsts)
    eldest = eldest[job_id[eldest] == alike.least(job_id[eldest])[alike.of]]
    order = eldest[np.lexsort((job_id[eldest], ready_at_us[eldest], tube[eldest]))]
    return order[end[order] > _ends_before(tube[order], end[order])]


def _ends_before(tube: Ints, end: Ints) -> Ints:
    """Return the latest end among the earlier rows of the same tube; rows are sorted by tube.

    For the first row of a tube it is smaller than any end.
    """
    if not len(tube):
        return end
    low = int(end.min()) - 1
    height = int(end.max()) - low + 1
    rank = np.cumsum(np.append(0, tube[1:] != tube[:-1]))
    # Each tube's ends are lifted above those of all earlier tubes, so one running maximum suffices.
    lifted = np.maximum.accumulate(end - low + rank * height)
    found = np.append(0, lifted[:-1]) - rank * height
    return np.where(found > 0, found + low, np.iinfo(np.int64).min)


def _ready(chunk: Chunk, leaves: Ints, enters: Ints) -> pa.Table:
    rows = np.flatnonzero(leaves | enters)
    sign = np.where(enters[rows], 1, -1)
    tube, ready_at_us = chunk.tube.codes[rows], chunk.ready_at_us[rows]
    minute = ready_at_us // MINUTE_US
    groups = grouped(tube, minute)
    found = {
        "ready_minute": minute[groups.firsts],
        "jobs": groups.summed(sign),
        "ids": groups.summed(sign * chunk.job_id[rows]),
        "rest_us": groups.summed(sign * (ready_at_us - minute * MINUTE_US)),
    }
    tubes = chunk.tube.texts(tube[groups.firsts])
    return _some_left(made(READY_SCHEMA, {"tube": tubes, **found}))


def _some_left(table: pa.Table) -> pa.Table:
    """Drop the minutes whose jobs have all left."""
    there = ints(table, "jobs") != 0
    there |= (ints(table, "ids") != 0) | (ints(table, "rest_us") != 0)
    return table.filter(pa.array(there))


def merged(name: str, table: pa.Table) -> pa.Table:
    """Merge rows of `left`, `ready` or `looked`."""
    if name == "ready":
        return _some_left(folded(table, READY_SHAPE))
    if name == "looked":
        found = folded(table, LOOKED_SHAPE)
        return found.filter(pa.array(ints(found, "jobs") != 0))
    columns = {column: ints(table, column) for column in LEFT.names[1:]}
    return table.take(pa.array(_reigning(numbered(table["tube"]), columns)))


def _cells(ready: pa.Table, begun_us: int | None) -> pa.Table:
    """Return each tube's minutes that may contain the eldest job, in order.

    Args:
        ready: complete.
        begun_us: the cluster time of the first event, if there were events before it: of jobs
            that became ready earlier, only the leaving was seen. None for a whole log.
    """
    minute = ints(ready, "ready_minute")
    begun = -1 if begun_us is None else begun_us // MINUTE_US
    # The sums of the first event's minute are incomplete, so it needs a look at its jobs.
    may = (minute == begun) | ((minute > begun) & (ints(ready, "jobs") > 0))
    found = ready.filter(pa.array(may)).sort_by(
        [("tube", "ascending"), ("ready_minute", "ascending")]
    )
    tube, minute = numbered(found["tube"]), ints(found, "ready_minute")
    new = np.append(True, tube[1:] != tube[:-1])[: len(tube)]
    # The first minute, and after the incomplete one also the next.
    second = np.append(False, new[:-1] & (minute[:-1] == begun))[: len(tube)] & ~new
    return found.filter(pa.array(new | second))


def unresolved(ready: pa.Table, begun_us: int | None) -> pa.Table:
    """Return (tube, ready_minute) of the minutes whose jobs must be looked at a second time."""
    cells = _cells(ready, begun_us)
    begun = -1 if begun_us is None else begun_us // MINUTE_US
    unsure = (ints(cells, "jobs") != 1) | (ints(cells, "ready_minute") == begun)
    return cells.filter(pa.array(unsure)).select(["tube", "ready_minute"])


def looked(batches: Iterable[pa.RecordBatch], cells: pa.Table) -> pa.Table:
    """Return the jobs of these minutes that came and left in a range of events.

    Args:
        batches: events with at least LOOK_COLUMNS.
        cells: from `unresolved`.
    """
    wanted = cells["ready_minute"].unique().to_numpy()
    found = [LOOKED.empty_table()]
    for batch in batches:
        ready_at_us = column_ints(batch.column("ready_at_us"))
        rows = np.flatnonzero(np.isin(ready_at_us // MINUTE_US, wanted))
        if not len(rows):
            continue
        batch = batch.take(pa.array(rows))
        before, after = (_is_ready(batch.column(name)) for name in ("state_before", "state"))
        moved = np.flatnonzero(before != after)
        columns: dict[str, Any] = {
            "tube": batch.column("tube").take(pa.array(moved)).cast(TEXT),
            "job_id": column_ints(batch.column("job_id"))[moved],
            "ready_at_us": ready_at_us[rows][moved],
            "jobs": np.where(after[moved], 1, -1),
        }
        found.append(made(LOOKED, columns))
    return merged("looked", pa.concat_tables(found))


def _is_ready(column: Any) -> Ints:
    states: Coded = coded(column, ("ready",))
    return states.codes == 0


def still(ready: pa.Table, looked_at: pa.Table, begun_us: int | None) -> dict[str, tuple[int, int]]:
    """Return the eldest job of each tube that is still ready: (ready_at_us, job_id).

    Without a second look at its minute, the id is -1 and the time the minute's beginning.
    """
    known = _eldest(looked_at.filter(pa.array(ints(looked_at, "jobs") > 0)))
    begun = -1 if begun_us is None else begun_us // MINUTE_US
    found: dict[str, tuple[int, int]] = {}
    for row in _cells(ready, begun_us).to_pylist():
        tube, minute = row["tube"], row["ready_minute"]
        if tube in found:
            continue
        if (tube, minute) in known:
            found[tube] = known[tube, minute]
        elif row["jobs"] == 1 and minute != begun:
            found[tube] = minute * MINUTE_US + row["rest_us"], row["ids"]
        elif row["jobs"] > 0:
            found[tube] = minute * MINUTE_US, -1
    return found


def _eldest(jobs: pa.Table) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (ready_at_us, job_id) of the eldest by tube and minute; jobs may be a million."""
    ready_at_us, job_id = ints(jobs, "ready_at_us"), ints(jobs, "job_id")
    tube, minute = numbered(jobs["tube"]), ready_at_us // MINUTE_US
    order = np.lexsort((job_id, ready_at_us))
    first = order[grouped(tube[order], minute[order]).firsts]
    tubes = jobs["tube"].take(pa.array(first)).to_pylist()
    cells = zip(tubes, minute[first].tolist(), strict=True)
    eldest = zip(ready_at_us[first].tolist(), job_id[first].tolist(), strict=True)
    return dict(zip(cells, eldest, strict=True))


def reigns(
    left: pa.Table,
    eldest: dict[str, tuple[int, int]],
    last_wall_us: int,
    last_time_us: int,
    known_min: int = 0,
) -> pa.Table:
    """Return (tube, begin, until, job_id, ready_since), with `begin` and `until` full minutes.

    Args:
        left: complete.
        eldest: from `still`.
        last_wall_us: wall time of the last event; jobs stay at the full minute after it.
        last_time_us: cluster time of the last event.
        known_min: jobs stay at this full minute, too: no event came before it.
    """
    # Also where the last event falls exactly on a full minute: the minute after it is the last one.
    end = max(last_wall_us // MINUTE_US + 2, known_min + 1)
    columns: dict[str, list[Any]] = {name: [] for name in LEFT.names}
    for tube, (ready_at_us, job_id) in eldest.items():
        since_us = ready_at_us + last_wall_us - last_time_us
        minutes = -(-since_us // MINUTE_US), end
        row = (tube, *minutes, ready_at_us, since_us, job_id)
        for name, value in zip(LEFT.names, row, strict=True):
            columns[name].append(value)
    rows = merged("left", pa.concat_tables([left, pa.table(columns, LEFT)]))
    tube, end = numbered(rows["tube"]), ints(rows, "end")
    begin = np.maximum(ints(rows, "first"), _ends_before(tube, end))
    found = {
        "tube": rows["tube"],
        "begin": begin * MINUTE_US,
        "until": end * MINUTE_US,
        "job_id": pa.array(ints(rows, "job_id"), LONG, mask=ints(rows, "job_id") < 0),
        "ready_since": ints(rows, "since_us"),
    }
    table = made(REIGNS, found).filter(pa.array(begin < end))
    return table.sort_by([("tube", "ascending"), ("begin", "ascending")])
