"""Peer links on asyncio: who dials whom, reconnecting, and the sockets under `link`.

Of two members the one with the smaller id dials, so there is one connection a pair. A link on
which nothing arrives for too long is closed and dialed again.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from beanpole.addresses import split_address
from beanpole.errors import ProtocolError
from beanpoled import link
from beanpoled.config import NodeConfig
from beanpoled.disks import Disks

if TYPE_CHECKING:
    from beanpoled.node import Node

# What may wait in a link's output: above it, `send` says no and the sender tries again later.
OUTPUT_BYTES_MAX: Final = 32 * 1024 * 1024
# A link without a frame for this long is dead: beats come every 50 ms.
IDLE_MAX_S: Final = 3.0
DIAL_TIMEOUT_S: Final = 2.0
# A peer that does not answer or refuses is tried again soon at first, then less often.
DIAL_PAUSE_S: Final = 0.05
DIAL_PAUSE_MAX_S: Final = 0.5
# The same complaint is logged once in this time, and not more than so many different ones.
COMPLAINT_PERIOD_S: Final = 30.0
COMPLAINTS_MAX: Final = 100
# An introduction that takes longer is not one of a member.
HELLO_TIMEOUT_S: Final = 5.0


class PeerProtocol:
    """One connection to or from another member.

    An `asyncio.Protocol` in all but name: a class that is compiled cannot inherit from one.
    """

    def __init__(self, links: "PeerLinks", expected: str | None) -> None:
        self._links = links
        self._reader = link.FrameReader()
        self._handshake = links.handshake(expected)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self.peer: str | None = None  # once it is known who it is
        self.heard_at_s = 0.0
        self.closed: asyncio.Future[None] = links.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTPUT_BYTES_MAX)
        self._transport.write(self._handshake.start())
        self._timer = self._links.loop.call_later(HELLO_TIMEOUT_S, self.close)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        try:
            while not self._is_closing() and (frame := reader.next()) is not None:
                kind, payload = frame
                if kind == link.REFUSE:
                    # Perhaps we believe the link to be up already: the other side decides later.
                    self._links.refused(self._handshake.refusal(frame))
                    self.close()
                    return
                if self.peer is not None:
                    self._links.node.peer_frame(self.peer, kind, payload)
                else:
                    self._introduce(frame)
        except link.Refused as refused:  # one name for both would have one type when compiled
            self._links.refused(str(refused))
            self.close(str(refused))
        except ProtocolError as error:
            self._links.complain(f"link to {self.peer or 'an unknown node'} closed: {error}")
            self.close()
        else:
            self.heard_at_s = self._links.loop.time()

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _introduce(self, frame: link.Frame) -> None:
        assert self._transport is not None
        answer = self._handshake.receive(frame)
        if answer:
            self._transport.write(answer)
        hello = self._handshake.done
        if hello is None:
            return
        refusal = self._links.disks.refuses(hello)
        if refusal is not None:
            self._links.complain(refusal)
            self.close(refusal)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reader.size_max = link.FRAME_MAX_BYTES
        self.peer = hello.node
        self.heard_at_s = self._links.loop.time()
        self._links.established(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        self._links.ended(self)

    def send(self, kind: int, payload: bytes) -> bool:
        """Send a frame; False if the output is full or the link is closing.

        All frames of one turn leave in one write: a packet costs each side ten times what a frame
        costs.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > OUTPUT_BYTES_MAX:
            return False
        if not self._out:
            self._links.loop.call_soon(self.flush)
        self._out.append(link.encode_frame(kind, payload))
        return True

    def flush(self) -> None:
        """Write the frames that were sent since the last write."""
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def close(self, reason: str = "") -> None:
        """End the link, telling the other side why if there is a reason."""
        if self._transport is not None:
            if reason and self.peer is None:
                self._transport.write(link.encode_frame(link.REFUSE, reason.encode()))
                self._transport.close()
            else:
                self._transport.abort()


class PeerLinks:
    """All links of this node."""

    def __init__(
        self,
        config: NodeConfig,
        loop: asyncio.AbstractEventLoop,
        disks: Disks,
        log: Callable[[str], None],
    ) -> None:
        self.loop = loop
        self.disks = disks
        self.log = log
        self.node: Node
        self._config = config
        self._links: dict[str, PeerProtocol] = {}
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._complained: dict[str, float] = {}  # line -> when it was logged

    async def start(self, node: "Node") -> None:
        """Listen, and dial the members that this node dials. OSError if the port is taken."""
        self.node = node
        host, port = split_address(self._config.peer_listen)
        self._server = await self.loop.create_server(
            lambda: cast(asyncio.Protocol, PeerProtocol(self, None)), host, port
        )
        for peer in self._config.peers:
            if self._config.node_id < peer:
                self._tasks.append(self.loop.create_task(self._dial(peer)))
        self._tasks.append(self.loop.create_task(self._watch()))

    async def stop(self) -> None:
        """Close everything."""
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        for protocol in list(self._links.values()):
            protocol.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def handshake(self, expected: str | None) -> link.Handshake:
        """Begin an introduction."""
        config = self._config
        own = link.Hello(
            version=link.LINK_VERSION,
            cluster=config.cluster,
            node=config.node_id,
            config_hash=config.config_hash,
            disk_id=self.disks.own,
            rejoining=self.node.replica.rejoining or self.disks.is_replacement,
            nonce=os.urandom(link.NONCE_BYTES),
        )
        return link.Handshake(own, config.peer_secret.encode(), expected)

    def send(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a frame on the current link to a peer."""
        protocol = self._links.get(peer)
        return protocol is not None and protocol.send(kind, payload)

    def flush(self) -> None:
        """Let the frames of all links leave now."""
        for protocol in self._links.values():
            protocol.flush()

    def established(self, protocol: PeerProtocol) -> None:
        """A member proved itself: this connection replaces the one before."""
        assert protocol.peer is not None
        if protocol.peer not in self._config.members:
            raise ProtocolError(f"{protocol.peer} is no member")
        previous = self._links.pop(protocol.peer, None)
        if previous is not None:
            self.node.peer_down(protocol.peer)
            previous.close()
        self._links[protocol.peer] = protocol
        self.node.peer_up(protocol.peer)

    def ended(self, protocol: PeerProtocol) -> None:
        """A connection is gone."""
        if protocol.peer is not None and self._links.get(protocol.peer) is protocol:
            del self._links[protocol.peer]
            self.node.peer_down(protocol.peer)

    def refused(self, reason: str) -> None:
        """We and another member do not belong together.

        A node that does not serve yet refuses to start; one that serves goes on without the link.
        """
        if not self.node.origin.up:
            self.node.fatal(f"refusing to start: {reason}")
        else:
            self.complain(f"refused a link: {reason}")

    def complain(self, line: str) -> None:
        """Log what may happen at every attempt, but not at every attempt."""
        now_s = self.loop.time()
        self._complained = {
            known: at_s
            for known, at_s in self._complained.items()
            if now_s - at_s < COMPLAINT_PERIOD_S
        }
        if line not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained[line] = now_s
            self.log(line)

    async def _dial(self, peer: str) -> None:
        """Keep a link to a peer."""
        host, port = split_address(self._config.peer_address(peer))
        pause_s = DIAL_PAUSE_S
        while True:
            begun_s = self.loop.time()
            protocol = PeerProtocol(self, peer)
            factory = partial(cast, asyncio.Protocol, protocol)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    await self.loop.create_connection(factory, host, port)
                await protocol.closed
            lasted = self.loop.time() - begun_s > DIAL_PAUSE_MAX_S
            pause_s = DIAL_PAUSE_S if lasted else min(2 * pause_s, DIAL_PAUSE_MAX_S)
            await asyncio.sleep(pause_s)

    async def _watch(self) -> None:
        """Close links on which nothing arrives; half-open connections are found so."""
        while True:
            before_s = self.loop.time()
            await asyncio.sleep(IDLE_MAX_S / 3)
            if self.loop.time() - before_s > IDLE_MAX_S / 2:
                continue  # this loop stood still: input may be waiting
            for protocol in list(self._links.values()):
                if self.loop.time() - protocol.heard_at_s > IDLE_MAX_S:
                    self.log(f"nothing from {protocol.peer} for {IDLE_MAX_S:.0f} s")
                    protocol.close()
