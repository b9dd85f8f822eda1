"""Files that are what was written, by their checksum, but whose columns are not those of events."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from beanpole.exporting.directory import read_manifest
from beanpole.exports import MANIFEST, BadExport, written
from beanpole.places import resolved
from beanpoled.cli import main
from pyspark_beanpole.exports import opened
from pyspark_beanpole.ranges import ExportSource
from tests.unit.exporting.made import exported


def with_column(directory: Path, name: str, kind: Any) -> str:
    """Give a column of an export's file another type, or no values (None); return its name."""
    place = resolved(str(directory))
    manifest = read_manifest(place)
    assert manifest is not None
    [file] = manifest.files
    path = directory / file.name
    table = pq.read_table(path)
    place_of = table.schema.get_field_index(name)
    own = table[name]
    changed = pa.nulls(len(own), own.type) if kind is None else own.cast(kind)
    pq.write_table(table.set_column(place_of, name, changed), path)
    content = path.read_bytes()
    sealed = file._replace(bytes=len(content), checksum=crc32c(content))
    (directory / MANIFEST).write_text(written(manifest.with_files([sealed])))
    return str(path)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("wall_time", None, "has events without a value in its column 'wall_time'"),
        ("offset", None, "has events without a value in its column 'offset'"),
        ("job_id", None, "has events without a value in its column 'job_id'"),
        ("event", None, "has events without a value in its column 'event'"),
        ("wall_time", pa.int64(), "has int64 in its column 'wall_time', which must be a time"),
        ("wall_time", pa.timestamp("ns", "UTC"), "has timestamp[ns, tz=UTC] in its column"),
        ("job_id", pa.string(), "has string in its column 'job_id', which must be a whole number"),
        ("job_id", pa.float64(), "has double in its column 'job_id', which must be a whole"),
        ("offset", pa.string(), "has string in its column 'offset', which must be a whole number"),
        ("tube", pa.binary(), "has binary in its column 'tube', which must be a text"),
    ],
)
def test_a_column_that_no_reader_can_use_is_one_line(
    name: str, kind: Any, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exported(tmp_path, [(0, 50, 0)])
    file = with_column(tmp_path, name, kind)
    for job in ("2", str(2**60)):
        assert main(["pipeline", "job", job, "--from", str(tmp_path)]) == 3
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(f"beanpole: {file} {words}")
    # A report asks for the times first, and reads after that.
    with pytest.raises(BadExport, match="its column"):
        ExportSource(opened(str(tmp_path))).edges()
    with pytest.raises(BadExport, match="its column"):
        opened(str(tmp_path)).verify_all()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tube", pa.large_string()),
        ("event", pa.dictionary(pa.int32(), pa.string())),
        ("tube", None),
        ("reason", None),
    ],
)
def test_columns_of_other_versions_are_let_through(name: str, kind: Any, tmp_path: Path) -> None:
    exported(tmp_path, [(0, 50, 0)])
    with_column(tmp_path, name, kind)
    opened(str(tmp_path)).verify_all()
    assert ExportSource(opened(str(tmp_path))).edges() is not None
