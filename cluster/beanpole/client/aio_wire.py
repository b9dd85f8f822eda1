"""The connections of the asyncio client: `Wire` performs the I/O steps of `sansio`."""

import asyncio
import os
import socket
import ssl
from contextlib import suppress
from typing import Any, TypeVar

from beanpole.client.dialing import has_ended, keep_alive, places_of
from beanpole.client.sansio.faults import inherited
from beanpole.client.sansio.steps import (
    RECEIVE_BYTES,
    Close,
    Connect,
    Endpoint,
    IsGone,
    Pause,
    Probe,
    Receive,
    Resolve,
    Send,
    Step,
    Steps,
)

_Result = TypeVar("_Result")
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Wire:
    """The connections of one client."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Begin without a connection; `tls` is None for plain TCP."""
        self._tls = tls
        # Host names by resolved address, for TLS. Names may share an address, each with a port.
        self._names: dict[Endpoint, str] = {}
        self._streams: _Streams | None = None
        self._pid = 0  # the process that connected last
        self._loop: asyncio.AbstractEventLoop | None = None  # of the connection and the lock
        self._lock = asyncio.Lock()

    async def run(self, steps: Steps[_Result]) -> _Result:
        """Perform the steps of one command, after all earlier commands, and return its result.

        Raises:
            ClosedError: another process has connected. Its session is not this one's to resume.
        """
        if self.is_inherited:
            self.close()
            raise inherited()
        self._enter()
        async with self._lock:
            try:
                step = next(steps)
                while True:
                    try:
                        answer = await self._do(step)
                    except TimeoutError as error:
                        # That of asyncio has no words, and the client's errors quote them.
                        step = steps.throw(error if error.args else TimeoutError("timed out"))
                    except OSError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(answer)
            except StopIteration as end:
                result: _Result = end.value
                return result
            except BaseException as error:
                steps.close()
                if not isinstance(error, Exception):
                    self.close()  # cancelled: the rest of a reply would answer another command
                raise

    @property
    def is_busy(self) -> bool:
        """Whether a command is in progress."""
        return self._lock.locked()

    @property
    def is_inherited(self) -> bool:
        """Whether another process has connected, of which this one is a fork."""
        return self._pid not in (0, os.getpid())

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._streams is not None and self.is_inherited:
            (_, writer), self._streams = self._streams, None
            connected = writer.get_extra_info("socket")
            if connected is not None and connected.fileno() >= 0:
                # Not `abort`: both processes share the loop's epoll, which would forget the
                # connection of the parent. The transport keeps its number of a descriptor.
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, connected.fileno(), inheritable=False)
                os.close(nothing)
        if self._streams is not None:
            # Not `close`: it keeps what a node does not read, and with TLS waits for the node's
            # shutdown. The kernel still sends the bytes that it has accepted.
            (_, writer), self._streams = self._streams, None
            with suppress(RuntimeError):  # its loop is closed
                writer.transport.abort()

    def _enter(self) -> None:
        """Leave what belongs to the loop of earlier commands, as each `asyncio.run` has its own."""
        loop = asyncio.get_running_loop()
        if loop is self._loop:
            return
        if self._streams is not None:
            # A loop that turns no more does not close the socket, and the node would not give out
            # the jobs of this connection. uvloop has closed it with the loop.
            connected = self._streams[1].get_extra_info("socket")
            if connected is not None:
                with suppress(OSError), connected.dup() as same:
                    same.shutdown(socket.SHUT_RDWR)
        self.close()
        self._loop, self._lock = loop, asyncio.Lock()

    async def _do(self, step: Step) -> object:
        match step:
            case Receive():
                async with asyncio.timeout(step.timeout_s):
                    return await self._connected[0].read(RECEIVE_BYTES)
            case Send():
                writer = self._connected[1]
                writer.write(step.data)
                async with asyncio.timeout(step.timeout_s):
                    await writer.drain()
            case IsGone():
                return self._is_gone()
            case Resolve():
                loop = asyncio.get_running_loop()
                found = await loop.getaddrinfo(step.host, step.port, type=socket.SOCK_STREAM)
                places = [Endpoint(*place) for place in places_of(found)]
                self._names |= dict.fromkeys(places, step.host)
                return places
            case Connect():
                self.close()
                self._pid = os.getpid()
                self._streams = await self._open(step.endpoint, step.timeout_s)
            case Probe():
                return await self._probe(step)
            case Close():
                self.close()
            case Pause():
                await asyncio.sleep(step.seconds)
        return None

    async def _probe(self, step: Probe) -> bytes:
        reader, writer = await self._open(step.endpoint, step.timeout_s)
        try:
            writer.write(step.request)
            async with asyncio.timeout(step.timeout_s):
                return await reader.read(RECEIVE_BYTES)
        finally:
            writer.transport.abort()

    @property
    def _connected(self) -> _Streams:
        if self._streams is None:
            raise ConnectionError("the client was closed")
        return self._streams

    def _is_gone(self) -> bool:
        if self._streams is None:
            return True
        reader, writer = self._streams
        if reader.at_eof() or reader.exception() is not None or writer.is_closing():
            return True
        if getattr(reader, "_buffer", b""):
            return True  # bytes that were sent unasked, and would answer the next request
        # The loop has not noticed what came while the program computed.
        connected = writer.get_extra_info("socket")
        return connected is not None and has_ended(connected, is_tls=self._tls is not None)

    async def _open(self, endpoint: Endpoint, timeout_s: float) -> _Streams:
        safely: dict[str, Any] = {}
        if self._tls is not None:
            name = self._names.get(endpoint, endpoint.host)
            safely = {"ssl": self._tls, "server_hostname": name}
        async with asyncio.timeout(timeout_s):
            if not endpoint.port:
                return await asyncio.open_unix_connection(endpoint.host, **safely)
            try:
                reader, writer = await asyncio.open_connection(
                    endpoint.host, endpoint.port, **safely
                )
            except ssl.SSLError:
                await asyncio.sleep(0)  # otherwise the loop could end before it closes the socket
                raise
        keep_alive(writer.get_extra_info("socket"))
        return reader, writer
