"""The gRPC service `Events`: the event stream of this node, as stored.

Batches in files are sent as they are; events in memory are converted to batches outside the node's
process, a slice at a time. A slow reader holds one batch and one open file, and never the loop.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, NoReturn, TypeVar

import grpc
import grpc.aio

from beanpole.errors import Damaged
from beanpole.pb import events_pb2, events_pb2_grpc, node_pb2
from beanpole.storage.files import Handle
from beanpoled.config.node import NodeConfig
from beanpoled.eventlog import segment as segments
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.eventlog.segment import EventSegment, Place
from beanpoled.eventlog.store import EventLog
from beanpoled.host.seam import Host
from beanpoled.rpc.server import Context, fail, write
from beanpoled.view import JobCounts

T = TypeVar("T")

SERVICE: Final = events_pb2.DESCRIPTOR.services_by_name["Events"].full_name

# Each holds a file and a batch of a few megabytes; Spark reads with as many tasks as it has cores.
READERS_MAX: Final = 32
# At a time: more would only wait for each other, in threads that other work needs.
CONVERSIONS_MAX: Final = 1
# A reader may stop for a while, as Spark does when it sorts; a reader that takes nothing for this
# long is considered gone.
TAKE_TIMEOUT_S: Final = 300.0


class EventsServicer(events_pb2_grpc.EventsServicer):
    """Serves one node's events."""

    def __init__(
        self, config: NodeConfig, host: Host, log: EventLog, birth: Callable[[], str]
    ) -> None:
        self._config = config
        self._birth = birth
        self._host = host
        self._log = log
        self._readers = 0
        self._converting = asyncio.Semaphore(CONVERSIONS_MAX)

    def add_to(self, server: grpc.aio.Server) -> str:
        """Add the service to a server; return its full name."""
        events_pb2_grpc.add_EventsServicer_to_server(self, server)
        return SERVICE

    async def EventRange(
        self, request: events_pb2.EventRangeRequest, context: Context
    ) -> events_pb2.EventRangeReply:
        await self._check_kept(context)
        log = self._log
        reply = events_pb2.EventRangeReply(
            cluster=self._config.cluster,
            node=self._config.node_id,
            spans=[events_pb2.Span(first=first, end=end) for first, end in log.spans()],
            end=log.end,
            jobs=_jobs(log.jobs()),
            applied_index=log.applied_index,
            jobs_before=_jobs(log.jobs_before()),
            birth=self._birth(),
        )
        if request.wall_us > 0:
            found = await self._first_at_wall(request.wall_us, context)
            reply.offset_at_wall = reply.end if found is None else min(found, reply.end)
        return reply

    async def ReadEvents(self, request: events_pb2.ReadEventsRequest, context: Context) -> None:
        await self._check_kept(context)
        if 0 < request.end < request.start:
            message = f"start = {request.start} is behind end = {request.end}"
            await fail(
                context, grpc.StatusCode.INVALID_ARGUMENT, message, "BAD_RANGE", field="start"
            )
        end = min(request.end or self._log.end, self._log.end)
        if request.start >= end:
            return
        await self._check_there(request.start, end, context)
        if self._readers >= READERS_MAX:
            message = f"{READERS_MAX} readers are at work; ask another node, or later"
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, message, "TOO_MANY_READERS")
        self._readers += 1
        try:
            async for batch in self._batches(request.start, end, context):
                part = events_pb2.EventBatch(
                    first=batch.first, rows=batch.rows, arrow=batch.payload
                )
                await write(context, part, TAKE_TIMEOUT_S)
        finally:
            self._readers -= 1

    async def _check_kept(self, context: Context) -> None:
        if not self._log.kept:
            message = f"{self._config.node_id} keeps no events: {self._log.refusal}"
            await fail(context, grpc.StatusCode.FAILED_PRECONDITION, message, "EVENTS_OFF")

    async def _check_there(self, start: int, end: int, context: Context) -> None:
        """Fail before anything is sent if a part of [start, end) is missing here."""
        spans = self._log.spans()
        missing = next((stop for first, stop in spans if first <= start < stop), start)
        if missing < end:
            await self._fail_missing(missing, spans, context)

    async def _fail_missing(
        self, missing: int, spans: list[tuple[int, int]], context: Context
    ) -> NoReturn:
        gone = bool(spans) and missing < spans[0][0]
        there = ", ".join(f"{first} to {end}" for first, end in spans) or "none"
        await fail(
            context,
            grpc.StatusCode.OUT_OF_RANGE,
            f"{self._config.node_id} has no event {missing}; it has {there}",
            "EVENTS_GONE" if gone else "EVENTS_MISSING",
        )

    async def _batches(self, start: int, end: int, context: Context) -> AsyncIterator[EventBatch]:
        position = start
        while position < end:
            part = self._log.part(position)
            if part is None:  # removed since the reader began
                await self._fail_missing(position, self._log.spans(), context)
            elif isinstance(part, Events):
                for batch in await self._convert(self._host.encode_events, part, context=context):
                    yield batch
                position = part.end
            else:
                async for batch in self._stored(part, position, end, context):
                    yield batch
                position = part.end

    async def _stored(
        self, segment: EventSegment, start: int, end: int, context: Context
    ) -> AsyncIterator[EventBatch]:
        """Yield the batches of a file that overlap [start, end)."""
        async with self._opened(segment, context) as handle:
            for place in segment.places:
                if place.first < end and start < place.first + place.rows:
                    payload = await self._payload(handle, segment, place, context)
                    yield EventBatch(place.first, place.rows, place.wall_us_max, payload)

    async def _first_at_wall(self, wall_us: int, context: Context) -> int | None:
        files, memory = self._log.walls()
        for segment in files:
            for place in segment.places:
                if place.wall_us_max >= wall_us:
                    async with self._opened(segment, context) as handle:
                        payload = await self._payload(handle, segment, place, context)
                    first = self._host.first_at_wall
                    return await self._convert(first, payload, wall_us, context=context)
        for events in memory:
            found = await asyncio.to_thread(events.first_at_wall, wall_us)
            if found is not None:
                return found
        return None

    async def _convert(self, work: Callable[..., T], *arguments: object, context: Context) -> T:
        """Run a conversion of the host, one at a time: other work needs threads, too."""
        await self._converting.acquire()
        # The work gives the place back, and not this call: the thread of a reader that goes away
        # works on, and readers that come and go would occupy all threads.
        working = asyncio.ensure_future(asyncio.to_thread(work, *arguments))
        working.add_done_callback(self._converted)
        try:
            return await _result(working)
        except OSError as error:
            message = f"events cannot be converted now: {error}"
            await fail(context, grpc.StatusCode.UNAVAILABLE, message, "EVENTS_UNREADABLE")

    def _converted(self, working: asyncio.Future[Any]) -> None:
        self._converting.release()
        if not working.cancelled():
            # An exception that is not retrieved reaches the loop's handler, which ends the node.
            working.exception()

    @asynccontextmanager
    async def _opened(self, segment: EventSegment, context: Context) -> AsyncIterator[Handle]:
        try:
            handle = await self._open(segment.path)
        except FileNotFoundError:
            # Removed a moment ago by this node; or by others, and then it must not be offered: no
            # reader would ever take its events for lost.
            self._log.leave_out(segment, f"{segment.path} is gone")
            await self._fail_missing(segment.first, self._log.spans(), context)
        except OSError as error:
            await self._fail_unread(segment, error, context)
        try:
            yield handle
        finally:
            handle.close()

    async def _open(self, path: str) -> Handle:
        opening = asyncio.ensure_future(asyncio.to_thread(self._host.files.open, path))
        try:
            return await _result(opening)
        except asyncio.CancelledError:
            # The thread opens the file nevertheless: its descriptor would stay for the node's life.
            opening.add_done_callback(_close_opened)
            raise

    async def _payload(
        self, handle: Handle, segment: EventSegment, place: Place, context: Context
    ) -> bytes:
        try:
            return await asyncio.to_thread(segments.read, handle, segment, place)
        except Damaged as error:
            self._log.leave_out(segment, str(error))
            await fail(context, grpc.StatusCode.DATA_LOSS, str(error), "EVENTS_DAMAGED")
        except OSError as error:
            await self._fail_unread(segment, error, context)

    async def _fail_unread(
        self, segment: EventSegment, error: OSError, context: Context
    ) -> NoReturn:
        """Refuse a read after a temporary error of disk or process; the file stays offered."""
        message = f"{segment.path} cannot be read now: {error.strerror or error}"
        await fail(context, grpc.StatusCode.UNAVAILABLE, message, "EVENTS_UNREADABLE")


async def _result(working: asyncio.Future[T]) -> T:
    """Wait for work in a thread, which goes on when the caller is cancelled.

    `asyncio.shield` would do, but from Python 3.14 on it gives an error of work that nobody waits
    for any more to the loop's handler, which ends the node.
    """
    await asyncio.wait((working,))
    return working.result()


def _close_opened(opening: asyncio.Future[Handle]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _jobs(counts: JobCounts) -> node_pb2.Jobs:
    return node_pb2.Jobs(**counts._asdict())
