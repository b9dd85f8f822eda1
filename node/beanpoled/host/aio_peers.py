"""Peer links on asyncio: the sockets under `link`, and when members are dialed.

Of two members the one with the smaller id dials, so there is one connection for each pair. A link
on which nothing arrives for too long, or no complete frame, is closed and dialed again.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from beanpole.addresses import split_address
from beanpole.errors import ProtocolError
from beanpoled.config.node import NodeConfig
from beanpoled.host.dials import SILENT, Dialer, DialPauses, why
from beanpoled.host.seam import DEBUG, WARNING, Log
from beanpoled.host.sockets import Failed, bind
from beanpoled.host.tasks import watched
from beanpoled.host.tls import TlsAcceptor
from beanpoled.links import link
from beanpoled.links.admission import REFUSE, WAIT
from beanpoled.trust.certificates import names_in
from beanpoled.trust.handshakes import OF_ANOTHER, WORDS
from beanpoled.trust.proofs import NONCE_BYTES
from beanpoled.trust.trust import Trust
from beanpoled.turn.introductions import Introductions
from beanpoled.turn.routing import Router

# The limit of bytes in a link's output: above it `send` returns False, and the sender retries
# later.
OUTPUT_BYTES_MAX: Final = 32 * 1024 * 1024
# A link without a byte for this long is dead: heartbeats come every 50 ms. With a longer
# `heartbeat_ms` it is dead after IDLE_HEARTBEATS periods.
IDLE_MAX_S: Final = 3.0
IDLE_HEARTBEATS: Final = 3
# The same for complete frames: one with a corrupted length swallows everything that follows. The
# largest frame, 16 MiB, takes longer only below 14 Mbit/s.
FRAME_MAX_S: Final = 10.0
DIAL_TIMEOUT_S: Final = 2.0
# The same complaint is logged once in this time, and at most this many different complaints.
COMPLAINT_PERIOD_S: Final = 30.0
COMPLAINTS_MAX: Final = 100
# No member's introduction takes longer than this.
HELLO_TIMEOUT_S: Final = 5.0
# Connections to this node without a complete introduction, which takes a member milliseconds. One
# more ends the oldest: strangers must neither take all file descriptors nor keep members out.
STRANGERS_MAX: Final = 128


class PeerProtocol:
    """One connection to or from another member.

    An `asyncio.Protocol` in all but name: a compiled class cannot inherit from it.
    """

    def __init__(self, links: "PeerLinks", expected: str | None) -> None:
        self._links = links
        self._answers = expected is None
        self._reader = link.FrameReader()
        self._handshake = links.handshake(expected)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._out: list[bytes] = []
        self.peer: str | None = None  # once it has proved its identity
        self.waiting: link.Hello | None = None  # of a peer that was answered with WAIT
        self.received_at_s = 0.0  # loop time of the last byte
        self.framed_at_s = 0.0  # loop time of the last complete frame
        self.closed: asyncio.Future[None] = links.loop.create_future()
        self._has_ended = False
        self.failure = "closed the link"  # why it ended, in words that follow the address

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=OUTPUT_BYTES_MAX)
        if self._answers:
            self._links.add_stranger(self)
        self._write(self._handshake.start())
        self._timer = self._links.loop.call_later(HELLO_TIMEOUT_S, self._time_out)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        is_framed = False
        try:
            while not self._is_closing() and (frame := reader.next()) is not None:
                is_framed = True
                kind, payload = frame
                if kind == link.REFUSE:
                    # This side may believe the link to be up already: the other side decides later.
                    cause, reason = self._handshake.refusal(frame)
                    assert self._handshake.done is not None
                    self._links.refused(self._handshake.done.node, cause, reason)
                    self.close()
                    return
                if self.peer is not None:
                    self._links.router.receive(self.peer, kind, payload)
                else:
                    self._introduce(frame)
        except link.LinkRefused as refused:  # one name for both would have one type when compiled
            self._count_refusal()
            self._links.refused(refused.node, refused.cause, str(refused))
            self.close(refused.cause, str(refused))
        except ProtocolError as error:
            self._count_refusal()
            self.failure = f"answers, but {error}"
            self._links.complain(f"link to {self.peer or 'an unknown node'} closed: {error}")
            self.close()
        except OSError as failure:
            if self.peer is not None:
                raise Failed(str(failure)) from failure
            # A member's disk id cannot be stored: it dials again.
            self._links.complain(f"a link cannot be made: {failure.strerror}")
            self.close()
        else:
            self.received_at_s = self._links.loop.time()
            if is_framed:
                self.framed_at_s = self.received_at_s

    def _count_refusal(self) -> None:
        if self._handshake.refusal_name:
            self._links.trust.refused(self._handshake.refusal_name)

    def _time_out(self) -> None:
        """End a link that is not introduced yet."""
        if self._handshake.done is None:
            self.failure = SILENT
        self.close()

    def _is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def _introduce(self, frame: link.Frame) -> None:
        transport = self._transport
        assert transport is not None
        answer = self._handshake.receive(frame)
        if answer:
            self._write(answer)
        hello = self._handshake.done
        if hello is None or self._transport is None:
            return
        self._links.forget_stranger(self)
        if self._links.trust.of_peers is not None and hello.node not in names_in(
            transport.get_extra_info("peercert") or {}
        ):
            self._links.trust.handshakes.refused(OF_ANOTHER, "a node", self._links.loop.time())
            raise ProtocolError(f"{WORDS[OF_ANOTHER]}: {hello.node} is not among its names")
        if self._handshake.is_old:
            self._links.trust.took_old(hello.node)
        introductions = self._links.introductions
        own = self._handshake.own
        verdict = introductions.meet(hello) if introductions.is_current(own) else None
        if verdict is None or not introductions.is_current(own):
            self.close()  # this disk's identity has changed meanwhile: redo the hello
            return
        if verdict.kind == REFUSE:
            self.close(verdict.cause, verdict.reason)
            return
        if verdict.kind == WAIT:
            # The timer ends the link, so that a peer that is gone is not considered present for
            # long.
            self.waiting = hello
            self._links.add_waiting(self)
            return
        if self._timer is not None:
            self._timer.cancel()
        self._reader.size_max = link.FRAME_MAX_BYTES
        self.peer = hello.node
        self.received_at_s = self.framed_at_s = self._links.loop.time()
        self._links.established(self)

    def eof_received(self) -> bool:
        return False  # a half-closed link is useless: its transport closes

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._links.forget_stranger(self)
        if self._timer is not None:
            self._timer.cancel()
        if not self.closed.done():
            self.closed.set_result(None)
        if not self._has_ended:
            self._has_ended = True
            self._links.ended(self)

    def give_up(self) -> None:
        """End the link of a dial that has failed; no effect on one that has ended.

        A dial that is cancelled after `connection_made` and before its end closes the socket, but
        uvloop then calls no `connection_lost`, and its transport does not tell that it is closed.
        """
        transport = self._transport
        self.connection_lost(None)
        if transport is not None:
            transport.abort()

    def send(self, kind: int, payload: bytes) -> bool:
        """Send a frame; return False if the output is full or the link is closing.

        All frames of one turn leave in one write: to each side, a packet costs ten times as much as
        a frame.
        """
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() > OUTPUT_BYTES_MAX:
            return False
        if not self._out and not self._links.in_turn:
            self._links.loop.call_soon(self.flush)
        self._out.append(link.encode_frame(kind, payload))
        return True

    def flush(self) -> None:
        """Write the frames that were sent since the last flush."""
        out, self._out = self._out, []
        if out and not self._is_closing():
            self._write(out[0] if len(out) == 1 else b"".join(out))

    def _write(self, data: bytes) -> None:
        """Write to the socket; a closed one, to which no write is possible, is a lost link."""
        assert self._transport is not None
        try:
            self._transport.write(data)
        except RuntimeError as error:
            self._links.complain(f"link to {self.peer or 'an unknown node'} is lost: {error}")
            self._transport = None
            # Not now: the caller may be in a loop over the links, or in the middle of a turn.
            self._links.loop.call_soon(self.connection_lost, None)

    def close(self, cause: int = 0, reason: str = "") -> None:
        """End the link, and send the reason to the other side if there is one."""
        if reason and self.peer is None and self._transport is not None:
            self._write(link.encode_refusal(cause, reason))
            if self._transport is not None:
                self._transport.close()
        elif self._transport is not None:
            self._transport.abort()


class PeerLinks:
    """All links of this node.

    Attributes:
        in_turn: whether a turn is running, at whose end frames leave.
    """

    def __init__(
        self,
        config: NodeConfig,
        loop: asyncio.AbstractEventLoop,
        log: Log,
        trust: Trust,
    ) -> None:
        self.loop = loop
        self.log = log
        self.trust = trust
        self.router: Router
        self.in_turn = False
        self.introductions: Introductions
        self._config = config
        self._links: dict[str, PeerProtocol] = {}
        self._strangers: dict[PeerProtocol, None] = {}  # not introduced; the oldest first
        self._waiting: dict[PeerProtocol, None] = {}  # answered with WAIT
        self._server: asyncio.Server | TlsAcceptor | None = None
        self._socket: socket.socket | None = None  # of the listener for nodes, with TLS
        self._tasks: list[asyncio.Task[None]] = []
        self._dialer = Dialer(loop, trust)
        self._complained: dict[str, float] = {}  # line -> when it was logged
        self._failures: dict[str, str] = {}  # why the last attempt to reach a member failed

    async def start(self, router: Router, introductions: Introductions) -> None:
        """Listen, and dial the members that this node dials.

        Raises:
            OSError: the port is taken.
        """
        self.router = router
        self.introductions = introductions
        address, certificates = self._config.peer_listen, self.trust.of_peers
        if certificates is None:
            self._server = await self.loop.create_server(self._answering, sock=bind(address))
        else:
            self._socket = bind(address, listen=True)
            handshakes = self.trust.handshakes
            room = handshakes.of_nodes
            self._server = TlsAcceptor(
                self.loop, self._socket, certificates, handshakes, room, self._answering, "a node"
            )
        for peer in self._config.peers:
            if self._config.node_id < peer:
                self._tasks.append(watched(self.loop, self._dial(peer)))
        self._tasks.append(watched(self.loop, self._watch()))

    def _answering(self) -> asyncio.Protocol:
        return cast(asyncio.Protocol, PeerProtocol(self, None))

    async def stop(self) -> None:
        """Close all links and the listener."""
        self._dialer.stop()
        for task in self._tasks:
            task.cancel()
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()
        for protocol in [*self._links.values(), *self._waiting]:
            protocol.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def handshake(self, expected: str | None) -> link.Handshake:
        """Begin an introduction."""
        own = self.introductions.hello(os.urandom(NONCE_BYTES))
        return link.Handshake(own, self.trust.secret.value, expected, self.trust.takes_old)

    def renew(self) -> None:
        """Redo the introductions that ended with WAIT: this disk's identity has changed."""
        for protocol in list(self._waiting):
            protocol.close()

    def send(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a frame on the current link to a peer."""
        protocol = self._links.get(peer)
        return protocol is not None and protocol.send(kind, payload)

    def words(self, peer: str) -> str:
        """Describe why there is no link to a member, or that there is one."""
        if peer in self._links or any(
            protocol.waiting is not None and protocol.waiting.node == peer
            for protocol in self._waiting
        ):
            return "is connected"
        if peer < self._config.node_id:
            return "has made no link to this node"
        address = self._config.peer_address(peer)
        return f"{address} {self._failures.get(peer, 'has not answered yet')}"

    def take_turn(self, turn: Callable[[], None]) -> None:
        """Run a turn now; its frames leave at its end, without another step of the loop."""
        self.in_turn = True
        try:
            turn()
        finally:
            self.in_turn = False
        self.flush()  # not for a turn that failed: most such failures stop the node

    def flush(self) -> None:
        """Write the pending frames of all links now."""
        for protocol in self._links.values():
            protocol.flush()

    def add_stranger(self, protocol: PeerProtocol) -> None:
        """Register a connection whose other side has not proved itself yet."""
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.close()
        self._strangers[protocol] = None

    def forget_stranger(self, protocol: PeerProtocol) -> None:
        """Note that the other side has proved itself, or is gone."""
        self._strangers.pop(protocol, None)

    def established(self, protocol: PeerProtocol) -> None:
        """Register the link of a member that proved itself, in place of the previous link."""
        assert protocol.peer is not None
        previous = self._links.pop(protocol.peer, None)
        if previous is not None:
            self.router.link_down(protocol.peer)
            previous.close()
        self._links[protocol.peer] = protocol
        self.router.link_up(protocol.peer)
        self.log(f"link to {protocol.peer} is up", DEBUG)

    def add_waiting(self, protocol: PeerProtocol) -> None:
        """Register the connection of a member that was answered with WAIT."""
        self._waiting[protocol] = None

    def ended(self, protocol: PeerProtocol) -> None:
        """Handle the end of a connection."""
        if protocol.waiting is not None:
            self._waiting.pop(protocol, None)
            self.introductions.parted(protocol.waiting)
        if protocol.peer is not None and self._links.get(protocol.peer) is protocol:
            del self._links[protocol.peer]
            self.router.link_down(protocol.peer)
            self.log(f"link to {protocol.peer} is gone", DEBUG)

    def refused(self, peer: str, cause: int, reason: str) -> None:
        """Handle a refusal between this node and another member, by either side."""
        if peer in self._config.members:
            self.introductions.refused(peer, cause, reason)
        else:
            self.complain(f"refused a link: {reason}")

    def complain(self, line: str) -> None:
        """Log a complaint that every attempt may cause, but not every time."""
        now_s = self.loop.time()
        self._complained = {
            known: at_s
            for known, at_s in self._complained.items()
            if now_s - at_s < COMPLAINT_PERIOD_S
        }
        if line not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained[line] = now_s
            self.log(line, WARNING)

    async def _dial(self, peer: str) -> None:
        """Keep a link to a peer up."""
        host, port = split_address(self._config.peer_address(peer))
        pauses = DialPauses()
        while True:
            begun_s = self.loop.time()
            protocol = PeerProtocol(self, peer)
            factory = partial(cast, asyncio.Protocol, protocol)
            try:
                async with asyncio.timeout(DIAL_TIMEOUT_S):
                    await self._dialer.connect(factory, peer, host, port)
                await protocol.closed
                self._failures[peer] = protocol.failure
            except OSError as error:
                self._failures[peer] = why(error)
            finally:
                protocol.give_up()
            await asyncio.sleep(pauses.after(self.loop.time() - begun_s))

    async def _watch(self) -> None:
        """Close links on which nothing arrives; this detects half-open connections."""
        while True:
            before_s = self.loop.time()
            await asyncio.sleep(IDLE_MAX_S / 3)
            self.close_silent(self.loop.time() - before_s)

    def close_silent(self, passed_s: float) -> None:
        """Close links on which nothing arrives; the caller has slept for `passed_s`."""
        if passed_s > IDLE_MAX_S / 2:
            return  # this loop was stopped: input may be waiting
        now_s = self.loop.time()
        idle_max_s = max(IDLE_MAX_S, IDLE_HEARTBEATS * self._config.heartbeat_ms / 1000)
        frame_max_s = max(FRAME_MAX_S, idle_max_s)
        for protocol in list(self._links.values()):
            if now_s - protocol.received_at_s > idle_max_s:
                self.log(f"nothing from {protocol.peer} for {idle_max_s:.0f} s", WARNING)
            elif now_s - protocol.framed_at_s > frame_max_s:
                self.log(f"no whole frame from {protocol.peer} for {frame_max_s:.0f} s", WARNING)
            else:
                continue
            protocol.failure = SILENT
            protocol.close()
