"""The columns of events: their names and types, and the conversion of records into them.

This is the only place that defines the columns; docs/pipeline.md explains them. Arrow and NumPy are
imported late, because a node never needs them itself: `converter` runs this code in a process of
its own.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from beanpole import events as e
from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import GONE, RESERVED, STATE_NAMES
from beanpole.errors import UnknownVersion
from beanpoled.eventlog.events import NOTE, EventBatch, Events

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a batch: enough to make the cost per batch negligible, and few enough for a small message.
BATCH_ROWS: Final = 16_384
# The default limit of gRPC clients is 4 MiB, including the message around the batch.
BATCH_BYTES_MAX: Final = 3_500_000

STAMP: Final = "timestamp"
# Columns since machine version 4. Batches of earlier versions lack them: readers of release 0.3.0
# reject columns that they do not know, and a cluster may go back to that release.
HOST: Final = "host"
CLIENT_TIME: Final = "client_time_us"
NEWER: Final = (HOST, CLIENT_TIME)
COLUMNS: Final = (
    ("offset", "int64"),
    ("log_index", "int64"),
    ("position", "int32"),
    ("time_us", "int64"),
    ("wall_time", STAMP),
    ("protocol", "string"),
    ("event", "string"),
    ("tube", "string"),
    ("job_id", "int64"),
    ("external_id", "string"),
    ("state_before", "string"),
    ("state", "string"),
    ("reason", "string"),
    ("priority", "int64"),
    ("delay_s", "int64"),
    ("ttr_s", "int64"),
    ("body_bytes", "int64"),
    ("node", "string"),
    ("incarnation", "int64"),
    ("session", "int64"),
    ("worker", "string"),
    (HOST, "string"),
    ("attempt", "int32"),
    ("timeouts", "int32"),
    ("releases", "int32"),
    ("buries", "int32"),
    ("kicks", "int32"),
    ("wait_us", "int64"),
    ("run_us", "int64"),
    ("ready_at_us", "int64"),
    (CLIENT_TIME, "int64"),
)

NOTE_FIELDS: Final = ("log_index", "time_us", "wall_us", "first", "state_hash")
STATES: Final = {
    GONE: "gone",
    **{state: name.decode() for state, name in STATE_NAMES.items()},
    **e.MORE_STATES,
}


def schema(with_newer: bool = True) -> "pa.Schema":
    """Return the columns as an Arrow schema; every column may be null.

    Args:
        with_newer: whether to include the columns of machine version 4.
    """
    import pyarrow as pa

    kinds = {STAMP: pa.timestamp("us", tz="UTC")}
    return pa.schema(
        [
            (name, kinds.get(kind) or pa.type_for_alias(kind))
            for name, kind in COLUMNS
            if with_newer or name not in NEWER
        ]
    )


def conformed(batch: "pa.RecordBatch") -> "pa.RecordBatch":
    """Return a batch of any node with exactly the columns of `schema`.

    A missing column, from an older node or file, becomes null. Additional columns are dropped.

    Raises:
        UnknownVersion: a column has another type than here.
    """
    import pyarrow as pa

    wanted = schema()
    if batch.schema == wanted:
        return batch
    found = []
    for field in wanted:
        place = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place)
        if column.type != field.type:
            raise UnknownVersion(
                f"column {field.name!r} as {column.type}, which this program knows as {field.type}"
            )
        found.append(column)
    return pa.RecordBatch.from_arrays(found, schema=wanted)


def encode(events: Events) -> list[EventBatch]:
    """Convert events into batches, each a complete Arrow IPC stream compressed with LZ4."""
    return [batch for part in events.parts(BATCH_ROWS) for batch in _batches(part)]


def _batches(events: Events) -> Iterator[EventBatch]:
    """Encode a slice as one batch, or in halves if that is too large (very long tube names)."""
    payload = to_stream(to_arrow(events))
    if len(payload) > BATCH_BYTES_MAX and events.rows > 1:
        middle = events.first + events.rows // 2
        yield from _batches(events.slice(events.first, middle))
        yield from _batches(events.slice(middle, events.end))
        return
    wall_us_max = max(note[2] for note in NOTE.iter_unpack(events.notes))
    yield EventBatch(events.first, events.rows, wall_us_max, payload)


def to_stream(batch: "pa.RecordBatch") -> bytes:
    """Return a complete Arrow IPC stream of one batch."""
    import pyarrow as pa

    # Arrow would compress in threads, which would compete with the node's loop.
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def from_stream(payload: bytes) -> "pa.RecordBatch":
    """Decode the output of `to_stream`."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.ipc.open_stream(payload, options=options) as reader:
        return reader.read_next_batch()


def first_at_wall(payload: bytes, wall_us: int) -> int | None:
    """Return the first offset of a batch at or after a wall time; None if all are older."""
    import pyarrow as pa

    batch = from_stream(payload)
    walls = batch.column("wall_time").cast(pa.int64()).to_numpy()
    late = (walls >= wall_us).nonzero()[0]
    return batch.column("offset")[int(late[0])].as_py() if len(late) else None


def to_arrow(events: Events) -> "pa.RecordBatch":
    """Return events as columns."""
    import numpy as np
    import pyarrow as pa

    record = np.frombuffer(events.records, _dtype(e.FIELDS, e.RECORD.format, e.RECORD.size))
    notes = np.frombuffer(events.notes, _dtype(NOTE_FIELDS, NOTE.format, NOTE.size))
    offsets = np.arange(events.first, events.end, dtype=np.int64)
    firsts = notes["first"].astype(np.int64)
    entry = np.searchsorted(firsts, offsets, side="right") - 1
    found: dict[str, Any] = {
        "offset": offsets,
        "log_index": notes["log_index"][entry],
        "position": offsets - firsts[entry],
        "time_us": notes["time_us"][entry],
        "wall_time": notes["wall_us"][entry],
        "protocol": _texts(record["protocol"], e.PROTOCOL_NAMES),
        "event": _texts(record["kind"], e.KIND_NAMES),
        "tube": _tubes(record["tube"], events),
        "job_id": record["job"],
        "external_id": _externals(events),
        "state_before": _texts(record["state_before"], STATES),
        "state": _texts(record["state"], STATES),
        "reason": _texts(record["reason"], e.REASON_NAMES),
        HOST: _hosts(record[HOST], events.hosts or {}),
        "attempt": record["reserves"],
        **_session(record, events.members),
    }
    if events.details:
        found |= _detailed(events, found["worker"], found["reason"])
    else:
        found[CLIENT_TIME] = pa.nulls(events.rows, pa.int64())
    for name in ("wait_us", "run_us", "ready_at_us"):
        found[name] = pa.array(record[name], pa.int64(), mask=record[name] == e.NO_TIME)
    columns = []
    wanted = schema(events.hosts is not None)
    for field in wanted:
        column = found.get(field.name)
        if column is None:
            column = record[field.name]
        if isinstance(column, np.ndarray):
            column = pa.array(column.astype(_number(field.type)))
        columns.append(column.view(field.type) if column.type != field.type else column)
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def _number(kind: "pa.DataType") -> str:
    """Return the NumPy integer type for a column; timestamps are integers, too."""
    return "int32" if kind == "int32" else "int64"


def _dtype(fields: tuple[str, ...], layout: str, size: int) -> Any:
    """Return the NumPy record type that reads a struct's fields in place."""
    import numpy as np

    codes = layout.lstrip("<").rstrip("4x")
    kinds = [(name, f"<{code}") for name, code in zip(fields, codes, strict=True)]
    unused = size - np.dtype(kinds).itemsize
    return np.dtype([*kinds, ("rest", f"V{unused}")] if unused else kinds)


def _texts(codes: Any, names: "dict[int, str]") -> "pa.Array":
    """Return the names of small numbers; null for a number without a name."""
    import pyarrow as pa

    table = pa.array([names.get(code) for code in range(max(names) + 1)], pa.string())
    return table.take(pa.array(codes))


def _tubes(numbers: Any, events: Events) -> "pa.Array":
    return _named(numbers, lambda number: display_names.queue(events.names[number]))


def _externals(events: Events) -> "pa.Array":
    """Return the external ids of jobs; null for jobs that have none."""
    import pyarrow as pa

    if not events.externals:
        return pa.nulls(events.rows, pa.string())
    texts: list[str | None] = [None] * events.rows
    for offset, space, external_id in events.externals:
        texts[offset - events.first] = display_names.external_id(space, external_id)
    return pa.array(texts, pa.string())


def _detailed(events: Events, workers: "pa.Array", reasons: "pa.Array") -> dict[str, "pa.Array"]:
    """Return the columns that details override where present: values that clients sent.

    Args:
        events: some have details.
        workers: by their sessions.
        reasons: by their numbers.
    """
    import pyarrow as pa

    by_name, by_word = workers.to_pylist(), reasons.to_pylist()
    clocks: list[int | None] = [None] * events.rows
    for offset, worker, reason, client_us in events.details:
        place = offset - events.first
        by_name[place] = None if worker is None else display_names.text(worker)
        if reason is not None:
            by_word[place] = display_names.text(reason)
        clocks[place] = client_us
    return {
        "worker": pa.array(by_name, pa.string()),
        "reason": pa.array(by_word, pa.string()),
        CLIENT_TIME: pa.array(clocks, pa.int64()),
    }


def _hosts(numbers: Any, names: Mapping[int, bytes]) -> "pa.Array":
    """Return the names of hosts; null for unknown hosts."""
    return _named(
        numbers,
        lambda number: names[number].decode(errors="replace") if number in names else None,
    )


def _named(numbers: Any, name: Callable[[int], str | None]) -> "pa.Array":
    import numpy as np
    import pyarrow as pa

    known, places = np.unique(numbers, return_inverse=True)
    names = [name(number) for number in known.tolist()]
    return pa.array(names, pa.string()).take(pa.array(places))


def _session(record: Any, members: tuple[str, ...]) -> dict[str, "pa.Array"]:
    """Return node, incarnation and session of the actor, and the worker of a reservation."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nobody = record["origin"] == e.NO_ORIGIN
    # One event with the place of a member of another cluster must not cost the whole segment.
    places = pa.array(record["origin"], pa.int64(), mask=record["origin"] >= len(members))
    node = pa.array(members, pa.string()).take(places)
    incarnation = pa.array(record["incarnation"].astype("int64"), mask=nobody)
    session = pa.array(record["session"].astype("int64"), mask=nobody)
    held = (record["state"] == RESERVED) | (record["state_before"] == RESERVED)
    whole = pc.binary_join_element_wise(
        node, incarnation.cast(pa.string()), session.cast(pa.string()), ":"
    )
    worker = pc.if_else(pa.array(held), whole, pa.scalar(None, pa.string()))
    return {"node": node, "incarnation": incarnation, "session": session, "worker": worker}
