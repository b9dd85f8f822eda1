"""Write exports of a test's events, as `beanpole events export` would write them."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from beanpole.exporting.directory import begun
from beanpole.exporting.files import write_range
from beanpole.exports import File
from beanpole.places import resolved
from pyspark_beanpole.schema import EVENTS, arrow_schema


def write_export(
    directory: Path,
    events: Sequence[dict[str, object]],
    cluster: str = "double",
    rows_max: int = 1_000_000,
    birth: str = "",
) -> list[File]:
    """Write events, at most `rows_max` to a file; return the files."""
    place = resolved(str(directory))
    rows = pa.RecordBatch.from_pylist(list(events), arrow_schema(EVENTS))
    jobs_before = dict.fromkeys(("ready", "reserved", "delayed", "buried"), 0)
    with begun(place, cluster, jobs_before, birth=birth) as out:
        out.add(write_range(place, cluster, [rows], rows_max))
        return list(out.manifest.files)
