"""The edge of the gRPC server: limits that hold before a request is built, or a stream opened.

Requests are read here, too: gRPC would wait for the one of a unary call for ever.

It is around all other interceptors and all services, health and reflection, too. Neither a token
nor a certificate has been looked at here: anybody who reaches the port may send such calls. What
is refused by its size is not in the audit log, as requests that cannot be parsed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from beanpole.constants import BATCH_COMMANDS_MAX
from beanpoled.rpc.patience import ENDINGS, PATIENCE_S, WAITS_MAX, Patience
from beanpoled.rpc.server import Behavior, CallRefused, Context, fail, refuse
from beanpoled.rpc.streams import STREAMS_MAX, Streams

# A request of any method but `Queue/Put` has at most this size: 4,096 ids of jobs have 45 KB at
# most. An empty message has 2 bytes on the wire, and up to 90 when it is built.
REQUEST_BYTES_MAX: Final = 128 * 1024
# Fields of a `Queue/Put` that are looked at: a few more than it may have jobs, so that slightly too
# many are refused by their exact number, and fields of a newer program have room.
PUT_FIELDS_MAX: Final = BATCH_COMMANDS_MAX + 64

_PUT: Final = "/beanpole.v1.Queue/Put"
_WATCH: Final = "/grpc.health.v1.Health/Watch"
_TOO_MANY: Final = f"{STREAMS_MAX} streams of Health/Watch and reflection are open here, the limit"
_SLOW: Final = (
    f"the request did not arrive in {PATIENCE_S:.0f} s, or {WAITS_MAX} later calls wait for theirs"
)

_VARINT, _FIXED64, _BYTES, _GROUP, _GROUP_END, _FIXED32 = range(6)
# Field 1 with bytes: a job. With a length of one or two bytes it has a path of its own, which takes
# a fourth of the time.
_JOB_TAG: Final = 1 << 3 | _BYTES
_FIXED_SIZES: Final = {_FIXED64: 8, _GROUP: 0, _GROUP_END: 0, _FIXED32: 4}


class Edge(grpc.aio.ServerInterceptor):
    """Bounds what a call costs before anything is known of its caller."""

    def __init__(self) -> None:
        self._streams = Streams()
        self._requests = Patience()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: Any,
    ) -> Any:
        """See `ServerInterceptor`."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        parse = handler.request_deserializer
        if handler.request_streaming:  # reflection, which answers an empty request with an error
            return grpc.stream_stream_rpc_method_handler(
                self._counted_stream(handler.stream_stream),
                lambda data: parse(data if len(data) <= REQUEST_BYTES_MAX else b""),
                handler.response_serializer,
            )
        method: str = handler_call_details.method
        check = _check_put if method == _PUT else _check_size
        # Both with a stream of requests, which is the same to the client.
        make, behavior = (
            (grpc.stream_stream_rpc_method_handler, handler.unary_stream)
            if handler.response_streaming
            else (grpc.stream_unary_rpc_method_handler, handler.unary_unary)
        )
        if method == _WATCH:
            behavior = self._counted(behavior)
        return make(
            _checked(self._with_request(behavior)),
            lambda data: check(data) or parse(data),
            handler.response_serializer,
        )

    def _with_request(self, behavior: Behavior) -> Behavior:
        """Return the behavior of a method with a stream of requests, of which the first counts."""

        async def with_request(_: Any, context: Context) -> Any:
            request = await self._request(context)
            if isinstance(request, CallRefused):
                await refuse(context, request)
            return await behavior(request, context)

        return with_request

    async def _request(self, context: Context) -> Any:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                wait = self._requests.begin(lambda: limit.reschedule(loop.time()))
                try:
                    request = await context.read()
                finally:
                    self._requests.stop(wait)
        except TimeoutError:
            await fail(context, grpc.StatusCode.RESOURCE_EXHAUSTED, _SLOW, "REQUEST_SLOW")
        if request is grpc.aio.EOF:
            return CallRefused("NO_REQUEST", "", "the call has no request")
        return request

    def _counted(self, behavior: Behavior) -> Behavior:
        async def counted(request: Any, context: Context) -> Any:
            stream = self._streams.begin(context.peer())
            if stream is None:
                code = grpc.StatusCode.RESOURCE_EXHAUSTED
                await fail(context, code, _TOO_MANY, "TOO_MANY_STREAMS")
            try:
                return await behavior(request, context)
            finally:
                self._streams.end(stream)

        return counted

    def _counted_stream(
        self, behavior: Callable[[Any, Context], AsyncIterator[Any]]
    ) -> Callable[[Any, Context], AsyncIterator[Any]]:
        async def counted(requests: Any, context: Context) -> AsyncIterator[Any]:
            stream = self._streams.begin(context.peer())
            if stream is None:
                context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
                context.set_details(_TOO_MANY)
                ENDINGS.begin()
                return
            try:
                async for reply in behavior(requests, context):
                    yield reply
            finally:
                self._streams.end(stream)
                ENDINGS.begin()

        return counted


def _checked(behavior: Behavior) -> Behavior:
    """Bound the end of a call; let go of the request of a refused one.

    gRPC keeps the error of `abort` in the call's state, which the call's context has. A traceback
    of the error has frames with that context: a cycle, which would stay with its request, since
    the oldest generation of objects is never collected.
    """

    async def checked(request: Any, context: Context) -> Any:
        try:
            return await behavior(request, context)
        except grpc.aio.AbortError as error:
            error.__traceback__ = error.__context__ = error.__cause__ = None
            raise  # bare: it adds no frame again
        finally:
            ENDINGS.begin()

    return checked


def _check_size(data: bytes) -> CallRefused | None:
    if len(data) <= REQUEST_BYTES_MAX:
        return None
    words = f"a request of {len(data)} bytes; at most {REQUEST_BYTES_MAX}"
    return CallRefused("TOO_LARGE", "", words)


def _check_put(data: bytes) -> CallRefused | None:
    if not has_more_fields(data, PUT_FIELDS_MAX):
        return None
    words = f"more than {PUT_FIELDS_MAX} jobs; at most {BATCH_COMMANDS_MAX} in one call"
    return CallRefused("TOO_MANY_JOBS", "jobs", words)


def has_more_fields(data: bytes, count_max: int) -> bool:
    """Whether a message of protobuf has more than `count_max` fields, not counting inner ones.

    What comes behind a malformed field does not count: parsing it fails there, too.
    """
    place, count = 0, 0
    try:
        while place < len(data):
            count += 1
            if count > count_max:
                return True
            if data[place] == _JOB_TAG and data[place + 1] < 0x80:
                place += 2 + data[place + 1]
                continue
            if data[place] == _JOB_TAG and data[place + 2] < 0x80:
                place += 3 + (data[place + 1] & 0x7F) + (data[place + 2] << 7)
                continue
            tag, place = _varint(data, place)
            kind = tag & 7
            if kind == _BYTES:
                size, place = _varint(data, place)
                place += size
            elif kind == _VARINT:
                _, place = _varint(data, place)
            else:
                place += _FIXED_SIZES[kind]
    except (IndexError, KeyError):
        pass
    return False


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return the number at a place, and the place behind it."""
    value = data[place]
    if value < 0x80:
        return value, place + 1
    value &= 0x7F
    for shift in range(7, 70, 7):
        place += 1
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
    raise IndexError("no varint is longer than 10 bytes")
