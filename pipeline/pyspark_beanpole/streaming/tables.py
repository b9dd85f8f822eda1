"""The statistics as files: DIR/tables/NAME/data.parquet, each replaced as a whole.

A reader finds the old or the new table, never none and never a part. On a local disk, a reader that
has opened the old file reads it to its end; a Spark query that was planned before the replacement
and runs later fails with a message, because its file is gone.
"""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from beanpole.exporting.steps import write_whole
from beanpole.places import Place
from pyspark_beanpole.tables import DATA, content_of

# In the metadata of each table: the offset after the last event that it covers.
END_KEY: Final = "beanpole.end"
# The table that every refresh writes last.
LAST: Final = "throughput"


def write(place: Place, tables: Mapping[str, pa.Table], end: int) -> None:
    """Replace all tables; `end` is the offset after the events that they cover."""
    for name in sorted(tables, key=lambda name: name == LAST):
        table = tables[name].replace_schema_metadata({END_KEY: str(end)})
        write_whole(place, f"{name}/{DATA}", content_of(table))


def end_of(place: Place) -> int | None:
    """Return the offset after the events that the tables cover; None if that is not known."""
    try:
        found = pq.read_schema(place.at(f"{LAST}/{DATA}"), filesystem=place.files).metadata or {}
        return int(found[END_KEY.encode()])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
