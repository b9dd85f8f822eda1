"""Reads the event stream of a cluster from whichever node has it, without loss or repetition.

What is in a batch (Arrow) is not looked at here; what a gap means to the caller is theirs to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import grpc

from beanpole.client.rpc import PATIENCE_S, Nodes, detail_of, is_refused, pauses, told, words_of
from beanpole.errors import ClientError, ProtocolError
from beanpole.pb import events_pb2, events_pb2_grpc

# A node that does not answer this small question is not waited for.
RANGE_TIMEOUT_S: Final = 2.0
# One call streams no longer than this and is then followed by the next one, so that a node that
# hangs in the middle of it is left for another.
READ_TIMEOUT_S: Final = 20.0

GONE: Final = "EVENTS_GONE"
MISSING: Final = "EVENTS_MISSING"


class EventsLost(ClientError):
    """No node has the events from `first` on any more; `kept` is the next offset that one has."""

    def __init__(self, first: int, kept: int, failures: Mapping[str, str]) -> None:
        words = f"; {told(dict(failures))}" if failures else ""
        super().__init__(
            f"the events from offset {first} on are gone: the earliest after it that is kept is "
            f"{kept}{words}"
        )
        self.first = first
        self.kept = kept


class Extent(NamedTuple):
    """What the nodes hold together."""

    cluster: str
    # The earliest offset that any node keeps, and the offset that the next event will have.
    first: int
    end: int
    # The first offset at or after the wall time that was asked about.
    at_wall: int
    # What each node that answered can give: first and exclusive end, ascending.
    spans: Mapping[str, Sequence[tuple[int, int]]]

    def kept_from(self, offset: int) -> int:
        """Return the first offset, not before `offset`, that a node keeps; `end` if none."""
        return min(
            (
                max(first, offset)
                for spans in self.spans.values()
                for first, end in spans
                if end > offset
            ),
            default=self.end,
        )


class Piece(NamedTuple):
    """Events [first, end): that many rows of an Arrow IPC stream, after the first `skip`."""

    first: int
    end: int
    skip: int
    arrow: bytes


class Events:
    """The event stream of a cluster."""

    def __init__(self, addresses: Sequence[str], patience_s: float = PATIENCE_S) -> None:
        """Remember the gRPC addresses; the first is preferred."""
        self._nodes = Nodes(addresses, patience_s)
        self._patience_s = patience_s

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self._nodes.close()

    def extent(self, wall_us: int = 0) -> Extent:
        """Ask every node what it holds.

        Args:
            wall_us: also find the first offset at or after this wall time (us since 1970).

        Raises:
            ClientError: no node answers, or they are of different clusters.
        """
        for _ in pauses(self._patience_s):
            replies, failures = self._ranges(wall_us)
            if replies:
                return _joined(replies)
        raise ClientError(f"no node answers: {told(failures)}")

    def extent_to(self, offset: int, wall_us: int = 0) -> Extent:
        """Ask until the nodes have all events before `offset`: one that was down catches up.

        Raises:
            ClientError: as `extent`; or a majority of the addresses knows of fewer events.
        """
        for _ in pauses(self._patience_s):
            extent = self.extent(wall_us)
            if extent.end >= offset:
                return extent
        if 2 * len(extent.spans) > len(self._nodes.addresses):
            raise ClientError(
                f"offset {offset} lies beyond the events of cluster {extent.cluster!r}, which end "
                f"at {extent.end}: it is of another cluster of that name, or of an earlier life"
            )
        return extent

    def read(self, first: int, end: int) -> Iterator[Piece]:
        """Give the events [first, end) in order, each once, from whichever node has them.

        Raises:
            EventsLost: no node has the next one any more.
            ClientError: no node that could have it answers.
        """
        position = first
        while position < end:
            for piece in self._more(position, end):
                position = piece.end
                yield piece

    def _more(self, position: int, end: int) -> Iterator[Piece]:
        """Give at least one piece, from the first node that has it."""
        failures: dict[str, grpc.RpcError | None] = {}
        for _ in pauses(self._patience_s):
            for address in tuple(self._nodes.addresses):
                found = False
                try:
                    for piece in self._stream(address, position, end):
                        found = True
                        yield piece
                    failures[address] = None
                except grpc.RpcError as error:
                    failures[address] = error
                if found:
                    return
                self._nodes.defer(address)
            if all(_lacks(failures.get(address)) for address in self._nodes.addresses):
                break
        raise self._failure(position, failures)

    def _ranges(self, wall_us: int) -> tuple[dict[str, events_pb2.EventRangeReply], dict[str, str]]:
        request = events_pb2.EventRangeRequest(wall_us=wall_us)
        # All at once: a dead node costs its timeout only once.
        calls = {
            address: events_pb2_grpc.EventsStub(self._nodes.channel(address)).EventRange.future(
                request, timeout=RANGE_TIMEOUT_S
            )
            for address in self._nodes.addresses
        }
        replies, failures = {}, {}
        for address, call in calls.items():
            try:
                replies[address] = call.result()
            except grpc.RpcError as error:
                if is_refused(error):
                    raise ClientError(f"{address}: {error.details()}") from None
                failures[address] = words_of(error)
        return replies, failures

    def _stream(self, address: str, first: int, end: int) -> Iterator[Piece]:
        stub = events_pb2_grpc.EventsStub(self._nodes.channel(address))
        request = events_pb2.ReadEventsRequest(start=first, end=end)
        position = first
        for batch in stub.ReadEvents(request, timeout=READ_TIMEOUT_S):
            if batch.first > position:
                raise ProtocolError(
                    f"{address} sent event {batch.first} where {position} was to come"
                )
            skip = position - batch.first
            last = min(batch.first + batch.rows, end)
            if last > position:
                yield Piece(position, last, skip, batch.arrow)
                position = last

    def _failure(self, position: int, failures: Mapping[str, grpc.RpcError | None]) -> ClientError:
        words = {
            address: words_of(error) if error else f"has no event {position} yet"
            for address, error in failures.items()
        }
        if any(map(_lacks, failures.values())) and None not in failures.values():
            return EventsLost(position, self.extent().kept_from(position + 1), words)
        return ClientError(f"no node gives the events from offset {position} on: {told(words)}")


def _lacks(error: grpc.RpcError | None) -> bool:
    """Whether a node said that it does not have the events any more."""
    return error is not None and detail_of(error).reason in (GONE, MISSING)


def _joined(replies: Mapping[str, events_pb2.EventRangeReply]) -> Extent:
    clusters = {reply.cluster: address for address, reply in replies.items()}
    if len(clusters) > 1:
        listed = ", ".join(f"{name!r} ({address})" for name, address in sorted(clusters.items()))
        raise ClientError(f"the addresses are of different clusters: {listed}")
    spans = {
        address: [(span.first, span.end) for span in reply.spans]
        for address, reply in replies.items()
    }
    end = max(reply.end for reply in replies.values())
    return Extent(
        cluster=next(iter(clusters)),
        first=min((first for held in spans.values() for first, _ in held), default=end),
        end=end,
        # A node to which all its events are older answers its end, which may be behind.
        at_wall=min(
            (r.offset_at_wall for r in replies.values() if r.offset_at_wall < r.end), default=end
        ),
        spans=spans,
    )
