"""The real links of a node, `beanpoled.host.aio_peers`, over simulated connections.

Introductions, refusals, frames and their checksums, complaints, and the choice among duplicate
links are real. Only asyncio's part is simulated: the loop's clock, transports, and dialing.
`network` decides what arrives and when.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from beanpoled.host.aio_peers import (
    IDLE_MAX_S,
    OUTPUT_BYTES_MAX,
    PeerLinks,
    PeerProtocol,
)
from beanpoled.host.dials import DialPauses
from beanpoled.host.seam import Timer
from beanpoled.links import link
from beanpoled.trust.trust import Trust

if TYPE_CHECKING:
    from tests.sim.host import SimHost

# Offset of the kind in a frame.
KIND_AT: Final = 8


def is_introduction(data: bytes) -> bool:
    """Whether a write holds a hello or its proof, which differ in every run."""
    return data[KIND_AT] >= link.HELLO


class Closed:
    """The future of the end of a connection."""

    def __init__(self) -> None:
        self._ended = False
        self.then: Callable[[], None] | None = None

    def done(self) -> bool:
        """Whether the connection is gone."""
        return self._ended

    def set_result(self, result: None) -> None:
        """Note that the connection is gone."""
        self._ended = True
        if self.then is not None:
            self.then()


class SimLoop:
    """The part of asyncio's loop that links use."""

    def __init__(self, host: "SimHost") -> None:
        self._host = host

    def time(self) -> float:
        """Return the process's clock."""
        return self._host.now_us() / 1e6

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after the current callback: links defer only writes this way."""
        self._host.call_next(callback)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call after a delay."""
        return self._host.call_later(int(delay_s * 1e6), callback)

    def create_future(self) -> Closed:
        """Return the future of the end of a connection."""
        return Closed()


class SimTransport:
    """One end of a connection between two nodes."""

    def __init__(self, host: "SimHost", peer: str, generation: int) -> None:
        self._host = host
        self._peer = peer
        self._generation = generation
        self._closing = False

    def set_write_buffer_limits(self, high: int) -> None:
        """Do nothing: the network has its own limit."""

    def get_write_buffer_size(self) -> int:
        """Return the bytes in flight, or too many for any link at the network's limit."""
        network = self._host.world.network
        size = network.in_flight(self._host.name, self._peer)
        return size if size <= network.full_bytes else OUTPUT_BYTES_MAX + 1

    def is_closing(self) -> bool:
        """Whether nothing can be written any more."""
        return self._closing or not self._is_there()

    def get_extra_info(self, name: str) -> None:
        """Return None: there is no TLS between simulated nodes, and no socket."""

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if not self.is_closing():
            self._host.world.network.send(self._host.name, self._peer, data, forced=True)

    def close(self) -> None:
        """End the connection when everything written has arrived."""
        self._end(self._host.world.network.last_arrival_s(self._host.name, self._peer))

    def abort(self) -> None:
        """End the connection now."""
        self._end(0.0)

    def _is_there(self) -> bool:
        network = self._host.world.network
        return network.generation(self._host.name, self._peer) == self._generation

    def _end(self, at_s: float) -> None:
        """Break the link in a callback of its own."""
        if not self._closing:
            self._closing = True
            self._host.world.clock.at(at_s, self._break)

    def _break(self) -> None:
        if self._is_there():
            self._host.world.network.reset(self._host.name, self._peer)


class SimLinks(PeerLinks):
    """All links of one node."""

    def __init__(self, host: "SimHost") -> None:
        config = host.node.context.config
        trust = Trust(config.cluster, config.node_id, config.peer_secret, host.log)
        super().__init__(config, cast(Any, SimLoop(host)), host.log, trust)
        self.router = host.node.router
        self.introductions = host.node.introductions
        self._host = host
        self._ends: dict[str, PeerProtocol] = {}  # by peer: the present connection
        self._dialed: dict[str, PeerProtocol] = {}  # by peer: connections that are being made

    def begin(self) -> None:
        """Dial the members that this node dials, and watch for silent links."""
        for peer in self._config.peers:
            if self._config.node_id < peer:
                _Dialer(self, peer).dial()
        self._watch_soon()

    @property
    def up(self) -> frozenset[str]:
        """The members with which a link is ready."""
        return frozenset(self._links)

    def complain(self, line: str) -> None:
        """Report a complaint to the world: healthy members have none. See `PeerLinks`."""
        self._host.world.complained(self._host, line)
        super().complain(line)

    # --- the network ------------------------------------------------------------------------------

    def connected(self, peer: str, generation: int) -> None:
        """Handle a new connection, which either side made."""
        protocol = self._dialed.pop(peer, None) or PeerProtocol(self, None)
        self._ends[peer] = protocol
        protocol.connection_made(cast(Any, SimTransport(self._host, peer, generation)))

    def disconnected(self, peer: str) -> None:
        """Handle the end of a connection."""
        protocol = self._ends.pop(peer, None)
        if protocol is not None:
            protocol.connection_lost(None)

    def received(self, peer: str, data: bytes) -> None:
        """Handle bytes from a peer."""
        protocol = self._ends.get(peer)
        if protocol is not None:
            protocol.data_received(data)

    def dial(self, peer: str, protocol: PeerProtocol, failed: Callable[[], None]) -> None:
        """Make a connection."""
        self._dialed[peer] = protocol

        def refuse() -> None:
            self._dialed.pop(peer, None)
            failed()

        host = self._host
        host.world.network.dial(host.name, peer, lambda: host.enter(refuse))

    def pause(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call after a delay."""
        self._host.call_later(int(seconds * 1e6), callback)

    def _watch_soon(self) -> None:
        before_s = self.loop.time()

        def watch() -> None:
            self.close_silent(self.loop.time() - before_s)
            self._watch_soon()

        self.pause(IDLE_MAX_S / 3, watch)


class _Dialer:
    """Keeps a connection to one peer, as `PeerLinks._dial` does."""

    def __init__(self, links: SimLinks, peer: str) -> None:
        self._links = links
        self._peer = peer
        self._pauses = DialPauses()
        self._begun_s = 0.0

    def dial(self) -> None:
        """Try to make a connection."""
        links = self._links
        self._begun_s = links.loop.time()
        protocol = PeerProtocol(links, self._peer)
        cast(Closed, protocol.closed).then = self._again
        links.dial(self._peer, protocol, self._again)

    def _again(self) -> None:
        pause_s = self._pauses.after(self._links.loop.time() - self._begun_s)
        self._links.pause(pause_s, self.dial)
