"""The events of a cluster as Arrow batches, from whichever node has them, for tools.

`beanpole.client.events` chooses the node to ask, and another one when it dies.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from beanpole.client.events import (
    BegunAnew,
    Behind,
    Events,
    EventsLost,
    Extent,
    Replies,
    joined,
)
from beanpole.errors import ClientError, ConfigurationError, UnknownVersion
from beanpole.exports import UNCOUNTED
from beanpoled.eventlog import columns
from beanpoled.view import JobCounts

if TYPE_CHECKING:
    import pyarrow as pa


class Source:
    """The event stream of one cluster. Close it, or use it in a `with` statement."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Store the gRPC addresses, HOST:PORT; nothing is dialed yet."""
        # The caller of an export sees that a node does not answer, and may retry.
        self._events = Events(tuple(addresses), patience_s=0)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *problem: object) -> None:
        self._events.__exit__(*problem)

    @property
    def cluster(self) -> str:
        """The cluster's name; empty before the first answer."""
        return self._events.cluster

    @property
    def birth(self) -> str:
        """The cluster's birth id; empty before a node that knows it has answered."""
        return self._events.birth

    @property
    def failures(self) -> Mapping[str, str]:
        """The errors of the nodes that did not answer `ranges`, by address."""
        return self._events.failures

    def ranges(self) -> Replies:
        """Ask every node for its ranges of events.

        Raises:
            ClientError: no node answers, or the nodes belong to different clusters.
        """
        return self._events.ranges()

    def extent(self, ranges: Replies) -> Extent:
        """Return the combined ranges of those nodes."""
        return joined(ranges, self.failures)

    def end(self, known: int) -> int:
        """Return the end of the events that the answering nodes have.

        Args:
            known: an offset that the events had reached before; the nodes that have may not answer.

        Raises:
            Behind: a majority has fewer events.
            ConfigurationError: a node has another birth id: the cluster was begun anew.
            ClientError: see `ranges`.
        """
        try:
            return self._events.extent_to(known).end
        except Behind:
            raise
        except BegunAnew as error:
            raise ConfigurationError(str(error)) from None

    def jobs_at(self, offset: int, ranges: Replies) -> JobCounts:
        """Return the job counts after all events before an offset.

        Counting starts from the nearest known counts: the beginning, a node's first event, or a
        node's end. If no node has some of the events from there on, it goes back from the nearest
        known counts after the offset.

        Raises:
            EventsLost: no answering node has the events on either side.
            ClientError: see `read`.
        """
        known = {0: JobCounts()}
        for reply in ranges.values():
            first = reply.spans[0].first if reply.spans else reply.end
            known[first], known[reply.end] = _counts(reply.jobs_before), _counts(reply.jobs)
        start = max(place for place in known if place <= offset)
        try:
            return self._counted(known[start], start, offset, 1)
        except EventsLost:
            later = [place for place in known if place >= offset]
            if not later:
                raise
        return self._counted(known[min(later)], offset, min(later), -1)

    def _counted(self, counts: JobCounts, start: int, end: int, sign: int) -> JobCounts:
        """Add the changes of the events [start, end) to counts, or subtract them (-1)."""
        for batch in self.read(start, end):
            counts = _tally(counts, batch, sign)
        return counts

    def read(self, start: int, end: int) -> Iterator["pa.RecordBatch"]:
        """Yield the events of [start, end) in order, each exactly once.

        Raises:
            EventsLost: no answering node has the next event.
            ClientError: no node answers, or a node sends an invalid event stream.
        """
        for piece in self._events.read(start, end):
            try:
                batch = columns.conformed(columns.from_stream(piece.arrow))
            except UnknownVersion as error:
                raise ClientError(f"a node sends {error}: use the version of the cluster") from None
            rows = piece.end - piece.first
            if batch.num_rows < piece.skip + rows:
                raise ClientError(f"a batch of events has {batch.num_rows} rows and promised more")
            yield batch.slice(piece.skip, rows)

    def event_at(self, offset: int) -> "pa.RecordBatch | None":
        """Return one event as one row; None if no node has it any more.

        Raises:
            ClientError: see `read`; also if a node that does not answer may have it. Nodes without
                a birth id prove nothing by it, so it is not waited for with them.
        """
        try:
            return next(self.read(offset, offset + 1), None)
        except EventsLost as error:
            if self.birth and not error.certain:
                raise
            return None


def _counts(jobs: Any) -> JobCounts:
    return JobCounts(jobs.ready, jobs.reserved, jobs.delayed, jobs.buried)


def _tally(counts: JobCounts, batch: "pa.RecordBatch", sign: int) -> JobCounts:
    """Advance the counts by a batch, or take them back (-1): every event moves a job."""
    import pyarrow.compute as pc

    counted = pc.invert(pc.starts_with(batch.column("tube"), UNCOUNTED))
    batch = batch.filter(counted, null_selection_behavior="drop")
    left, reached = (
        {pair["values"]: pair["counts"] for pair in pc.value_counts(batch.column(name)).to_pylist()}
        for name in ("state_before", "state")
    )
    return JobCounts(
        **{
            state: count + sign * (reached.get(state, 0) - left.get(state, 0))
            for state, count in counts._asdict().items()
        }
    )
