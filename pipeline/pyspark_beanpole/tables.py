"""Tables as files of Parquet, replaced so that a reader finds the old one or the new one.

What is in them is in docs/pipeline-statistics.md; Spark has no part in it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

# The one file of a table: DIR/NAME/data.parquet, so that DIR/NAME can be read as a table.
DATA: Final = "data.parquet"


def write_tables(directory: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write each table to DIR/NAME/data.parquet; other files that are there are removed.

    Each is written beside the old one, which it then replaces.
    """
    for name, table in tables.items():
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        # Readers pass over names that begin with a dot.
        hidden = folder / f".{DATA}"
        pq.write_table(table, hidden, compression="zstd")
        os.replace(hidden, folder / DATA)
        # What release 0.3.0 wrote there, whose rows would be read together with these.
        for other in folder.iterdir():
            if other.name != DATA and other.is_file():
                other.unlink()
