"""The statistics as files: DIR/tables/NAME/data.parquet, each replaced as a whole.

A reader finds the table before or the new one, never none and never a part. On a disk a reader that
has opened the one before reads it to its end; a Spark session that planned a query before does not
find it any more when it runs later, and says so.
"""

import io
from collections.abc import Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from beanpole.exporting.files import write_whole
from beanpole.places import Place
from pyspark_beanpole.tables import DATA

# In the metadata of each table: the offset behind the last event that counts in it.
END_KEY: Final = "beanpole.end"
# Every refresh writes this one last.
LAST: Final = "throughput"


def write(place: Place, tables: Mapping[str, pa.Table], end: int) -> None:
    """Replace all tables; `end` is the offset behind the events that they tell of."""
    for name in sorted(tables, key=lambda name: name == LAST):
        table = tables[name].replace_schema_metadata({END_KEY: str(end)})
        content = io.BytesIO()
        pq.write_table(table, content, compression="zstd")
        write_whole(place, f"{name}/{DATA}", content.getbuffer())


def end_of(place: Place) -> int | None:
    """Return the offset behind the events that the tables tell of; None if that is not known."""
    try:
        found = pq.read_schema(place.at(f"{LAST}/{DATA}"), filesystem=place.files).metadata or {}
        return int(found[END_KEY.encode()])
    except (OSError, KeyError, ValueError, pa.ArrowException):
        return None
