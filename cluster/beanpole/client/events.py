"""Read the event stream of a cluster from any node that has it, without loss or repetition.

The content of the batches (Arrow) is opaque here. The caller decides how to handle a gap.
"""

import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import grpc

from beanpole.client.pickling import reduced
from beanpole.client.rpc import PATIENCE_S, Nodes, Refused, is_refused, pauses, told, words_of
from beanpole.errors import ClientError, ProtocolError
from beanpole.pb import events_pb2, events_pb2_grpc, node_pb2

# The call is small, so a node that does not answer it in time counts as down.
RANGE_TIMEOUT_S: Final = 2.0
# A call streams no longer than this; another call continues it. So a node that hangs during a call
# is replaced by another one.
READ_TIMEOUT_S: Final = 20.0

# How long to wait for silent nodes when others have answered, but the silent ones may have earlier
# events: a node that is being restarted refuses connections for about this time.
SILENT_PATIENCE_S: Final = 2
# How long to wait for silent nodes when the replies suffice: to prefer a near node, and not to take
# the end from a node that is behind. A healthy node answers within some milliseconds.
GRACE_S: Final = 0.25

Replies = Mapping[str, events_pb2.EventRangeReply]
# Returns how long to wait for further replies; None if the replies do not suffice yet.
Enough = Callable[[Replies], float | None]


class EventsLost(ClientError):
    """No node keeps the events from `first` on any more; `kept` is the next offset that exists."""

    __reduce__ = reduced

    def __init__(
        self, first: int, kept: int, failures: Mapping[str, str], words: str | None = None
    ) -> None:
        """Store the offsets, and the errors of the nodes that did not answer.

        Args:
            first: the first event that is gone.
            kept: the next offset that exists.
            failures: by address.
            words: the message if the caller gave no offset.
        """
        if words is None:
            words = (
                f"the events from offset {first} on are gone: the earliest after it that is kept "
                f"is {kept}"
            )
        super().__init__(f"{words}; {told(failures)}" if failures else words)
        self.first = first
        self.kept = kept
        # Whether every node answered: a node that is down may have the events.
        self.certain = not failures


class OtherCluster(ClientError):
    """The addresses are of nodes of different clusters."""


class BegunAnew(OtherCluster):
    """The cluster is another one of the same name: it has fewer events, or another birth id."""


class Behind(BegunAnew):
    """The same by the number of its events alone.

    After a start, nodes have fewer for a while, too: they read the end of their logs again.
    """


class Extent(NamedTuple):
    """The extent of the events that the answering nodes hold together."""

    cluster: str
    # The earliest offset that a node keeps, and the offset that the next event will have.
    first: int
    end: int
    # The first offset at or after the requested wall time.
    at_wall: int
    # The number of jobs in each state before the event `first` and before the event `end`.
    jobs_before: Mapping[str, int]
    jobs: Mapping[str, int]
    # The errors of the nodes that did not answer, by address: they may have earlier events.
    failures: Mapping[str, str]
    # The birth id of the cluster; empty if no node that answered knows it.
    birth: str = ""
    # Whether no node keeps the event before `at_wall`, whose wall time may have been the requested
    # one, too: `at_wall` is the first offset that is kept, or that is kept after a hole.
    is_after_hole: bool = False


class Piece(NamedTuple):
    """The events [first, end): the rows of an Arrow IPC stream after the first `skip` rows."""

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
        """Store the addresses; the first call connects.

        Args:
            addresses: gRPC addresses, "host:port"; the first is preferred.
            patience_s: how long to look for a node that answers and has the events.
            silent_patience_s: how long `whole` and `extent` wait for silent nodes when others have
                answered.
        """
        self._nodes = Nodes(addresses, patience_s)
        self._patience_s = patience_s
        self._silent_patience_s = silent_patience_s
        # Empty until a node has answered.
        self.cluster = ""
        # The birth id of that cluster; empty until a node that knows it has answered, which nodes
        # of release 0.3.0 do not.
        self.birth = ""
        # The errors of the nodes that did not answer the last request for ranges.
        self.failures: dict[str, str] = {}
        # When a node first answered `whole`, which waits for silent nodes only once.
        self._answered_s: float | None = None

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self._nodes.close()

    def ranges(self, wall_us: int = 0) -> Replies:
        """Ask every node for the range of its events; return the replies by address.

        Args:
            wall_us: also find the first offset at or after this wall time (us since 1970).

        Raises:
            ClientError: no node answers, or the nodes belong to different clusters.
            BegunAnew: they belong to another cluster of the same name than before.
        """
        return self._asked(wall_us, lambda _: RANGE_TIMEOUT_S)

    def extent(self) -> Extent:
        """Return the newest extent of the cluster; wait `silent_patience_s` for silent nodes.

        Raises:
            ClientError: see `ranges`.
        """
        return joined(self._asked(0, _at_most(self._silent_patience_s)), self.failures)

    def extent_to(self, offset: int, first: int | None = None, grace_s: float = GRACE_S) -> Extent:
        """Wait until the answering nodes have the events [first, offset), and return the extent.

        A node that is down delays the call only while it may have events that the others lack.

        Args:
            offset: the offset that the events must reach.
            first: the offset at which the events must begin; None for any.
            grace_s: how long to wait for silent nodes, which may know a newer end.

        Returns:
            The extent of the nodes that answered; if `patience_s` ended, it may be too short.

        Raises:
            ClientError: see `ranges`.
            BegunAnew: a node has another birth id.
            Behind: the majority of the addresses has fewer events.
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
        """Return the extent of all nodes together, without waiting for dead nodes.

        Args:
            offset: the offset that the events must reach.
            wall_us: also find the first offset at or after this wall time (us since 1970).

        Returns:
            The extent of the nodes that answered. Nodes that did not answer within
            `silent_patience_s` are in `failures`; they may have earlier events.

        Raises:
            ClientError: see `extent_to`.
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
        """Return an extent that is too short, or raise if the offset cannot be of this cluster."""
        if extent.end < offset and 2 * len(extent.failures) < len(self._nodes.addresses):
            raise Behind(
                f"offset {offset} lies beyond the events of cluster {extent.cluster!r}, which end "
                f"at {extent.end}: it is of another cluster of that name, or of an earlier life"
            )
        return extent

    def read(self, first: int, end: int) -> Iterator[Piece]:
        """Yield the events [first, end) in order, each once, from any node that has them.

        Raises:
            EventsLost: no node has the next event any more.
            ClientError: no node that could have the next event answers.
        """
        position = first
        while position < end:
            for piece in self._more(position, end):
                position = piece.end
                yield piece

    def _more(self, position: int, end: int) -> Iterator[Piece]:
        """Yield at least one piece, from the first node that has it."""
        is_broken = False

        def enough(replies: Replies) -> float | None:
            # If a node that has the event failed, wait for all other nodes.
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
                except ProtocolError as error:
                    failures[address] = str(error)
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
        """Return the nodes that have an event, in order of preference, and where its span ends."""
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
        """Call all nodes at once; return replies and errors when `enough`, or when all ended."""
        done: queue.SimpleQueue[str] = queue.SimpleQueue()
        calls = self._begin_ranges(wall_us, done)
        replies: dict[str, events_pb2.EventRangeReply] = {}
        failures: dict[str, str] = {}
        # Calls have a time-out, so no limit is needed while the replies do not suffice.
        until_s: float | None = None
        while len(replies) + len(failures) < len(calls):
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                address = done.get(timeout=left_s)
            except queue.Empty:
                break
            try:
                replies[address] = calls[address].result()
            except grpc.RpcError as error:
                if is_refused(error):
                    raise Refused(address, error) from None
                failures[address] = words_of(error)
            if replies and (grace_s := enough(replies)) is not None:
                enough_s = time.monotonic() + grace_s
                until_s = enough_s if until_s is None else min(until_s, enough_s)
        for address in calls.keys() - replies.keys() - failures.keys():
            calls[address].cancel()
            failures[address] = "no answer yet"
        # Sort by the order of the addresses, not by the time of arrival.
        replies = {address: replies[address] for address in calls if address in replies}
        self._check_cluster(replies)
        return replies, failures

    def _begin_ranges(self, wall_us: int, done: "queue.SimpleQueue[str]") -> dict[str, Any]:
        """Begin a call at every node; `done` gets the address of each that has ended."""
        request = events_pb2.EventRangeRequest(wall_us=wall_us)
        calls: dict[str, Any] = {}
        for address in self._nodes.addresses:
            stub = events_pb2_grpc.EventsStub(self._nodes.channel(address))
            calls[address] = stub.EventRange.future(request, timeout=RANGE_TIMEOUT_S)
            calls[address].add_done_callback(lambda _, ended=address: done.put(ended))
        return calls

    def _check_cluster(self, replies: Replies) -> None:
        """Raise if a node belongs to another cluster than the others, or than in earlier calls.

        Clusters of the same name differ by their birth ids: one of them was restored, for example.
        """
        for address, reply in replies.items():
            self.cluster = self.cluster or reply.cluster
            if reply.cluster != self.cluster:
                raise OtherCluster(
                    f"{address} is a node of cluster {reply.cluster!r}, others are of "
                    f"{self.cluster!r}"
                )
        births = {reply.birth: address for address, reply in replies.items() if reply.birth}
        if len(births) > 1:
            told_births = ", ".join(f"{births[birth]} has {birth}" for birth in births)
            raise OtherCluster(
                f"the nodes are of several clusters of the name {self.cluster!r}, by their birth "
                f"ids: {told_births}"
            )
        for birth, address in births.items():
            self.birth = self.birth or birth
            if birth != self.birth:
                raise BegunAnew(
                    f"{address} is a node of the cluster {self.cluster!r} with the birth id "
                    f"{birth}, not of the one with {self.birth} whose events were read: it was "
                    "restored, recovered or begun anew"
                )

    def _stream(self, address: str, first: int, end: int) -> Iterator[Piece]:
        """Yield the pieces of one call.

        Raises:
            grpc.RpcError: the node is lost.
            ProtocolError: it left events out.
        """
        stub = events_pb2_grpc.EventsStub(self._nodes.channel(address))
        request = events_pb2.ReadEventsRequest(start=first, end=end)
        position = first
        call = stub.ReadEvents(request, timeout=READ_TIMEOUT_S)
        try:
            for batch in call:
                if batch.first > position:
                    raise ProtocolError(f"it sent event {batch.first} where {position} was to come")
                skip = position - batch.first
                last = min(batch.first + batch.rows, end)
                if last > position:
                    yield Piece(position, last, skip, batch.arrow)
                    position = last
        finally:
            # A node serves a limited number of readers, so a reader that stops cancels its call.
            call.cancel()


def _at_most(grace_s: float) -> Enough:
    return lambda _: grace_s


def _lacks(reply: events_pb2.EventRangeReply, position: int) -> bool:
    """Whether an event is older than a node's end and the node does not keep it any more."""
    return position < reply.end and not _keeps(reply, position)


def _keeps(reply: events_pb2.EventRangeReply, position: int) -> bool:
    return any(span.first <= position < span.end for span in reply.spans)


def _kept_from(replies: Replies, position: int) -> int:
    """Return the first offset after `position` that a node keeps; the end if there is none."""
    firsts = [span.first for reply in replies.values() for span in reply.spans]
    return min(
        (first for first in firsts if first > position),
        default=max(reply.end for reply in replies.values()),
    )


def joined(replies: Replies, failures: Mapping[str, str]) -> Extent:
    """Merge the replies of `Events.ranges` into one extent."""
    newest = max(replies.values(), key=lambda reply: reply.end)
    # The end of a node without events does not limit the beginning of the others.
    keeping = [reply for reply in replies.values() if reply.spans]
    oldest = min(keeping, key=_first, default=newest)
    # A node whose events are all older than the wall time answers its end, which may be behind.
    walls = [r.offset_at_wall for r in replies.values() if r.offset_at_wall < r.end]
    at_wall = min(walls, default=newest.end)
    return Extent(
        cluster=newest.cluster,
        first=_first(oldest),
        end=newest.end,
        at_wall=at_wall,
        jobs_before=_counts(oldest.jobs_before),
        jobs=_counts(newest.jobs),
        failures=failures,
        birth=max(reply.birth for reply in replies.values()),  # those that know it agree
        is_after_hole=at_wall > 0
        and not any(_keeps(reply, at_wall - 1) for reply in replies.values()),
    )


def _first(reply: events_pb2.EventRangeReply) -> int:
    return reply.spans[0].first if reply.spans else reply.end


def _counts(jobs: node_pb2.Jobs) -> dict[str, int]:
    return {state: getattr(jobs, state) for state in ("ready", "reserved", "delayed", "buried")}
