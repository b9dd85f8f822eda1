"""Reject tasks that exceed the deduplication window of the cluster (ADR 0011).

A key is remembered for a day or 500,000 later keys, whichever ends first.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from beanpole.constants import DEDUP_KEYS_MAX
from beanpole.errors import ConfigurationError

if TYPE_CHECKING:
    import pyarrow as pa

# Two generations of this size: the older one is forgotten when the younger one is full.
WINDOW_KEYS: Final = DEDUP_KEYS_MAX // 2
# Up to this many bytes of rows are held back before the first put, so that a task of small rows
# that is too large is rejected before it has put any.
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
# The recommended size: five tasks of this size may run concurrently.
TASK_ROWS: Final = 100_000


def checked(batches: "Iterator[pa.RecordBatch]", partition: int) -> "Iterator[pa.RecordBatch]":
    """Yield the rows of a task, unless a repetition of the task could put some of them twice.

    Raises:
        ConfigurationError: the task has more rows than the cluster remembers keys.
    """
    rows = 0
    held_bytes = 0
    held: list[pa.RecordBatch] = []
    for batch in batches:
        rows += batch.num_rows
        if rows > WINDOW_KEYS:
            raise ConfigurationError(
                f"partition {partition} has more than {WINDOW_KEYS:,} rows, and the cluster "
                f"remembers that many deduplication keys: if Spark repeated the task, jobs would "
                f"be put twice; write with rows.repartition(N), {TASK_ROWS:,} rows in each or less"
            )
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes > HELD_BYTES_MAX:
            yield from held
            held.clear()
    yield from held
