"""Events in chunks of rows, their columns as NumPy integers, and the classification of events.

All reductions start from these chunks, so that every column is converted to numbers once.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beanpole import events as e
from pyspark_beanpole.statistics.grouping import NONE, Coded, Ints, coded
from pyspark_beanpole.statistics.keys import DEPTHS, OUTCOMES

# Enough rows to amortize the cost of a chunk, with little memory: about 100 MB in use.
CHUNK_ROWS: Final = 1 << 17

EVENT_WORDS: Final = tuple(e.KIND_NAMES.get(number, "") for number in range(max(e.KIND_NAMES) + 1))
STATE_WORDS: Final = ("gone", "ready", "reserved", "delayed", "buried", "done", "failed")
GONE, READY, RESERVED, DELAYED, BURIED, DONE, FAILED = range(len(STATE_WORDS))
# The place of each state in DEPTHS: jobs that are done or have failed are `kept`.
DEPTH_OF: Final = np.array([NONE, 0, 1, 2, 3, DEPTHS.index("kept"), DEPTHS.index("kept")])

# The state of a job between both events of its move to another queue.
MOVING: Final = e.MORE_STATES[e.MOVING]

# The ends of an attempt that did not do the job: against the worker's wish, or as it reported.
FAILING: Final = (e.TIMED_OUT, e.RETURNED, e.BURIED, e.FAILED)
# The reasons of events with which a policy buries or moves a job at the end of its last attempt.
USED_UP: Final = tuple(e.REASON_NAMES[one] for one in e.USED_UP_BY.values())
# Reasons of events whose worker held the job, and is gone or did not end the attempt in time.
LOST: Final = tuple(
    e.REASON_NAMES[reason]
    for one in (e.CONNECTION_LOST, e.NODE_DOWN, e.TTR)
    for reason in (one, e.USED_UP_BY[one])
)
# Workers of these protocols report a finished job with an event of its own. If a job is deleted
# while a worker holds it, another client deleted it.
FINISHING: Final = tuple(e.PROTOCOL_NAMES[one] for one in (e.WORKQ, e.GEARMAN, e.QLESS))
# Reasons of deletions that have nothing to do with the worker.
REMOVING: Final = tuple(
    e.REASON_NAMES[one] for one in (e.ABANDONED, e.ADMIN, e.QUEUE_FULL, e.RETENTION)
)
# The reason if a worker of qless has done its part of a job, which continues in another queue.
ADVANCED: Final = e.REASON_NAMES[e.ADVANCED]

# Transitions that only the worker that holds a job of qless can cause.
HELD_ACTS: Final = (e.TOUCHED, e.DONE, e.FAILED, e.RELEASED)

# The columns of a buried job, at the time of its burial.
# fmt: off
LETTER: Final = (
    "offset", "wall_time", "protocol", "tube", "job_id", "external_id", "state", "reason",
    "priority", "ttr_s", "body_bytes", "worker", "attempt", "timeouts", "releases", "buries",
    "kicks", "run_us",
)
COLUMNS: Final = (
    "offset", "time_us", "wall_time", "protocol", "event", "tube", "job_id", "external_id",
    "state_before", "state", "reason", "priority", "ttr_s", "body_bytes", "node", "host", "worker",
    "attempt", "timeouts", "releases", "buries", "kicks", "wait_us", "run_us", "ready_at_us",
)
TEXTS: Final = (
    "protocol", "event", "tube", "external_id", "state_before", "state", "reason", "node", "host",
    "worker",
)
# fmt: on
# Texts that Parquet returns as dictionaries, which costs a fifth of materializing them. External
# ids are left out, because they are as many as jobs.
REPEATED: Final = tuple(name for name in TEXTS if name != "external_id")


class Chunk(NamedTuple):
    """Consecutive events; all arrays have one number per event."""

    offset: Ints
    time_us: Ints
    wall_us: Ints
    protocol: Coded
    tube: Coded
    reason: Coded
    event: Coded  # numbers are those of EVENT_WORDS
    before: Coded  # numbers are those of STATE_WORDS
    after: Coded
    job_id: Ints
    body_bytes: Ints
    attempt: Ints
    wait_us: Ints
    run_us: Ints
    ready_at_us: Ints
    complete: Ints  # the result of `completes`
    rows: pa.RecordBatch

    @property
    def size(self) -> int:
        return len(self.offset)


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join and split batches into chunks of about CHUNK_ROWS rows; none is empty."""
    kept: list[pa.RecordBatch] = []
    rows = 0
    for batch in map(_whole, batches):
        # Files of another version have other columns, or other types.
        if kept and batch.schema != kept[-1].schema:
            yield _joined(kept)
            kept, rows = [], 0
        for first in range(0, batch.num_rows, CHUNK_ROWS):
            kept.append(batch.slice(first, CHUNK_ROWS))
            rows += kept[-1].num_rows
            if rows >= CHUNK_ROWS // 2:
                yield _joined(kept)
                kept, rows = [], 0
    if kept:
        yield _joined(kept)


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the columns that a batch of an older version lacks, null in all rows."""
    for name in COLUMNS:
        if batch.schema.get_field_index(name) < 0:
            kind = pa.string() if name in TEXTS else pa.int64()
            batch = batch.append_column(name, pa.nulls(batch.num_rows, kind))
    return batch


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    [batch] = table.to_batches()
    return batch


def chosen(batch: pa.RecordBatch, tubes: Collection[str]) -> pa.RecordBatch:
    """Return the events of the given tubes."""
    wanted = pa.array(sorted(tubes), pa.string())
    return batch.filter(pc.is_in(batch.column("tube"), value_set=wanted))


def chunk_of(batch: pa.RecordBatch) -> Chunk:
    """Convert the columns to numbers."""

    def text(name: str, known: tuple[str, ...] = ()) -> Coded:
        return coded(batch.column(name), known)

    def number(name: str) -> Ints:
        return column_ints(batch.column(name))

    protocol, reason, event = text("protocol"), text("reason"), text("event", EVENT_WORDS)
    return Chunk(
        number("offset"),
        number("time_us"),
        number("wall_time"),
        protocol,
        text("tube"),
        reason,
        event,
        text("state_before", STATE_WORDS),
        text("state", STATE_WORDS),
        number("job_id"),
        number("body_bytes"),
        number("attempt"),
        number("wait_us"),
        number("run_us"),
        number("ready_at_us"),
        completes(event.codes, protocol, reason),
        batch,
    )


def column_ints(column: Any) -> Ints:
    """Return a column of integers or times; NONE for null."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = column.fill_null(NONE)
    return column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def worker_of(chunk: Chunk) -> Coded:
    """Return the name of each event's worker: its client's host, else its node."""
    host, node = (chunk.rows.column(name) for name in ("host", "node"))
    if host.null_count == chunk.size:
        return coded(node)
    if not host.null_count:
        return coded(host)
    return coded(pc.coalesce(host.cast(pa.string()), node.cast(pa.string())))


def ended_by_others(chunk: Chunk) -> Ints:
    """Return which events are ends of reservations whose `host` is not that of the worker.

    A lock of qless ends with the call that finds it expired, or that takes the job away: the host
    is that of the client that made the call. So it is if an administrator deletes a job that a
    worker of any protocol holds.
    """
    admin = worded(chunk.reason, (e.REASON_NAMES[e.ADMIN],)) & (chunk.event.codes == e.DELETED)
    qless = worded(chunk.protocol, (e.PROTOCOL_NAMES[e.QLESS],))
    by_others = (qless & ~np.isin(chunk.event.codes, HELD_ACTS)) | admin
    return (chunk.before.codes == RESERVED) & by_others


def worded(texts: Coded, words: Collection[str]) -> Ints:
    """Return which texts are among the given words."""
    return np.append(np.isin(texts.words.to_pylist(), list(words)), False)[texts.codes]


def completes(event: Ints, protocol: Coded, reason: Coded) -> Ints:
    """Return which events mean that a worker has done its job, provided that one holds it."""
    removed = worded(protocol, FINISHING) | worded(reason, REMOVING)
    advanced = (event == e.RELEASED) & worded(reason, (ADVANCED,))
    return (event == e.DONE) | advanced | ((event == e.DELETED) & ~removed)


def outcomes(event: Ints, before: Ints, after: Ints, complete: Ints) -> Ints:
    """Return the number in OUTCOMES of each event that ends its job, else NONE.

    A job whose result is kept has ended before: the removal of the result is not an end.

    Args:
        event: the event, with the codes of `Chunk`, like both states.
        before: the state before.
        after: the state after.
        complete: the result of `completes`.
    """
    found = np.full(len(event), NONE)
    working = (before != DONE) & (before != FAILED)
    deleted = (event == e.DELETED) & working
    done = complete & (before == RESERVED)
    found[deleted & ~done] = OUTCOMES.index("removed")
    found[(event == e.DONE) | (deleted & done)] = OUTCOMES.index("done")
    failed = (event == e.FAILED) & ((after == FAILED) | (after == GONE))
    found[failed] = OUTCOMES.index("given_up")
    found[(event == e.EXPIRED) & working] = OUTCOMES.index("expired")
    return found


def failing(event: Ints, before: Ints, reason: Coded) -> Ints:
    """Return which events are failures of an attempt.

    A burial of a job that nobody held is none. A job that went to a dead tube at the end of its
    last attempt has no other event of that end.
    """
    dead = (event == e.MOVED) & worded(reason, USED_UP)
    return (before == RESERVED) & (np.isin(event, FAILING) | dead)


def losing(chunk: Chunk) -> Ints:
    """Return which events end a lease against the worker's wish: by the TTR, or with the worker.

    The reason of a failed job of qless is a text of its worker, whatever its words.
    """
    said = (chunk.event.codes == e.FAILED) & worded(chunk.protocol, (e.PROTOCOL_NAMES[e.QLESS],))
    lost = (chunk.event.codes == e.TIMED_OUT) | (worded(chunk.reason, LOST) & ~said)
    return (chunk.before.codes == RESERVED) & lost
