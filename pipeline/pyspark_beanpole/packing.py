"""Arrow as bytes: small tables between tasks, driver and files, and the events from nodes."""

from typing import Any

import pyarrow as pa

from beanpole.client.events import Piece
from beanpole.errors import ProtocolError


def packed(table: pa.Table) -> bytes:
    """Return a table as bytes that `unpacked` reads."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def unpacked(content: Any) -> pa.Table:
    """Return the table that `packed` serialized."""
    with pa.ipc.open_stream(content) as stream:
        return stream.read_all()


def rows_of(piece: Piece) -> pa.RecordBatch:
    """Return the events of a node's message.

    Raises:
        ProtocolError: the message has fewer events than it declares.
    """
    with pa.ipc.open_stream(piece.arrow) as stream:
        batch = stream.read_next_batch()
    if batch.num_rows < piece.skip + piece.end - piece.first:
        raise ProtocolError(f"a batch of events has {batch.num_rows} rows and promised more")
    return batch.slice(piece.skip, piece.end - piece.first)
