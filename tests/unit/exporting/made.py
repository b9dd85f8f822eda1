"""Export directories for tests: random events, damage, the reader's view, and object stores."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from beanpole.exporting.directory import begun
from beanpole.exporting.files import DAY_US, write_range
from beanpole.exports import File, file_name
from beanpole.places import resolved
from beanpoled.eventlog import columns
from pyspark_beanpole.exports import Opened
from tests.unit.eventlog.made import chance


def batch(first: int, rows: int, day: int = 0) -> pa.RecordBatch:
    """Rows whose wall times lie on one day."""
    found = columns.to_arrow(chance(first, rows, first))
    stamps = pa.array([day * DAY_US + 5] * rows, pa.int64())
    place = found.schema.get_field_index("wall_time")
    return found.set_column(place, "wall_time", stamps.view(columns.schema().field(place).type))


def exported(
    directory: Path, parts: Iterable[tuple[int, int, int]], cluster: str = "c"
) -> list[File]:
    """Make an export with a file for each (first, rows, day)."""
    with begun(resolved(str(directory)), cluster, {"ready": 3}) as out:
        for first, rows, day in parts:
            out.add(write_range(out.place, cluster, [batch(first, rows, day)]))
        return list(out.manifest.files)


def damaged(directory: Path, listed: list[File], what: str) -> str:
    """Damage the second file of five, or add a file beside it; return the name to report."""
    path = directory / listed[1].name
    content = path.read_bytes()
    match what:
        case "deleted":
            path.unlink()
        case "truncated":
            path.write_bytes(content[:-100])
        case "empty":
            path.write_bytes(b"")
        case "flipped":
            path.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
        case "doubled":
            path = path.with_name(Path(file_name("", 45, 60)).name)
            path.write_bytes(content)
        case "on another date":
            path = directory / "date=1970-01-02" / path.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        case "another cluster's":
            path.unlink()
            exported(directory.parent / "other", [(40, 20, 0)], "d")
            shutil.copy(directory.parent / "other" / listed[1].name, path)
        case "no Parquet":
            path.write_bytes(b"text".ljust(len(content)))
        case "unknown":
            path = directory / "part-0.parquet"
            path.write_bytes(content)
    return path.name


DAMAGES = (
    *("deleted", "truncated", "empty", "flipped", "doubled", "on another date"),
    *("another cluster's", "no Parquet", "unknown"),
)


def offsets(export: Opened, first: int | None = None, end: int | None = None) -> list[int]:
    """Return all offsets that a reader gets."""
    return [
        offset for rows in export.read(first, end) for offset in rows.column("offset").to_pylist()
    ]


@contextmanager
def object_store(port: int = 0) -> Iterator[str]:
    """Run an object store; yield its HOST:PORT. All of a process have the same contents."""
    from moto.server import ThreadedMotoServer

    store = ThreadedMotoServer(ip_address="127.0.0.1", port=port, verbose=False)
    store.start()
    host, bound = store.get_host_and_port()
    try:
        yield f"{host}:{bound}"
    finally:
        store.stop()
