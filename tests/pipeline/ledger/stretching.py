"""Stretch the times of an export, so that its seconds become hours.

A run of seconds only has one day, few minutes and the first slots of a histogram. All times are
multiplied, and so are all durations between them; the statistics of the result must again be right.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

# Ten seconds become 19.4 hours.
FACTOR: Final = 7_000
# Some hours before midnight, so that the events span at least two days.
BEGIN: Final = datetime(2026, 3, 1, 18, 30, 20, tzinfo=UTC)
LENGTHS: Final = ("time_us", "wait_us", "run_us", "ready_at_us")


def stretch(export: Path, directory: Path) -> None:
    """Write a stretched export in version 1 of the file format in docs/pipeline.md."""
    paths = sorted(export.glob("date=*/events-*.parquet"), key=lambda path: path.name)
    table = pa.concat_tables([parquet.read_table(path, partitioning=None) for path in paths])
    for name in LENGTHS:
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, pc.multiply(table[name], FACTOR))
    begin_us = pa.scalar(int(BEGIN.timestamp()) * 1_000_000)
    wall = pc.add(table["time_us"], begin_us).cast(pa.timestamp("us", "UTC"))
    table = table.set_column(table.schema.get_field_index("wall_time"), "wall_time", wall)
    dates = pc.strftime(wall, "%Y-%m-%d")
    for date in pc.unique(dates).to_pylist():
        part = table.filter(pc.equal(dates, date))
        first = part["offset"][0].as_py()
        folder = directory / f"date={date}"
        folder.mkdir(parents=True)
        path = folder / f"events-{first:020}-{first + part.num_rows:020}.parquet"
        parquet.write_table(part, path, compression="zstd")
    before = dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)
    manifest = {"version": 1, "cluster": "test", "spans": [[0, table.num_rows]]}
    (directory / "_manifest.json").write_text(json.dumps({**manifest, "jobs_before": before}))
