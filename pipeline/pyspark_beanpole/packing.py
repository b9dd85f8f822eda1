"""Tables of Arrow as bytes: how small tables go from tasks to the driver, and into files."""

from typing import Any

import pyarrow as pa


def packed(table: pa.Table) -> bytes:
    """Return a table as bytes that `unpacked` reads."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: Any) -> pa.Table:
    """Return what `packed` was given."""
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()
