"""Derive the deduplication key of a row that has none of its own (ADR 0026). Does no I/O.

Spark may run a task again, concurrently, or after its puts. The cluster makes one job per key, so
all attempts at a task must give a row the same key, and no other row may have that key.
"""

import hashlib
from typing import TYPE_CHECKING
from uuid import uuid4

from beanpole.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark import TaskContext

    from beanpole.pb.queue_pb2 import PutJob


def of_write() -> str:
    """Return a name for a write of a DataFrame, different from that of any other write."""
    return uuid4().hex


def of_batch(context: "TaskContext | None") -> str:
    """Return the name of a batch of a stream: the same when the batch is repeated after a restart.

    Spark keeps a query's id in its checkpoint, and passes it to tasks in these two properties.

    Raises:
        ConfigurationError: this Spark does not pass them.
    """
    names = ("sql.streaming.queryId", "streaming.sql.batchId")
    query, batch = (context.getLocalProperty(name) if context else None for name in names)
    if query is None or batch is None:
        raise ConfigurationError(
            "Spark does not tell its tasks which batch of which query they write: give the option "
            "dedupNamespace"
        )
    return f"{query} {batch}"


class Keys:
    """Makes the keys of one attempt at a task.

    Equal rows of a task are numbered in the order they come. All other rows do not matter to a
    key, so a task whose rows come in another order makes the same keys.
    """

    def __init__(self, namespace: str | None, write: str, partition: int) -> None:
        """Begin a task.

        Args:
            namespace: keys depend on it and the rows alone, in every write that uses it; None: no
                other write and no other task has these keys.
            write: the name of the write; ignored with a namespace.
            partition: the task's number in the write; ignored with a namespace.
        """
        space = (namespace,) if namespace is not None else (write, partition)
        self._space = hashlib.sha256(repr(space).encode())
        self._seen: dict[bytes, int] = {}

    def of(self, job: "PutJob") -> bytes:
        """Return the key of the next row, 32 bytes."""
        # repr keeps the boundaries between texts: ("a", "bc") is not ("ab", "c").
        fields = (job.tube, job.priority, job.delay_s, job.ttr_s)
        row = hashlib.sha256(repr(fields).encode() + job.body).digest()
        before = self._seen.get(row, 0)
        self._seen[row] = before + 1
        key = self._space.copy()
        key.update(row + before.to_bytes(8, "big"))
        return key.digest()
