"""The exported events as plain rows, read by pyarrow without code of the pipeline.

The columns are those of docs/pipeline.md, in the same order.
"""

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as parquet


class Event(NamedTuple):
    """One event; `wall_time` is in microseconds since 1970."""

    offset: int
    log_index: int
    position: int
    time_us: int
    wall_time: int
    protocol: str | None
    event: str
    tube: str
    job_id: int
    external_id: str | None
    state_before: str
    state: str
    reason: str | None
    priority: int
    delay_s: int
    ttr_s: int
    body_bytes: int
    node: str | None
    incarnation: int | None
    session: int | None
    worker: str | None
    host: str | None
    attempt: int
    timeouts: int
    releases: int
    buries: int
    kicks: int
    wait_us: int | None
    run_us: int | None
    ready_at_us: int | None
    client_time_us: int | None

    @property
    def who(self) -> tuple[str, int, int] | None:
        """The session that acted or lost the job."""
        if self.node is None or self.incarnation is None or self.session is None:
            return None
        return self.node, self.incarnation, self.session


def read(directory: Path) -> list[Event]:
    """Return all events of an export, in the order of their offsets."""
    found: list[Event] = []
    for path in sorted(directory.glob("date=*/events-*.parquet"), key=lambda path: path.name):
        table = parquet.read_table(path, partitioning=None)
        assert table.schema.names == list(Event._fields), table.schema.names
        wall = table["wall_time"]
        assert wall.type == pa.timestamp("us", "UTC")
        table = table.set_column(4, "wall_time", wall.cast(pa.int64()))
        columns = [column.to_pylist() for column in table.columns]
        found += [Event(*row) for row in zip(*columns, strict=True)]
    return found
