"""Reading the event stream from nodes that hold different parts of it, and that fail."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.client import events, rpc
from beanpole.client.events import Events, EventsLost
from beanpole.errors import ClientError
from beanpole.pb import events_pb2, events_pb2_grpc

END = 60


class Broken(grpc.RpcError):
    """A call that failed."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "broken on purpose"


class Call:
    """A call that streams batches, until it is cancelled."""

    def __init__(self, batches: Iterator[events_pb2.EventBatch]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[events_pb2.EventBatch]:
        return self._batches

    def cancel(self) -> None:
        self._batches = iter(())


@dataclass
class Node:
    """A double of a node behind gRPC's stub: the events that it has, and how it fails."""

    spans: list[tuple[int, int]]
    end: int = END
    rows: int = 8
    # The number of batches, at least one, after which each stream breaks; None: never.
    breaks_after: int | None = None
    dead: bool = False
    # Whether it never answers, as a machine without power.
    silent: bool = False
    cluster: str = "double"
    # The number of questions about its ranges that stay without a reply.
    late: int = 0
    asked: int = 0
    reads: list[tuple[int, int]] = field(default_factory=list)
    # The number of events that each stream leaves out at its beginning.
    leaves_out: int = 0

    @property
    def EventRange(self) -> "Node":
        return self

    def future(self, request: events_pb2.EventRangeRequest, timeout: float) -> "Node":
        return self

    def add_done_callback(self, told: Callable[["Node"], None]) -> None:
        if not self.silent:
            told(self)

    def cancel(self) -> None:
        assert self.silent, "the call had ended"

    def result(self) -> events_pb2.EventRangeReply:
        self.asked += 1
        if self.dead or self.asked <= self.late:
            raise Broken
        spans = [events_pb2.Span(first=first, end=end) for first, end in self.spans]
        return events_pb2.EventRangeReply(cluster=self.cluster, spans=spans, end=self.end)

    def ReadEvents(self, request: events_pb2.ReadEventsRequest, timeout: float) -> "Call":
        return Call(self._batches(request))

    def _batches(self, request: events_pb2.ReadEventsRequest) -> Iterator[events_pb2.EventBatch]:
        self.reads.append((request.start, request.end))
        # A node never answers a range of which it lacks a part.
        (held,) = [span for span in self.spans if span[0] <= request.start < span[1]]
        assert request.end <= held[1]
        begin = max(held[0], request.start - request.start % self.rows)
        for count, first in enumerate(range(begin, request.end, self.rows)):
            if count == self.breaks_after:
                raise Broken
            rows = min(self.rows, held[1] - first)
            first += self.leaves_out
            yield events_pb2.EventBatch(first=first, rows=rows, arrow=b"%d" % first)


def spans_of(numbers: set[int]) -> list[tuple[int, int]]:
    """Return sets of numbers as ranges."""
    firsts = sorted(number for number in numbers if number - 1 not in numbers)
    ends = sorted(number + 1 for number in numbers if number + 1 not in numbers)
    return list(zip(firsts, ends, strict=True))


Dial = Callable[[list[Node]], Events]
Read = Callable[[list[Node], int, int], list[int]]


@pytest.fixture(scope="module")
def dial() -> Iterator[Dial]:
    """Connect a client without patience to nodes: it asks twice."""
    nodes: list[Node] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc, "PAUSE_MIN_S", 0)
        patch.setattr(rpc.Nodes, "channel", lambda _, address: nodes[int(address)])
        patch.setattr(events_pb2_grpc, "EventsStub", lambda node: node)

        def run(given: list[Node]) -> Events:
            nodes[:] = given
            return Events([str(number) for number in range(len(nodes))], patience_s=0)

        yield run


@pytest.fixture(scope="module")
def read(dial: Dial) -> Read:
    """Read a range from nodes; return the received offsets, even after an error."""

    def run(given: list[Node], first: int, end: int) -> list[int]:
        found: list[int] = []
        with dial(given) as client:
            try:
                for piece in client.read(first, end):
                    # The skipped rows are those before the piece.
                    assert int(piece.arrow) + piece.skip == piece.first
                    found += range(piece.first, piece.end)
            except ClientError as error:
                error.args = (*error.args, found)
                raise
        return found

    return run


def cut(spans: list[set[int]], breaks: list[int | None], rows: int, dead: list[bool]) -> list[Node]:
    return [
        Node(spans_of(numbers), rows=rows, breaks_after=after, dead=is_dead)
        for numbers, after, is_dead in zip(spans, breaks, dead, strict=True)
    ]


PARTS = st.lists(st.integers(0, END), max_size=6, unique=True).map(
    lambda cuts: {number for number in range(END) if sum(cut <= number for cut in cuts) % 2 == 0}
)


@given(
    spans=st.lists(PARTS, min_size=3, max_size=3),
    breaks=st.lists(st.none() | st.integers(1, 3), min_size=3, max_size=3),
    rows=st.integers(1, 20),
    dead=st.lists(st.booleans(), min_size=3, max_size=3).filter(lambda each: not all(each)),
    bounds=st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted),
)
def test_what_any_node_has_is_read_once_and_in_order(
    read: Read,
    spans: list[set[int]],
    breaks: list[int | None],
    rows: int,
    dead: list[bool],
    bounds: list[int],
) -> None:
    first, end = bounds
    held: set[int] = set()
    for numbers, is_dead in zip(spans, dead, strict=True):
        held |= set() if is_dead else numbers
    lost = next((number for number in range(first, end) if number not in held), end)
    nodes = cut(spans, breaks, rows, dead)
    if lost == end:
        assert read(nodes, first, end) == list(range(first, end))
        return
    with pytest.raises(EventsLost) as raised:
        read(nodes, first, end)
    assert raised.value.args[1] == list(range(first, lost))
    assert raised.value.first == lost
    assert raised.value.kept == min((one for one in held if one > lost), default=END)


def test_a_node_that_is_behind_loses_nothing(read: Read) -> None:
    behind = Node([(0, 20)], end=20)
    assert read([behind, Node([(0, END)])], 0, END) == list(range(END))
    with pytest.raises(ClientError, match=r"from offset 20 on: 0: its events end at 20") as raised:
        read([behind, Node([], dead=True)], 0, END)
    assert not isinstance(raised.value, EventsLost)


def test_a_node_that_leaves_events_out_is_passed_over(read: Read) -> None:
    wrong = Node([(0, END)], leaves_out=2)
    assert read([wrong, Node([(0, END)])], 0, END) == list(range(END))
    assert len(wrong.reads) == 1
    words = r"from offset 0 on: 0: it sent event 2 where 0 was to come; 1: UNAVAILABLE: broken"
    with pytest.raises(ClientError, match=words):
        read([wrong, Node([], dead=True)], 0, END)


def test_the_earliest_event_is_that_of_all_nodes(dial: Dial) -> None:
    recent = [(40, END)]
    with dial([Node(recent), Node([(5, END)], late=1)]) as client:
        extent = client.whole(END)
    assert (extent.first, extent.failures) == (5, {})
    with dial([Node(recent), Node([(5, END)], late=1)]) as client:
        assert client.extent_to(END, first=39).first == 5
    with dial([Node(recent), Node([(5, END)], dead=True)]) as client:
        extent = client.extent_to(END, first=39)
    assert (extent.first, list(extent.failures)) == (40, ["1"])
    for known in (None, 40, 50):
        with dial([node := Node(recent), Node([(5, END)], dead=True)]) as client:
            client.extent_to(END, first=known)
        assert node.asked == 1, "it does not matter what the other one has"


class Clock:
    """A clock that advances only while a client waits."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(
    ("first", "waits_s"),
    # The earliest offset: silent nodes are waited for briefly. An offset that only the dead node
    # has: until patience ends. An offset that others have, or the end: not at all.
    [("earliest", (2, 3)), (7, (30, 31)), (40, (0, 0)), (None, (0, 0))],
)
def test_a_dead_node_is_waited_for_only_if_it_can_matter(
    dial: Dial, first: str | int | None, waits_s: tuple[int, int]
) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc, "PAUSE_MIN_S", 0.05)
        patch.setattr(rpc, "time", clock)
        patch.setattr(events, "time", clock)
        with dial([Node([(40, END)]), Node([(5, END)], dead=True)]) as client:
            patch.setattr(client, "_patience_s", 30)
            found = client.whole() if isinstance(first, str) else client.extent_to(END, first)
    assert (found.first, list(found.failures)) == (40, ["1"])
    low, high = waits_s
    assert low <= clock.now_s - 100 <= high


def test_a_silent_node_is_not_waited_for_by_those_that_have_enough(dial: Dial) -> None:
    """Its calls never end here, so neither would waiting for them."""
    nodes = [Node([], silent=True), Node([(0, END)])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "GRACE_S", 0)
        with dial(nodes) as client:
            patch.setattr(client, "_silent_patience_s", 0)
            assert client.extent().end == END
            assert client.extent_to(END, first=0).failures == {"0": "no answer yet"}
            assert [piece.first for piece in client.read(0, END)] == list(range(0, END, 8))
            # The node that answers is preferred from now on.
            assert client._nodes.addresses == ["1", "0"]


def test_a_node_without_events_does_not_say_where_they_begin(dial: Dial) -> None:
    with dial([Node([(40, END)]), Node([], end=20)]) as client:
        assert client.extent().first == 40
    with dial([Node([], end=20), Node([], end=30)]) as client:
        assert client.extent().first == 30


def test_nodes_of_different_clusters_are_refused(read: Read) -> None:
    nodes = [Node([(0, END)]), Node([(0, END)], cluster="other")]
    with pytest.raises(ClientError, match=r"1 is a node of cluster 'other', others are of"):
        read(nodes, 0, END)
