"""The second implementation of `beanpoled.host.Host`: one simulated process.

Belongs here: the loop of one node (input, timers, calls at the end of a turn, pauses, death), its
clocks and its ends of links and files. What the world around it does is in `world`.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from beanpole.errors import ProtocolError
from beanpole.replication.consensus import Sink
from beanpole.storage.files import LANE_LOG, Done, Handle, Work
from beanpoled.disks import Disks
from beanpoled.eventlog.records import Batch, Events
from beanpoled.frames import RAFT
from beanpoled.host import ProcessFacts
from beanpoled.link import LINK_VERSION, NONCE_BYTES, Hello
from beanpoled.node import Node
from tests.sim.cluster import Violation
from tests.sim.disk import Disk
from tests.sim.event_log import encode

if TYPE_CHECKING:
    from tests.sim.wire import Wire
    from tests.sim.world import World

FETCH_STEP_S: Final = 0.002
SINK_BACKLOG_BYTES_MAX: Final = 256 * 1024
RELINK_S: Final = 0.1

Action = Callable[[], None]


class ProcessExit(BaseException):
    """The process ended itself. No handler of the node may catch it, as none catches os._exit."""


class SimTimer:
    """A call that is due later."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """Do not make the call."""
        self.cancelled = True


class HostFiles:
    """A node's disk: work is finished in the node's loop, and free space can be scarce."""

    def __init__(self, host: "SimHost", disk: Disk) -> None:
        self._host = host
        self._disk = disk
        self.open: Callable[..., Handle] = disk.open
        self.list = disk.list
        self.exists = disk.exists
        self.make_directory = disk.make_directory
        self.rename = disk.rename
        self.remove = disk.remove
        self.remove_slowly = disk.remove_slowly
        self.sync_directory = disk.sync_directory

    def settle(self) -> None:
        """Nothing is written beside the lanes here."""

    def free_bytes(self, path: str) -> int:
        """Return what the world left on this disk."""
        return self._host.world.free_bytes[self._host.name]

    def submit(self, work: Work, done: Done, lane: int = LANE_LOG) -> None:
        """Run the work after the disk's latency; `done` waits while the process is paused."""
        enter = self._host.enter
        self._disk.submit(work, lambda error: enter(partial(done, error)), lane)


class SimHost:
    """One process: it lives from its start to its crash, in one loop."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.end = ""  # why the process ended itself
        self.clients_open = False
        self.links: set[str] = set()
        self.wires: dict[Wire, None] = {}
        self.node: Node
        self.disks: Disks
        self.files = HostFiles(self, world.disks[name])
        self.ready = False  # its replica has read the disk
        self.pauses = 0
        self.paused_until_s = 0.0
        self._paused_from_s: float | None = None
        self._stood_s = 0.0
        self._begun_s = world.clock.now_s
        self._dice = random.Random(world.dice.random())
        self._uptime_s = self._dice.random() * 1e6
        self.rate = world.rates[name]
        self._ready: deque[Action] = deque()
        self._ready_is_due = False
        self._inbox: deque[Action] = deque()
        self._exiting = False

    # --- the loop -------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether the process stands still, as under SIGSTOP."""
        return self.world.clock.now_s < self.paused_until_s

    def enter(self, action: Action) -> None:
        """Let something happen to the process: at once, or after its pause, in order."""
        if not self.alive:
            return
        if self.paused or self._inbox:
            self._inbox.append(action)
        else:
            self.guard(action)

    def guard(self, action: Action) -> None:
        """Run one callback of the loop; the process may end in it."""
        try:
            action()
        except ProcessExit:
            self.world.ended(self)
        else:
            if self._exiting:
                self.world.ended(self)

    def pause(self, seconds: float) -> None:
        """Stop the process for a while."""
        until_s = self.world.clock.now_s + seconds
        if until_s > self.paused_until_s:
            if not self.paused:
                self._count_pause()
                self.pauses += 1
                self._paused_from_s = self.world.clock.now_s
            self.paused_until_s = until_s
            self.world.clock.at(until_s, self._go_on)

    def resume(self) -> None:
        """End the pause."""
        self.paused_until_s = self.world.clock.now_s
        self.world.clock.after(0.0, self._go_on)

    @property
    def ran_s(self) -> float:
        """How long the process ran in its life, pauses left out."""
        self._count_pause()
        return self.world.clock.now_s - self._begun_s - self._stood_s

    def _count_pause(self) -> None:
        if self._paused_from_s is not None and not self.paused:
            self._stood_s += self.paused_until_s - self._paused_from_s
            self._paused_from_s = None

    def _go_on(self) -> None:
        if not self.alive or self.paused:
            return
        self._turn()  # what the loop was about to call when it was stopped
        while self._inbox and self.alive and not self.paused:
            self.guard(self._inbox.popleft())

    def _turn(self) -> None:
        self._ready_is_due = False
        if self.paused:
            return  # `_go_on` comes back to it
        for _ in range(len(self._ready)):
            if self.alive:
                self.guard(self._ready.popleft())
        if self._ready and self.alive:
            self._turn_soon()

    def _turn_soon(self) -> None:
        if not self._ready_is_due:
            self._ready_is_due = True
            self.world.clock.after(self.world.turn_s * self._dice.random(), self._turn)

    # --- Host: time -----------------------------------------------------------------------------

    def now_us(self) -> int:
        """Return the process's clock, which runs at its own rate."""
        return int((self.world.clock.now_s * self.rate + self._uptime_s) * 1e6)

    def wall_us(self) -> int:
        """Return the wall clock, which may be wrong."""
        return int((self.world.clock.now_s + self.world.walls_s[self.name]) * 1e6)

    def random(self) -> float:
        """Return a seeded number."""
        return self._dice.random()

    def call_soon(self, callback: Action) -> None:
        """Call after the input that is there."""
        self._ready.append(callback)
        self._turn_soon()

    def call_later(self, delay_us: int, callback: Action) -> SimTimer:
        """Call when the process's clock says so."""
        timer = SimTimer()

        def fire() -> None:
            if not timer.cancelled:
                callback()

        # A microsecond more, so that rounding never makes it early.
        self.world.clock.after((delay_us + 1) / 1e6 / self.rate, lambda: self.enter(fire))
        return timer

    # --- Host: peers ----------------------------------------------------------------------------

    def send_peer(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a frame if there is a link."""
        if peer not in self.links:
            return False
        if kind == RAFT:
            self.world.oracle.sent(self.name, payload)
        return self.world.network.send(self.name, peer, bytes((kind,)) + payload)

    def flush_peers(self) -> None:
        """Nothing is collected here: every frame travels alone."""

    def connected(self, peer: str) -> None:
        """Note a new link, as `Receiver`."""
        self.enter(partial(self._connected, peer))

    def disconnected(self, peer: str) -> None:
        """Note that the link is gone, as `Receiver`."""
        self.enter(partial(self._disconnected, peer))

    def receive(self, peer: str, message: bytes) -> None:
        """Take a frame, as `Receiver`."""
        self.enter(partial(self._received, peer, message))

    def _connected(self, peer: str) -> None:
        other = self.world.hosts.get(peer)
        if other is None:
            return  # it died meanwhile, and the end of the link is on the way
        try:
            refusal = self.disks.refuses(other.hello())
        except OSError:  # it cannot be remembered: no link, and it is tried again
            self.world.clock.after(RELINK_S, lambda: self.world.network.reset(self.name, peer))
            return
        if refusal is not None:
            raise Violation(f"{self.name} refuses {peer}: {refusal}")
        self.links.add(peer)
        self.node.peer_up(peer)

    def _disconnected(self, peer: str) -> None:
        if peer in self.links:
            self.links.discard(peer)
            self.node.peer_down(peer)

    def _received(self, peer: str, message: bytes) -> None:
        if peer not in self.links:
            return
        try:
            self.node.peer_frame(peer, message[0], message[1:])
        except ProtocolError as error:
            raise Violation(f"{self.name} refuses a frame of {peer}: {error}") from error

    def hello(self) -> Hello:
        """Introduce this node."""
        config = self.node.config
        return Hello(
            version=LINK_VERSION,
            cluster=config.cluster,
            node=self.name,
            config_hash=config.config_hash,
            disk_id=self.disks.own,
            rejoining=self.node.replica.rejoining or self.disks.is_replacement,
            nonce=bytes(NONCE_BYTES),
        )

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Stream the peer's snapshot at exactly `index` over virtual time."""
        world = self.world
        source = world.hosts.get(peer)
        found = None if source is None else source.node.replica.snapshot_source()
        chunks = None if found is None or found[0].index != index else found[1]
        world.counts["fetches"] += 1

        def later(step: Action) -> None:
            world.clock.after(FETCH_STEP_S, lambda: self.enter(step))

        def step() -> None:
            if chunks is None or source is None or not source.alive or peer not in self.links:
                done(f"{peer} has nothing at {index}, or is gone")
            elif source.paused or sink.backlog_bytes > SINK_BACKLOG_BYTES_MAX:
                later(step)
            else:
                chunk = next(chunks, None)
                if chunk is None:
                    done(None)
                else:
                    sink.write(chunk)
                    later(step)

        later(step)

    # --- Host: events ---------------------------------------------------------------------------

    def encode_events(self, events: Events, within_us: int = 0) -> list[Batch]:
        """Turn events into batches of a plain kind."""
        return encode(events)

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """Nothing in the simulation reads events by their time."""
        raise AssertionError("nobody reads events by their time here")

    # --- Host: the process ----------------------------------------------------------------------

    def open_clients(self) -> None:
        """Accept clients."""
        self.clients_open = True

    def close_clients(self) -> None:
        """Accept no clients."""
        self.clients_open = False

    def log(self, line: str) -> None:
        """Keep a line for who looks at a failing seed."""
        self.world.log(f"{self.name} {line}")

    def process(self) -> ProcessFacts:
        """Return the facts of no process."""
        return ProcessFacts(1, 0.0, 0.0, b"sim", b"sim", b"sim")

    def exit(self) -> None:
        """End in order, after the present callback."""
        self._exiting = True

    def fatal(self, reason: str) -> None:
        """End at once."""
        self.end = reason
        raise ProcessExit
