"""The events of a cluster, read over gRPC from whichever node has them.

A node that is down, or that has a gap, is passed over for another. Offsets are the same on all
nodes, so what comes is the same whoever sends it. Blocking; for tools, not for the daemon.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import grpc

from beanpole.client.rpc import CHANNEL_OPTIONS
from beanpole.errors import ClientError
from beanpole.pb import events_pb2, events_pb2_grpc
from beanpoled.eventlog import columns
from beanpoled.view import JobCounts

if TYPE_CHECKING:
    import pyarrow as pa

RANGE_TIMEOUT_S: Final = 10.0
# Of a whole read: an hour is longer than any that goes on; without one a dead node would hold us.
READ_TIMEOUT_S: Final = 3600.0
# A node that was cut off says nothing at all: ask whether it is there.
KEEPALIVE: Final = (("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000))

Ranges = dict[str, events_pb2.EventRangeReply]


class EventsGone(ClientError):
    """No node that answers has an event.

    Attributes:
        next: the first later one that is there.
        certain: whether all nodes were asked; else one that is down may have it.
    """

    def __init__(self, message: str, next_offset: int, certain: bool) -> None:
        super().__init__(message)
        self.next = next_offset
        self.certain = certain


class Source:
    """The event stream of one cluster. Close it, or use it in a `with`."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Remember the gRPC addresses, HOST:PORT; nothing is dialled yet."""
        self.addresses = tuple(addresses)
        self.cluster = ""
        self._silent: dict[str, str] = {}  # why the others did not answer when last asked
        self._channels: dict[str, grpc.Channel] = {}

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: object) -> None:
        for channel in self._channels.values():
            channel.close()

    def ranges(self, wall_us: int = 0) -> Ranges:
        """Ask every node what it has.

        Raises:
            ClientError: none answers, or they are not of one cluster.
        """
        found: Ranges = {}
        self._silent = {}
        request = events_pb2.EventRangeRequest(wall_us=wall_us)
        for address in self.addresses:
            try:
                found[address] = self._stub(address).EventRange(request, timeout=RANGE_TIMEOUT_S)
            except grpc.RpcError as error:
                self._silent[address] = _words(error)
        if not found:
            raise ClientError(f"no node answers: {self._silent_words()}")
        for address, reply in found.items():
            self.cluster = self.cluster or reply.cluster
            if reply.cluster != self.cluster:
                raise ClientError(
                    f"{address} is a node of cluster {reply.cluster}, others are of {self.cluster}"
                )
        return found

    def earliest(self, ranges: Ranges) -> int:
        """Return the first offset that any node has; the end if there is none."""
        firsts = [reply.spans[0].first for reply in ranges.values() if reply.spans]
        return min(firsts, default=self.end(ranges))

    def end(self, ranges: Ranges) -> int:
        """Return the offset that the next event will have, as far as the nodes know."""
        return max(reply.end for reply in ranges.values())

    def jobs_at(self, offset: int, ranges: Ranges) -> JobCounts:
        """Return the job counts after all events before an offset.

        Counted from what is nearest: the beginning, a node's first event, or a node's end.
        """
        known = {0: JobCounts()}
        for reply in ranges.values():
            first = reply.spans[0].first if reply.spans else reply.end
            known[first], known[reply.end] = _counts(reply.jobs_before), _counts(reply.jobs)
        start = max(place for place in known if place <= offset)
        counts = known[start]
        for batch in self.read(start, offset):
            counts = _tally(counts, batch)
        return counts

    def read(self, start: int, end: int) -> Iterator["pa.RecordBatch"]:
        """Yield the events of [start, end) in order, every one once.

        Raises:
            EventsGone: nobody who answers has the next one.
            ClientError: no node answers, or one sends what is not the event stream.
        """
        position = start
        while position < end:
            before = position
            for address, stop in self._holders(position, end):
                try:
                    for batch in self._stream(address, position, min(stop, end)):
                        yield batch
                        position += batch.num_rows
                except grpc.RpcError as error:
                    self._silent[address] = _words(error)
                if position > before:
                    break
            else:
                raise ClientError(f"no node sends event {position}: {self._silent_words()}")

    def _holders(self, position: int, end: int) -> list[tuple[str, int]]:
        """Return who has an event, and up to where it has those behind it; the longest first."""
        ranges = self.ranges()
        found = [
            (address, span.end)
            for address, reply in ranges.items()
            for span in reply.spans
            if span.first <= position < span.end
        ]
        if not found:
            later = [
                span.first
                for reply in ranges.values()
                for span in reply.spans
                if span.first > position
            ]
            following = min(later, default=self.end(ranges))
            silent = f" (no answer from {self._silent_words()})" if self._silent else ""
            raise EventsGone(
                f"events {position} to {following} of cluster {self.cluster} are on no node that "
                f"answers{silent}",
                following,
                certain=not self._silent,
            )
        return sorted(found, key=lambda holder: -min(holder[1], end))

    def _stream(self, address: str, start: int, end: int) -> Iterator["pa.RecordBatch"]:
        """Yield what one node sends of [start, end), cut to it."""
        request = events_pb2.ReadEventsRequest(start=start, end=end)
        call = self._stub(address).ReadEvents(request, timeout=READ_TIMEOUT_S)
        position = start
        try:
            for message in call:
                skip = position - message.first
                if not 0 <= skip < message.rows:
                    raise ClientError(
                        f"{address} sends events {message.first} to "
                        f"{message.first + message.rows} where {position} is next"
                    )
                batch = columns.from_stream(message.arrow)
                if batch.schema != columns.schema() or batch.num_rows != message.rows:
                    raise ClientError(
                        f"{address} sends other columns than this program knows: use the version "
                        "of the cluster"
                    )
                batch = batch.slice(skip, end - position)
                position += batch.num_rows
                yield batch
        finally:
            call.cancel()

    def _stub(self, address: str) -> Any:
        if address not in self._channels:
            options = (*CHANNEL_OPTIONS, *KEEPALIVE)
            self._channels[address] = grpc.insecure_channel(address, options=options)
        return events_pb2_grpc.EventsStub(self._channels[address])

    def _silent_words(self) -> str:
        return "; ".join(f"{address}: {words}" for address, words in self._silent.items())


def _words(error: grpc.RpcError) -> str:
    return f"{error.code().name} ({error.details()})"


def _counts(jobs: Any) -> JobCounts:
    return JobCounts(jobs.ready, jobs.reserved, jobs.delayed, jobs.buried)


def _tally(counts: JobCounts, batch: "pa.RecordBatch") -> JobCounts:
    """Move the counts on by a batch: every event takes a job from one state to another."""
    import pyarrow.compute as pc

    left, reached = (
        {pair["values"]: pair["counts"] for pair in pc.value_counts(batch.column(name)).to_pylist()}
        for name in ("state_before", "state")
    )
    return JobCounts(
        **{
            state: count + reached.get(state, 0) - left.get(state, 0)
            for state, count in counts._asdict().items()
        }
    )
