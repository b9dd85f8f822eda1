"""The gRPC service over real sockets: ranges, batches as stored, and every error."""

import asyncio
import errno
import gc
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import grpc
import pyarrow as pa
import pytest

from beanpole.client.events import EventsLost
from beanpole.client.rpc import ERROR_KEY
from beanpole.core.machine import Machine
from beanpole.pb import errors_pb2, events_pb2, events_pb2_grpc
from beanpoled.eventlog import columns
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.eventlog.source import Source
from beanpoled.rpc import events as service
from tests.integration.support.waiting import wait_until
from tests.unit.eventlog.made import WALL_US, Driver, naive
from tests.unit.eventlog.served import ArrowHost, Server, life_of, serving
from tests.unit.eventlog.test_store import Life, image_of
from tests.unit.node.stage import config

TIMEOUT_S = 60.0
READERS = 20
# Of the loop: enough for a reader that has been given a place to begin its work.
PASSES = 10


def history(entries: int = 12, each: int = 30) -> list[tuple[Any, ...]]:
    driver = Driver()
    for number in range(entries):
        driver.put(each, (b"work", b"mail")[number % 2])
    return driver.entries


def stub(address: str) -> Any:
    return events_pb2_grpc.EventsStub(grpc.insecure_channel(address))


def read(address: str, start: int, end: int) -> list[events_pb2.EventBatch]:
    request = events_pb2.ReadEventsRequest(start=start, end=end)
    return list(stub(address).ReadEvents(request, timeout=TIMEOUT_S))


def table(batches: list[events_pb2.EventBatch]) -> list[dict[str, Any]]:
    found = [columns.from_stream(batch.arrow) for batch in batches]
    assert [batch.rows for batch in batches] == [one.num_rows for one in found]
    assert [batch.first for batch in batches] == [one["offset"][0].as_py() for one in found]
    return list(pa.Table.from_batches(found).to_pylist())


def failure(address: str, start: int, end: int) -> tuple[grpc.StatusCode, str, str]:
    """Return the code, reason and message of a read that fails before the first batch."""
    with pytest.raises(grpc.RpcError) as raised:
        read(address, start, end)
    return told(raised.value)


def told(error: Any) -> tuple[grpc.StatusCode, str, str]:
    packed = dict(error.trailing_metadata())[ERROR_KEY]
    reason = errors_pb2.ErrorDetail.FromString(packed).reason
    return error.code(), reason, error.details()


def test_the_range_tells_what_is_here_and_the_counts_around_it() -> None:
    life = life_of(history())
    life.driver.number = 100
    with serving(Server(life)) as (address,):
        reply = stub(address).EventRange(events_pb2.EventRangeRequest(), timeout=TIMEOUT_S)
    assert (reply.cluster, reply.node) == ("stage", "n0")
    assert [(span.first, span.end) for span in reply.spans] == [(0, 360)]
    assert (reply.end, reply.jobs.ready, reply.jobs_before.ready) == (360, 360, 0)
    assert reply.applied_index == life.driver.machine.index
    assert reply.offset_at_wall == 0


def test_reads_are_the_same_from_files_from_what_waits_and_from_memory() -> None:
    entries = history()
    lives = [life_of(entries), life_of(entries, event_segment_bytes=1024**3)]
    waiting = Life(ArrowHost())
    for entry in entries:
        waiting.driver.apply(entry)
    assert not waiting.host.files.list(waiting.log.directory)
    expected = list(naive(lives[1].log.part(0)))  # type: ignore[arg-type]
    with serving(*map(Server, [*lives, waiting])) as addresses:
        for address in addresses:
            assert table(read(address, 0, 0)) == expected
            assert table(read(address, 0, 10_000)) == expected
            rows = table(read(address, 70, 130))
            offsets = [row["offset"] for row in rows]
            assert offsets == list(range(offsets[0], offsets[-1] + 1))
            assert offsets[0] <= 70 and offsets[-1] >= 129
            assert read(address, 360, 0) == read(address, 9_999, 0) == []


def test_stored_batches_are_sent_as_they_are() -> None:
    life = life_of(history())
    part = life.log.part(0)
    assert isinstance(part, segments.EventSegment)
    handle = life.host.files.open(part.path)
    stored = [segments.read(handle, part, place) for place in part.places]
    with serving(Server(life)) as (address,):
        assert [batch.arrow for batch in read(address, 0, part.end)] == stored


def test_what_is_older_is_gone_and_what_is_in_a_gap_is_missing() -> None:
    entries = history()
    life = life_of(entries[:5])  # the first opens the session; four have events
    machine = Machine()
    for entry in entries[:9]:
        machine.apply(*entry)
    life.log.attach(image_of(machine))
    life.driver = Driver(life.log, life.log._machine)
    for entry in entries[9:]:
        life.driver.apply(entry)
    life.settle()
    assert life.log.spans() == [(0, 120), (240, 360)]
    with serving(Server(life)) as (address,):
        code, reason, words = failure(address, 119, 241)
        assert (code, reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_MISSING")
        assert words == "n0 has no event 120; it has 0 to 120, 240 to 360"
        assert len(table(read(address, 0, 120))) == 120
        first = life.log._segments[0]
        life.log._drop(0, 1)
        code, reason, _ = failure(address, 0, 10)
        assert (code, reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_GONE")
        assert [row["offset"] for row in table(read(address, first.end, first.end + 1))][:1]


def test_a_damaged_batch_is_told_and_its_file_is_not_offered_again() -> None:
    life = life_of(history())
    part = life.log.part(100)
    assert isinstance(part, segments.EventSegment)
    life.host.files.flip(part.path, part.places[0].at + 5)
    with serving(Server(life)) as (address,):
        code, reason, words = failure(address, part.first, part.end)
        assert (code, reason) == (grpc.StatusCode.DATA_LOSS, "EVENTS_DAMAGED")
        assert part.path in words
        assert failure(address, part.first, part.end)[1] == "EVENTS_MISSING"
    assert (part.first, part.end) not in life.log.spans()
    assert len(life.host.lines) == 1


def test_a_file_that_vanished_is_not_offered_again() -> None:
    """Every reader came again for its events, without an end."""
    life = life_of(history())
    part = life.log.part(100)
    assert isinstance(part, segments.EventSegment)
    life.host.files.remove(part.path)
    with serving(Server(life)) as (address,):
        code, reason, _ = failure(address, part.first, part.end)
        assert (code, reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENTS_MISSING")
        reply = stub(address).EventRange(events_pb2.EventRangeRequest(), timeout=TIMEOUT_S)
        assert not any(span.first <= part.first < span.end for span in reply.spans)
        with Source([address]) as source, pytest.raises(EventsLost):
            next(source.read(part.first, part.end))
    assert len(life.host.lines) == 1


@pytest.mark.parametrize("where", ["open", "read"])
def test_a_disk_that_refuses_once_hides_nothing(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = life_of(history())
    part = life.log.part(100)
    assert isinstance(part, segments.EventSegment)

    def refuse(*_: Any) -> None:
        raise OSError(errno.EIO, "input/output error")

    with serving(Server(life)) as (address,), monkeypatch.context() as patch:
        target: Any = life.host.files if where == "open" else segments
        patch.setattr(target, where, refuse)
        code, reason, words = failure(address, part.first, part.end)
        assert (code, reason) == (grpc.StatusCode.UNAVAILABLE, "EVENTS_UNREADABLE")
        assert words == f"{part.path} cannot be read now: input/output error"
        request = events_pb2.EventRangeRequest(wall_us=WALL_US)
        with pytest.raises(grpc.RpcError) as raised:
            stub(address).EventRange(request, timeout=TIMEOUT_S)
        assert told(raised.value)[0] == grpc.StatusCode.UNAVAILABLE
        patch.undo()
        assert len(table(read(address, 0, 0))) == 360
    assert not life.host.lines


def test_wrong_requests_and_nodes_without_events_say_so() -> None:
    off = Life(events="off")
    with serving(Server(life_of(history())), Server(off)) as (address, empty):
        code, reason, words = failure(address, 10, 5)
        assert (code, reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_RANGE")
        assert words == "start = 10 is behind end = 5"
        code, reason, words = failure(empty, 0, 0)
        assert (code, reason) == (grpc.StatusCode.FAILED_PRECONDITION, "EVENTS_OFF")
        assert 'events = "off"' in words


class SlowHost(ArrowHost):
    """A host whose conversions wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may = threading.Event(), threading.Event()

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        self.begun.set()
        assert self.may.wait(TIMEOUT_S)
        return super().encode_events(events, within_us)


def test_a_slow_read_holds_up_nobody_and_readers_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "READERS_MAX", 1)
    host = SlowHost()
    life = life_of(history(), host, event_segment_bytes=1024**3)
    with serving(Server(life)) as (address,):
        slow = stub(address).ReadEvents(events_pb2.ReadEventsRequest(), timeout=TIMEOUT_S)
        assert host.begun.wait(TIMEOUT_S)
        reply = stub(address).EventRange(events_pb2.EventRangeRequest(), timeout=TIMEOUT_S)
        assert reply.end == 360
        code, reason, _ = failure(address, 0, 0)
        assert (code, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_READERS")
        host.may.set()
        assert len(table(list(slow))) == 360
        assert len(table(read(address, 0, 0))) == 360


def test_a_reader_that_goes_away_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "READERS_MAX", 1)
    host = SlowHost()
    life = life_of(history(), host, event_segment_bytes=1024**3)
    with serving(Server(life)) as (address,):
        slow = stub(address).ReadEvents(events_pb2.ReadEventsRequest(), timeout=TIMEOUT_S)
        assert host.begun.wait(TIMEOUT_S)
        slow.cancel()
        host.may.set()

        def has_room() -> bool:
            try:
                return len(table(read(address, 0, 0))) == 360
            except grpc.RpcError as error:
                assert told(error)[1] == "TOO_MANY_READERS"
                return False

        wait_until(has_room, TIMEOUT_S, "room for another reader")


def test_a_file_that_is_opened_for_a_reader_that_has_gone_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise each such reader would keep a descriptor of the node, for as long as it lives."""
    life = life_of(history())
    opens, may_open, closed = threading.Event(), threading.Event(), threading.Event()

    def slow(path: str) -> Any:
        opens.set()
        assert may_open.wait(TIMEOUT_S)
        return SimpleNamespace(close=closed.set)

    monkeypatch.setattr(life.host.files, "open", slow)

    async def read_and_leave() -> None:
        servicer = service.EventsServicer(config(), life.host, life.log, str)
        (segment, *_), _ = life.log.walls()

        async def read() -> None:
            async with servicer._opened(segment, Mock()):
                raise AssertionError("it is cancelled before")

        reading = asyncio.ensure_future(read())
        assert await asyncio.to_thread(opens.wait, TIMEOUT_S)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        may_open.set()
        assert await asyncio.to_thread(closed.wait, TIMEOUT_S)

    asyncio.run(read_and_leave())


@pytest.mark.parametrize("error", [None, OSError("no"), ValueError("no")], ids=repr)
def test_readers_that_go_away_do_not_convert_in_more_threads(error: Exception | None) -> None:
    """A thread works on when its reader has gone, and other work of the node needs threads."""
    begun, may_end, lock = threading.Event(), threading.Event(), threading.Lock()
    running: list[int] = []
    most: list[int] = []
    unhandled: list[Any] = []

    def work(number: int) -> int:
        with lock:
            running.append(number)
            most.append(len(running))
        begun.set()
        assert may_end.wait(TIMEOUT_S)
        with lock:
            running.remove(number)
        if error is not None and number < READERS:
            raise error
        return number

    async def come_and_go() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: unhandled.append(what))
        servicer = service.EventsServicer(config(), Mock(), Mock(), str)
        first = asyncio.ensure_future(servicer._convert(work, 0, context=Mock()))
        assert await asyncio.to_thread(begun.wait, TIMEOUT_S)
        readers = [
            asyncio.ensure_future(servicer._convert(work, number, context=Mock()))
            for number in range(1, READERS)
        ]
        for reader in (first, *readers):
            reader.cancel()
            await asyncio.wait((reader,))
            assert reader.cancelled()
            for _ in range(PASSES):
                await asyncio.sleep(0)
        last = asyncio.ensure_future(servicer._convert(work, READERS, context=Mock()))
        may_end.set()
        assert await last == READERS
        gc.collect()

    asyncio.run(asyncio.wait_for(come_and_go(), TIMEOUT_S))
    assert max(most) == service.CONVERSIONS_MAX
    assert unhandled == []


@pytest.mark.parametrize("sealed", [True, False])
def test_the_first_offset_at_a_wall_time(sealed: bool) -> None:
    settings: dict[str, Any] = {} if sealed else {"event_segment_bytes": 1024**3}
    life = life_of(history(), **settings)
    # Entry 1 opens the session at 1 s; the events of entry n are at n seconds.
    expected = {0.5: 0, 2.0: 0, 2.5: 30, 3.0: 30, 7.000001: 180, 13.0: 330, 14.0: 360}
    with serving(Server(life)) as (address,):
        for late_s, offset in expected.items():
            wall_us = WALL_US + round(late_s * 1e6)
            request = events_pb2.EventRangeRequest(wall_us=wall_us)
            reply = stub(address).EventRange(request, timeout=TIMEOUT_S)
            assert reply.offset_at_wall == offset, late_s


def test_the_service_is_named_as_the_protocol_says() -> None:
    assert service.SERVICE == "beanpole.v1.Events"
    assert config().events == "on"
