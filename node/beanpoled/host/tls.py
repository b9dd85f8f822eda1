"""Accept TLS connections, with a reason for each refused handshake.

An asyncio server drops the reason of a failed handshake, and has no limit for handshakes in
progress. Reasons and limits are in `trust.handshakes`.
"""

import asyncio
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from beanpole.addresses import host_name
from beanpoled.host.tasks import watched
from beanpoled.host.tls_stream import TlsStream, TurnLine
from beanpoled.trust.certificates import Certificates
from beanpoled.trust.handshakes import (
    DISPLACED,
    HANDSHAKE_TIMEOUT_S,
    TIMED_OUT,
    Handshakes,
    Room,
    reason_of,
)

ACCEPT_PAUSE_S: Final = 0.05


class TlsAcceptor:
    """One listening socket."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listening: socket.socket,
        certificates: Certificates,
        handshakes: Handshakes,
        room: Room,
        make: Callable[[], asyncio.Protocol],
        whom: str,
    ) -> None:
        """Begin to accept.

        Args:
            loop: of the node.
            listening: not blocking; the caller still owns it.
            certificates: this node's.
            handshakes: of this node.
            room: of `handshakes`, for the kind of clients of this socket.
            make: makes the protocol behind a handshake.
            whom: the expected kind of client, in words.
        """
        self._loop = loop
        self._listening = listening
        self._certificates = certificates
        self._handshakes = handshakes
        self._room = room
        self._make = make
        self._whom = whom
        self._line = TurnLine(loop.call_soon)
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = watched(loop, self._accept())

    def close(self) -> None:
        """Accept no more; handshakes in progress end, finished connections stay."""
        self._accepting.cancel()
        for task in self._tasks:
            task.cancel()

    async def _accept(self) -> None:
        while True:
            try:
                raw, address = await self._loop.sock_accept(self._listening)
            except OSError:
                # The client is gone already, or file descriptors are short for a moment.
                await asyncio.sleep(ACCEPT_PAUSE_S)
                continue
            host = host_name(address[0])
            now_s = self._loop.time()
            refusal = self._room.refusal(host, now_s)
            if refusal:
                self._handshakes.refused(refusal, self._whom, now_s, host)
                raw.close()
                continue
            raw.setblocking(False)
            self._begin(raw, host, now_s)

    def _begin(self, raw: socket.socket, host: bytes, now_s: float) -> None:
        certificates = self._certificates
        stream = TlsStream(
            self._loop,
            certificates.server,
            self._make,
            line=self._line,
            standing=certificates.standing,
        )
        task = self._loop.create_task(self._handshake(stream, raw, host))
        self._tasks.add(task)
        number = self._room.begin(host, now_s, partial(self._displace, stream, task, host))
        task.add_done_callback(partial(self._ended, stream, raw, number))

    def _displace(self, stream: TlsStream, task: asyncio.Task[None], host: bytes) -> None:
        """End a handshake that makes room for another."""
        if not stream.established.done():  # else it ends anyway, and is counted as what it is
            self._handshakes.refused(DISPLACED, self._whom, self._loop.time(), host)
            task.cancel()

    def _ended(
        self, stream: TlsStream, raw: socket.socket, number: int, task: asyncio.Task[None]
    ) -> None:
        self._room.end(number)
        self._tasks.discard(task)
        # A task that was cancelled before its first step has closed nothing.
        if task.cancelled() and stream.give_up():
            raw.close()

    async def _handshake(self, stream: TlsStream, raw: socket.socket, host: bytes) -> None:
        below = partial(cast, asyncio.Protocol, stream)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                await self._loop.connect_accepted_socket(below, raw)
                await stream.established
        except Exception as error:
            # The other side may have sent anything: an unhandled exception would end the node.
            reason, now_s = reason_of(error), self._loop.time()
            self._handshakes.refused(reason, self._whom, now_s)
            # A load balancer's check sends nothing and costs nothing, so it is no failure.
            if stream.heard and reason != TIMED_OUT:
                self._room.failures.failed(host, now_s)
            raw.close()
        finally:
            stream.give_up()
            del stream, below  # the error refers to this frame, and the stream to the error
