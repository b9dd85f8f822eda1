"""The life of one job: find its events in batches, and render them as text or JSON.

Pure apart from reading the batches. Statistics of many jobs are in `statistics`.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from beanpole.client.terminals import visible
from pyspark_beanpole.report.scales import duration
from pyspark_beanpole.statistics.chunks import ADVANCED, FINISHING, REMOVING
from pyspark_beanpole.statistics.keys import SECOND_US

# The columns that are shown of each event; a column that an older version lacks is null.
COLUMNS: Final = (
    "offset", "time_us", "wall_time", "protocol", "event", "tube", "job_id", "external_id",
    "state_before", "state", "reason", "priority", "delay_s", "ttr_s", "body_bytes", "node", "host",
    "attempt", "timeouts", "releases", "buries", "kicks", "wait_us", "run_us",
)  # fmt: skip
# The columns that find a job by its external id.
NAMES: Final = ("job_id", "external_id")
_COUNTS: Final = ("attempt", "timeouts", "releases", "buries", "kicks")
# The state after the end of a job, from which it never returns.
GONE: Final = "gone"


class Life(NamedTuple):
    """All events found of a job, in order."""

    job_id: int
    events: Sequence[dict[str, Any]]

    @property
    def is_whole(self) -> bool:
        """Whether the events begin with the job's put."""
        return bool(self.events) and self.events[0]["state_before"] == GONE


def life_of(job_id: int, batches: Iterable[pa.RecordBatch]) -> Life:
    """Collect the events of a job until it is gone: its id is never used again.

    Args:
        job_id: the job's id.
        batches: events in order, with the columns of docs/pipeline.md.
    """
    found: list[dict[str, Any]] = []
    for batch in batches:
        found += _rows(batch.filter(pc.equal(batch.column("job_id"), job_id)))
        if found and found[-1]["state"] == GONE:
            break
    return Life(job_id, found)


def ids_of(external_id: str, batches: Iterable[pa.RecordBatch]) -> set[int]:
    """Return the ids of the jobs that have an external id; over time, several jobs may share it."""
    found: set[int] = set()
    for batch in batches:
        if batch.schema.get_field_index("external_id") >= 0:
            own = batch.filter(pc.equal(batch.column("external_id"), external_id))
            found.update(pc.unique(own.column("job_id")).to_pylist())
    return found


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    known = [name for name in COLUMNS if batch.schema.get_field_index(name) >= 0]
    for row in batch.select(known).to_pylist():
        yield {name: row.get(name) for name in COLUMNS}


def totals(life: Life) -> dict[str, Any]:
    """Return the sums over the events of a job, in seconds, with its final state and counters.

    `waited_s` is the time from ready to reserved, `ran_s` that of the reservation that ended the
    job, `unfinished_s` that of the other reservations, `lived_s` from the first event to the last.
    """
    last = life.events[-1]
    runs = [row for row in life.events if row["run_us"] is not None]
    ran_us = sum(row["run_us"] for row in runs if _completes(row))
    return {
        "state": last["state"],
        "lived_s": (last["time_us"] - life.events[0]["time_us"]) / SECOND_US,
        "waited_s": sum(row["wait_us"] or 0 for row in life.events) / SECOND_US,
        "ran_s": ran_us / SECOND_US,
        "unfinished_s": (sum(row["run_us"] for row in runs) - ran_us) / SECOND_US,
        "reservations": last["attempt"],
        **{name: last[name] for name in _COUNTS[1:]},
    }


def _completes(row: dict[str, Any]) -> bool:
    """Whether an event shows that a worker has done the job; see `statistics.chunks.completes`."""
    if row["event"] == "deleted":
        return row["protocol"] not in FINISHING and row["reason"] not in REMOVING
    if row["event"] == "released":
        return bool(row["reason"] == ADVANCED)
    return bool(row["event"] == "done")


def as_json(life: Life, cluster: str) -> dict[str, Any]:
    """Return a life as a dictionary for JSON."""
    events = [
        {**row, "wall_time": row["wall_time"].astimezone(UTC).isoformat()} for row in life.events
    ]
    return {
        "cluster": cluster,
        "job_id": life.job_id,
        "tube": life.events[-1]["tube"],
        "external_id": life.events[-1]["external_id"],
        "whole": life.is_whole,
        "totals": totals(life),
        "events": events,
    }


def lines(life: Life, cluster: str) -> Iterator[str]:
    """Yield a life as text: a line for each event, and the totals."""
    last = life.events[-1]
    head = f"job {life.job_id} of cluster {cluster}, tube {visible(last['tube'])}"
    if last["external_id"] is not None:
        head += f", external id {visible(last['external_id'])}"
    yield head
    if not life.is_whole:
        yield "its put is older than the events that are there"
    rows = [_cells(row) for row in life.events]
    widths = [max(len(row[place]) for row in rows) for place in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[4]]).rstrip()
    sums = totals(life)
    counts = ", ".join(_times(sums[name] or 0, name) for name in ("reservations", *_COUNTS[1:]))
    state = "gone" if sums["state"] == GONE else f"{sums['state']} now"
    yield (
        f"{state} after {duration(sums['lived_s'])}: waited {duration(sums['waited_s'])}, ran "
        f"{duration(sums['ran_s'])}, unfinished {duration(sums['unfinished_s'])}; {counts}"
    )


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str, str]:
    wall = row["wall_time"].astimezone(UTC)
    # The client's host, or the node that the client is connected to.
    where = row["host"] or row["node"] or "-"
    return (
        f"{wall:%Y-%m-%d %H:%M:%S}.{wall.microsecond // 1000:03}",
        row["event"],
        row["state"],
        visible(where),
        visible(", ".join(_details(row))),
    )


def _details(row: dict[str, Any]) -> Iterator[str]:
    if row["reason"] is not None:
        yield row["reason"].replace("_", " ")
    if row["wait_us"] is not None:
        yield f"waited {duration(row['wait_us'] / SECOND_US)}"
    if row["run_us"] is not None:
        yield f"ran {duration(row['run_us'] / SECOND_US)}"
    if row["event"] == "reserved":
        yield f"attempt {row['attempt']}"
    if row["event"] == "put":
        yield f"priority {row['priority']}, TTR {row['ttr_s']} s, {row['body_bytes']} bytes"
    if row["state"] == "delayed" and row["delay_s"]:
        yield f"delay {row['delay_s']} s"


def _times(count: int, name: str) -> str:
    singular = {"buries": "bury"}.get(name, name.removesuffix("s"))
    return f"{count:,} {singular if count == 1 else name}"
