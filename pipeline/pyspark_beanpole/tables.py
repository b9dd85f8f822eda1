"""Tables as Parquet files, replaced so that a reader finds the old one or the new one.

Their columns are in docs/pipeline-statistics.md; Spark is not involved.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

# The only file of a table: DIR/NAME/data.parquet, so that DIR/NAME can be read as a table.
DATA: Final = "data.parquet"


def write_tables(directory: Path, tables: Mapping[str, pa.Table]) -> None:
    """Write each table to DIR/NAME/data.parquet, and remove other files there.

    Each file is written beside the old one and then replaces it.
    """
    for name, table in tables.items():
        folder = directory / name
        folder.mkdir(parents=True, exist_ok=True)
        # Readers skip names that begin with a dot.
        hidden = folder / f".{DATA}"
        pq.write_table(table, hidden, compression="zstd")
        os.replace(hidden, folder / DATA)
        # Files of release 0.3.0, whose rows would be read together with these.
        for other in folder.iterdir():
            if other.name != DATA and other.is_file():
                other.unlink()
