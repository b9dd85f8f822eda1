"""The data source's readers of events from nodes: one for a DataFrame, one for a stream."""

import math
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from beanpole.client.events import EventsLost, Extent
from beanpole.errors import ClientError
from pyspark_beanpole.logs import log
from pyspark_beanpole.options import ReadOptions
from pyspark_beanpole.packing import rows_of
from pyspark_beanpole.planning import Range, bounds, check_cluster, kept, split
from pyspark_beanpole.schema import arrow_schema, checked, conformed


def offset_of(cluster: str, offset: int, birth: str) -> dict[str, Any]:
    """Return an offset as checkpoints hold it; Spark compares text, so the keys keep this order.

    Args:
        cluster: the name of the cluster.
        offset: of its events.
        birth: the birth id of the cluster; left out if empty, as in the checkpoints of 0.3.0.
    """
    found: dict[str, Any] = {"cluster": cluster, "offset": offset}
    return {**found, "birth": birth} if birth else found


def _check_cluster(start: dict[str, Any], extent: Extent) -> str:
    """Refuse an offset of another cluster; return the birth id for the next offset."""
    birth: str = start.get("birth", "")
    check_cluster(start["cluster"], birth, extent)
    return birth or extent.birth


class EventReader(DataSourceReader):
    """Reads the events between two offsets that are fixed when the tasks are planned."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked(schema)

    def partitions(self) -> list[Range]:
        with self._options.events() as events:
            _, first, end = bounds(events, self._options)
        return split(first, end, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition, self._options, self._schema)


class EventStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream of events. It lives in one process of the driver; `read` runs in the tasks."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = checked(schema)
        # The end of an availableNow query; None for a query without an end.
        self._target: int | None = None
        # When the last batch was planned; the first batch does not wait.
        self._planned_s = -math.inf

    def getDefaultReadLimit(self) -> ReadLimit:
        rows = self._options.rows_per_trigger
        if rows:
            return ReadMaxRows(rows)
        smallest = self._options.rows_per_trigger_min
        return ReadMinRows(smallest) if smallest else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with self._options.events() as events:
            self._target = events.extent().end

    def initialOffset(self) -> dict[str, Any]:
        with self._options.events() as events:
            extent, first, _ = bounds(events, self._options)
        return offset_of(extent.cluster, first, extent.birth)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun: int = start["offset"]
        with self._options.events() as events:
            # If the last events were missing, an availableNow query would end too early.
            extent = events.extent_to(max(begun, self._target or 0))
        birth = _check_cluster(start, extent)
        end = extent.end if self._target is None else min(self._target, extent.end)
        if isinstance(limit, ReadMaxRows):
            end = min(end, begun + limit.max_rows)
        # Never go back: the nodes that answer now may be behind the node that answered before.
        if end <= begun or self._is_early(end - begun, limit):
            return start  # a birth id that is news would be a batch without events
        self._planned_s = time.monotonic()
        return offset_of(extent.cluster, end, birth)

    def _is_early(self, rows: int, limit: ReadLimit) -> bool:
        """Whether a batch of `rows` events should wait for more."""
        # An availableNow query reads to its target, whatever the options are.
        if self._target is not None or isinstance(limit, ReadAllAvailable):
            return False
        waited_s = time.monotonic() - self._planned_s
        return rows < self._options.rows_per_trigger_min and (
            waited_s < self._options.trigger_delay_s
        )

    def reportLatestOffset(self) -> dict[str, Any]:
        with self._options.events() as events:
            extent = events.extent_to(0)
        return offset_of(extent.cluster, extent.end, extent.birth)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Range]:
        last: int = end["offset"]
        with self._options.events() as events:
            extent = events.extent_to(last, first=start["offset"])
        for one in (start, end):
            _check_cluster(one, extent)
        first = kept(extent, start["offset"], last, self._options.fail_on_data_loss)
        return split(first, last, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition, self._options, self._schema)


def batches(
    partition: InputPartition, options: ReadOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Read the events of one task, from any node that has them.

    Raises:
        EventsLost: no node has some of the events, and `fail_on_data_loss` is set.
        ClientError: no node that could have them answers.
    """
    assert isinstance(partition, Range)
    wanted = arrow_schema(schema)
    position = partition.first
    with options.events(partition.addresses) as events:
        while position < partition.end:
            try:
                for piece in events.read(position, partition.end):
                    yield conformed(rows_of(piece), wanted)
                    position = piece.end
            except EventsLost as lost:
                if options.fail_on_data_loss:
                    raise
                if not lost.certain:
                    # A node that does not answer may have them: `stream` waits after this error.
                    raise ClientError(str(lost)) from None
                position = min(lost.kept, partition.end)
                log.warning("events %d to %d are gone: %s", lost.first, position, lost)
