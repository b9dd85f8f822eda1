"""Reads the event stream of a cluster from whichever node has it, without loss or repetition.

What is in a batch (Arrow) is not looked at here; what a gap means to the caller is theirs to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import grpc

from beanpole.client.rpc import PATIENCE_S, Nodes, is_refused, pauses, told, words_of
from beanpole.errors import ClientError, ProtocolError
from beanpole.pb import events_pb2, events_pb2_grpc, node_pb2

# A node that does not answer this small question is not waited for.
RANGE_TIMEOUT_S: Final = 2.0
# One call streams no longer than this and is then followed by the next one, so that a node that
# hangs in the middle of it is left for another.
READ_TIMEOUT_S: Final = 20.0

Replies = Mapping[str, events_pb2.EventRangeReply]


class EventsLost(ClientError):
    """No node has the events from `first` on any more; `kept` is the next offset that one has."""

    def __init__(self, first: int, kept: int, failures: Mapping[str, str]) -> None:
        words = f"; {told(failures)}" if failures else ""
        super().__init__(
            f"the events from offset {first} on are gone: the earliest after it that is kept is "
            f"{kept}{words}"
        )
        self.first = first
        self.kept = kept
        # Whether every node was asked: one that is down may have them.
        self.certain = not failures


class Extent(NamedTuple):
    """The events that the nodes which answer hold together."""

    cluster: str
    # The earliest offset that a node keeps, and the offset that the next event will have.
    first: int
    end: int
    # The first offset at or after the wall time that was asked about.
    at_wall: int
    # How many jobs were in each state before the event `first` and before the event `end`.
    jobs_before: Mapping[str, int]
    jobs: Mapping[str, int]
    # What was wrong with the nodes that did not answer, by address: they may have earlier events.
    failures: Mapping[str, str]


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
        # Known as soon as a node has answered.
        self.cluster = ""
        # What was wrong with the nodes that did not answer the last question about ranges.
        self.failures: dict[str, str] = {}

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self._nodes.close()

    def ranges(self, wall_us: int = 0) -> Replies:
        """Ask every node what it holds; return what those say that answer, by address.

        Args:
            wall_us: also find the first offset at or after this wall time (us since 1970).

        Raises:
            ClientError: no node answers, or they are of different clusters.
        """
        for _ in pauses(self._patience_s):
            replies, self.failures = self._ranges(wall_us)
            if replies:
                return replies
        raise ClientError(f"no node answers: {told(self.failures)}")

    def extent(self, wall_us: int = 0) -> Extent:
        """Ask every node what it holds, and put it together. As `ranges`."""
        return joined(self.ranges(wall_us), self.failures)

    def extent_to(self, offset: int, wall_us: int = 0, first: int | None = None) -> Extent:
        """Ask until the nodes have all events before `offset`: one that was down catches up.

        Args:
            offset: where they must end.
            wall_us: as for `ranges`; waits for all nodes, for each may know of an earlier event.
            first: where reading begins, 0 for the earliest. While no node that answers has it, the
                others are waited for. None: it does not matter.

        Returns:
            What those nodes hold that answered before patience ended.

        Raises:
            ClientError: as `extent`; or a majority of the addresses knows of fewer events.
        """
        for _ in pauses(self._patience_s):
            extent = self.extent(wall_us)
            is_early = not wall_us and (first is None or extent.first <= first)
            if extent.end >= offset and (is_early or not extent.failures):
                return extent
        if extent.end < offset and 2 * len(extent.failures) < len(self._nodes.addresses):
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
        for _ in pauses(self._patience_s):
            replies, failures = self._ranges()
            for address, stop in self._holders(replies, position):
                found = False
                try:
                    for piece in self._stream(address, position, min(stop, end)):
                        found = True
                        yield piece
                except grpc.RpcError as error:
                    failures[address] = words_of(error)
                if found:
                    return
                self._nodes.defer(address)
            lost = all(_lacks(reply, position) for reply in replies.values())
            if lost and len(replies) == len(self._nodes.addresses):
                break
        if replies and lost:
            raise EventsLost(position, _kept_from(replies, position), failures)
        behind = {address: f"its events end at {reply.end}" for address, reply in replies.items()}
        raise ClientError(
            f"no node gives the events from offset {position} on: {told({**behind, **failures})}"
        )

    def _holders(self, replies: Replies, position: int) -> list[tuple[str, int]]:
        """Return which nodes have an event, preferred ones first, and to where from it on."""
        return [
            (address, span.end)
            for address in self._nodes.addresses
            if address in replies
            for span in replies[address].spans
            if span.first <= position < span.end
        ]

    def _ranges(
        self, wall_us: int = 0
    ) -> tuple[dict[str, events_pb2.EventRangeReply], dict[str, str]]:
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
        self._check_cluster(replies)
        return replies, failures

    def _check_cluster(self, replies: Replies) -> None:
        """Refuse nodes of another cluster than the others, or than before."""
        for address, reply in replies.items():
            self.cluster = self.cluster or reply.cluster
            if reply.cluster != self.cluster:
                raise ClientError(
                    f"{address} is a node of cluster {reply.cluster!r}, others are of "
                    f"{self.cluster!r}"
                )

    def _stream(self, address: str, first: int, end: int) -> Iterator[Piece]:
        stub = events_pb2_grpc.EventsStub(self._nodes.channel(address))
        request = events_pb2.ReadEventsRequest(start=first, end=end)
        position = first
        call = stub.ReadEvents(request, timeout=READ_TIMEOUT_S)
        try:
            for batch in call:
                if batch.first > position:
                    raise ProtocolError(
                        f"{address} sent event {batch.first} where {position} was to come"
                    )
                skip = position - batch.first
                last = min(batch.first + batch.rows, end)
                if last > position:
                    yield Piece(position, last, skip, batch.arrow)
                    position = last
        finally:
            # The node serves a limited number of readers: one that wants no more says so.
            call.cancel()


def _lacks(reply: events_pb2.EventRangeReply, position: int) -> bool:
    """Whether a node knows of an event and does not have it any more."""
    return position < reply.end and not any(
        span.first <= position < span.end for span in reply.spans
    )


def _kept_from(replies: Replies, position: int) -> int:
    """Return the first offset behind `position` that a node keeps; the end if none."""
    firsts = [span.first for reply in replies.values() for span in reply.spans]
    return min(
        (first for first in firsts if first > position),
        default=max(reply.end for reply in replies.values()),
    )


def joined(replies: Replies, failures: Mapping[str, str]) -> Extent:
    """Put together what `Events.ranges` returned."""
    newest = max(replies.values(), key=lambda reply: reply.end)
    # Where a node without events ends says nothing about what the others have.
    keeping = [reply for reply in replies.values() if reply.spans]
    oldest = min(keeping, key=_first, default=newest)
    # A node to which all its events are older answers its own end, which may be behind.
    at_wall = [r.offset_at_wall for r in replies.values() if r.offset_at_wall < r.end]
    return Extent(
        cluster=newest.cluster,
        first=_first(oldest),
        end=newest.end,
        at_wall=min(at_wall, default=newest.end),
        jobs_before=_counts(oldest.jobs_before),
        jobs=_counts(newest.jobs),
        failures=failures,
    )


def _first(reply: events_pb2.EventRangeReply) -> int:
    return reply.spans[0].first if reply.spans else reply.end


def _counts(jobs: node_pb2.Jobs) -> dict[str, int]:
    return {state: getattr(jobs, state) for state in ("ready", "reserved", "delayed", "buried")}
