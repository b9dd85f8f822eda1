"""Reads the event stream of a cluster from whichever node has it, without loss or repetition.

What is in a batch (Arrow) is not looked at here; what a gap means to the caller is theirs to say.
"""

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

# How long to wait for silent nodes when others have answered, and the silent ones may know of
# earlier events: a node that is being restarted refuses for about as long.
SILENT_PATIENCE_S: Final = 2
# How long to wait for silent nodes when those that answered are enough: to prefer a near one, and
# not to take the end from one that is behind. A healthy node answers in some milliseconds.
GRACE_S: Final = 0.25

Replies = Mapping[str, events_pb2.EventRangeReply]
# How long these replies may still wait for others; None: they do not suffice.
Enough = Callable[[Replies], float | None]


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

    def __init__(
        self,
        addresses: Sequence[str],
        patience_s: float = PATIENCE_S,
        silent_patience_s: float = SILENT_PATIENCE_S,
    ) -> None:
        """Remember where the nodes are.

        Args:
            addresses: gRPC addresses, "host:port"; the first is preferred.
            patience_s: how long to look for a node that answers, or that has what is needed.
            silent_patience_s: how long `whole` waits for silent nodes when others have answered.
        """
        self._nodes = Nodes(addresses, patience_s)
        self._patience_s = patience_s
        self._silent_patience_s = silent_patience_s
        # Known as soon as a node has answered.
        self.cluster = ""
        # What was wrong with the nodes that did not answer the last question about ranges.
        self.failures: dict[str, str] = {}
        # When a node first answered `whole`: silent ones are waited for once.
        self._answered_s: float | None = None

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
        return self._asked(wall_us, lambda _: RANGE_TIMEOUT_S)

    def extent(self) -> Extent:
        """Return the cluster's newest state; nodes that are silent are given `silent_patience_s`.

        Raises:
            ClientError: as `ranges`.
        """
        return joined(self._asked(0, _at_most(self._silent_patience_s)), self.failures)

    def extent_to(self, offset: int, first: int | None = None, grace_s: float = GRACE_S) -> Extent:
        """Ask until the nodes that answer have the events [first, offset).

        A node that is down is waited for only while it may have what the others lack.

        Args:
            offset: where they must end.
            first: where they must begin; None: it does not matter.
            grace_s: how long to wait for silent nodes, which may know a newer end.

        Returns:
            What those nodes hold that answered before patience ended.

        Raises:
            ClientError: as `ranges`; or a majority of the addresses knows of fewer events.
        """

        def has_all(extent: Extent) -> bool:
            return extent.end >= offset and (first is None or extent.first <= first)

        def enough(replies: Replies) -> float | None:
            return grace_s if has_all(joined(replies, {})) else None

        for _ in pauses(self._patience_s):
            extent = joined(self._asked(0, enough), self.failures)
            if has_all(extent) or (extent.end >= offset and not extent.failures):
                return extent
        return self._short_of(offset, extent)

    def whole(self, offset: int = 0, wall_us: int = 0) -> Extent:
        """Ask what all nodes hold together, from the earliest event on; do not wait for dead ones.

        Args:
            offset: where they must end.
            wall_us: also find the first offset at or after this wall time (us since 1970).

        Returns:
            What those nodes hold that answered. Others were given `silent_patience_s`: `failures`
            names them, and they may have earlier events.

        Raises:
            ClientError: as `extent_to`.
        """
        for _ in pauses(self._patience_s):
            asked_s = self._answered_s or time.monotonic()
            left_s = asked_s + self._silent_patience_s - time.monotonic()
            grace_s = max(left_s, GRACE_S)
            extent = joined(self._asked(wall_us, _at_most(grace_s)), self.failures)
            self._answered_s = self._answered_s or time.monotonic()
            is_over = time.monotonic() >= self._answered_s + self._silent_patience_s
            if extent.end >= offset and (is_over or not extent.failures):
                return extent
        return self._short_of(offset, extent)

    def _short_of(self, offset: int, extent: Extent) -> Extent:
        """Return what patience ended with, unless the offset cannot be of this cluster."""
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
        is_broken = False

        def enough(replies: Replies) -> float | None:
            # When a node that has it fails, all others are heard.
            if is_broken or not (holders := self._holders(replies, position)):
                return None
            return 0 if holders[0][0] == self._nodes.addresses[0] else GRACE_S

        for _ in pauses(self._patience_s):
            replies, failures = self._ranges(0, enough)
            if (preferred := self._nodes.addresses[0]) not in replies:
                self._nodes.defer(preferred)
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
                is_broken = True
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

    def _asked(self, wall_us: int, enough: Enough) -> Replies:
        for _ in pauses(self._patience_s):
            replies, self.failures = self._ranges(wall_us, enough)
            if replies:
                return replies
        raise ClientError(f"no node answers: {told(self.failures)}")

    def _ranges(
        self, wall_us: int, enough: Enough
    ) -> tuple[dict[str, events_pb2.EventRangeReply], dict[str, str]]:
        """Ask all nodes at once; return what came until it was enough, or all calls had ended."""
        request = events_pb2.EventRangeRequest(wall_us=wall_us)
        done: queue.SimpleQueue[str] = queue.SimpleQueue()
        calls = {}
        for address in self._nodes.addresses:
            stub = events_pb2_grpc.EventsStub(self._nodes.channel(address))
            calls[address] = stub.EventRange.future(request, timeout=RANGE_TIMEOUT_S)
            calls[address].add_done_callback(lambda _, ended=address: done.put(ended))
        replies: dict[str, events_pb2.EventRangeReply] = {}
        failures: dict[str, str] = {}
        # Calls end by themselves, so without enough replies nothing limits this.
        until_s: float | None = None
        while len(replies) + len(failures) < len(calls):
            try:
                address = done.get(timeout=until_s and max(0.0, until_s - time.monotonic()))
            except queue.Empty:
                break
            try:
                replies[address] = calls[address].result()
            except grpc.RpcError as error:
                if is_refused(error):
                    raise ClientError(f"{address}: {error.details()}") from None
                failures[address] = words_of(error)
            if replies and (grace_s := enough(replies)) is not None:
                until_s = min(until_s or float("inf"), time.monotonic() + grace_s)
        for address in calls.keys() - replies.keys() - failures.keys():
            calls[address].cancel()
            failures[address] = "no answer yet"
        # In the order of the addresses, whichever node was the quickest.
        replies = {address: replies[address] for address in calls if address in replies}
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


def _at_most(grace_s: float) -> Enough:
    return lambda _: grace_s


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
