"""Tables as Parquet files, replaced so that a reader finds the old one or the new one.

Their columns are in docs/pipeline-statistics.md; Spark is not involved.
"""

import io
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from beanpole.exporting import steps

# The only file of a table: DIR/NAME/data.parquet, so that DIR/NAME can be read as a table.
DATA: Final = "data.parquet"


def content_of(table: pa.Table) -> memoryview:
    """Return the bytes of a table's file."""
    content = io.BytesIO()
    pq.write_table(table, content, compression="zstd")
    return content.getbuffer()


def replace_file(path: Path, content: Any) -> None:
    """Replace a file atomically and durably, or make it, with its folder.

    Two processes that do so at once each write a file of their own: the later one stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f"{_hidden(path.name)}{uuid.uuid4().hex}")
    try:
        steps.replace_file(str(hidden), str(path), content)
    finally:
        hidden.unlink(missing_ok=True)


def _hidden(name: str) -> str:
    """Return how the name of an unfinished file begins; readers skip names with a dot."""
    return f".{name}-"


def write_tables(directory: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write each table to DIR/NAME/data.parquet, and remove other files there."""
    for name, table in tables.items():
        path = directory / name / DATA
        replace_file(path, content_of(table))
        # Files of release 0.3.0, whose rows would be read together with these.
        for other in path.parent.iterdir():
            is_ours = other.name == DATA or other.name.startswith(_hidden(DATA))
            if not is_ours and other.is_file():
                other.unlink()
