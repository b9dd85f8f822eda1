"""The simulator's implementation of `beanpoled.host.seam.Host`: one simulated process.

Belongs here: the loop of one node (input, timers, calls at the end of a turn, pauses, death), its
clocks and its ends of links and files. The world around a node is in `world`.
"""

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from beanpole.replication.consensus import Sink
from beanpole.storage.files import LANE_LOG, Done, Handle, Work
from beanpoled.config.protocols import FIRST
from beanpoled.eventlog.events import EventBatch, Events
from beanpoled.host.seam import UNSYNCED, ProcessStats
from beanpoled.links.frames import RAFT
from beanpoled.turn.node import Node
from tests.sim.cluster import Violation
from tests.sim.costs import CALLBACK_US, FRAME_BYTE_US, GRAIN_S, METER
from tests.sim.disk import Disk, Killed
from tests.sim.event_log import encode
from tests.sim.links import SimLinks
from tests.sim.streams import Fetch

if TYPE_CHECKING:
    from tests.sim.wire import Wire
    from tests.sim.world import World


Action = Callable[[], None]


class ProcessExit(BaseException):
    """The process ended itself. As with os._exit, no handler of the node may catch it."""


# Any of these that no node has caught. In a process of a pool the ends of nodes, too, have to be
# caught by name: the pool would wait for ever for a process that they end.
ERRORS: Final = (Exception, ProcessExit, Killed)


class SimTimer:
    """A call that is due later."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the call."""
        self.cancelled = True


class HostFiles:
    """A node's files: completions run in the node's loop, and free space can be scarce."""

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
        """Do nothing: all writes go through the lanes."""

    def free_bytes(self, path: str) -> int:
        """Return the free space that the world has set, limited by the capacity of the disk."""
        return min(self._host.world.free_bytes[self._host.name], self._disk.free_bytes(path))

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
        self.open_protocols: set[str] = set()
        self.wires: dict[Wire, None] = {}
        self.node: Node
        self.peer_links: SimLinks
        self.files = HostFiles(self, world.disks[name])
        world.disks[name].killed = lambda: world.killed(self)
        self.joined = False  # it is part of the network
        self.ready = False  # its replica has read the disk
        self.pauses = 0
        self.paused_until_s = 0.0
        self._paused_from_s: float | None = None
        self._paused_s = 0.0
        self._begun_s = world.clock.now_s
        self._dice = random.Random(world.dice.random())
        self._uptime_s = self._dice.random() * 1e6
        self.rate = world.rates[name]
        self._ready: deque[Action] = deque()
        self._ready_is_due = False
        self._next: deque[Action] = deque()
        self._inbox: deque[Action] = deque()
        self._free_s = 0.0  # when the loop has finished the work it was charged
        self._exiting = False

    # --- the loop -------------------------------------------------------------------------------

    @property
    def paused(self) -> bool:
        """Whether the process stands still, as under SIGSTOP."""
        return self.world.clock.now_s < self.paused_until_s

    def enter(self, action: Action) -> None:
        """Run an action in the process: at once, or in order after its pause or its busy time."""
        if not self.alive:
            return
        if self.paused or self._inbox or self._busy:
            self._inbox.append(action)
        else:
            self.guard(action)

    def guard(self, action: Action) -> None:
        """Run one callback of the loop; the process may end in it."""
        METER.take()
        try:
            action()
            while self._next:
                self._next.popleft()()
        except ProcessExit:
            self.world.ended(self)
        except Killed:
            self.world.killed(self)
        else:
            self._charge(METER.take() + CALLBACK_US)
            if self._exiting:
                self.world.ended(self)

    def _charge(self, us: float) -> None:
        """Keep the loop busy for the cost of a callback."""
        world = self.world
        if us > world.turn_us_max:
            raise Violation(
                f"one turn of {self.name} takes {us / 1000:.0f} ms, half of the smallest election "
                f"time-out is {world.turn_us_max / 1000:.0f} ms"
            )
        if world.slowness:
            now_s = world.clock.now_s
            self._free_s = max(self._free_s, now_s) + us * world.slowness / 1e6
            if self._busy:
                world.clock.at(self._free_s, self._go_on)

    @property
    def _busy(self) -> bool:
        return self._free_s - self.world.clock.now_s > GRAIN_S

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
        """The time that the process ran in its life, in seconds, without its pauses."""
        self._count_pause()
        return self.world.clock.now_s - self._begun_s - self._paused_s

    def _count_pause(self) -> None:
        if self._paused_from_s is not None and not self.paused:
            self._paused_s += self.paused_until_s - self._paused_from_s
            self._paused_from_s = None

    def _go_on(self) -> None:
        if not self.alive or self.paused or self._busy:
            return
        self._turn()  # the calls that the loop was about to make when it stopped
        while self._inbox and self.alive and not (self.paused or self._busy):
            self.guard(self._inbox.popleft())

    def _turn(self) -> None:
        self._ready_is_due = False
        if self.paused or self._busy:
            return  # `_go_on` resumes here
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
        world = self.world
        now_s = max(world.clock.now_s, self._free_s) + METER.us * world.slowness / 1e6
        return int((now_s * self.rate + self._uptime_s) * 1e6)

    def wall_us(self) -> int:
        """Return the wall clock, which may be wrong."""
        return int((self.world.clock.now_s + self.world.walls_s[self.name]) * 1e6)

    def random(self) -> float:
        """Return a seeded random number."""
        return self._dice.random()

    def call_soon(self, callback: Action) -> None:
        """Call after the input that has arrived."""
        self._ready.append(callback)
        self._turn_soon()

    def take_turn(self, turn: Action) -> None:
        """Run a turn now; its frames leave at its end."""
        self.peer_links.take_turn(turn)

    def call_next(self, callback: Action) -> None:
        """Call when the current callback has ended."""
        self._next.append(callback)

    def call_later(self, delay_us: int, callback: Action) -> SimTimer:
        """Call after a delay of the process's own clock."""
        timer = SimTimer()

        def fire() -> None:
            if not timer.cancelled:
                callback()

        # One microsecond more, so that rounding never makes the call early.
        self.world.clock.after((delay_us + 1) / 1e6 / self.rate, lambda: self.enter(fire))
        return timer

    # --- Host: peers ----------------------------------------------------------------------------

    def send_peer(self, peer: str, kind: int, payload: bytes) -> bool:
        """Send a frame if there is a link."""
        if not self.peer_links.send(peer, kind, payload):
            return False
        if kind == RAFT:
            self.world.oracle.sent(self.name, payload)
        return True

    def link_words(self, peer: str) -> str:
        """Return a fixed text: nothing in the simulation reads it."""
        return "is not known"

    def flush_peers(self) -> None:
        """Let the frames of this turn leave now."""
        self.peer_links.flush()

    @property
    def clients_open(self) -> bool:
        """Whether clients of the first protocol are accepted."""
        return FIRST in self.open_protocols

    @property
    def links(self) -> frozenset[str]:
        """The members with which a link is ready."""
        return self.peer_links.up

    def connected(self, peer: str) -> None:
        """Note a new connection. See `Receiver`."""
        generation = self.world.network.generation(self.name, peer)
        self.enter(partial(self._connected, peer, generation))

    def disconnected(self, peer: str) -> None:
        """Note that a connection is gone. See `Receiver`."""
        self.enter(partial(self._disconnected, peer))

    def receive(self, peer: str, message: bytes) -> None:
        """Receive bytes. See `Receiver`."""
        self.enter(partial(self._received, peer, message))

    def _connected(self, peer: str, generation: int) -> None:
        self.peer_links.connected(peer, generation)

    def _disconnected(self, peer: str) -> None:
        self.peer_links.disconnected(peer)

    def _received(self, peer: str, message: bytes) -> None:
        METER.us += FRAME_BYTE_US * len(message)
        self.peer_links.received(peer, message)

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Stream the peer's snapshot at exactly `index` over virtual time."""
        Fetch(self, peer, index, sink, done)

    # --- Host: events ---------------------------------------------------------------------------

    def encode_events(self, events: Events, within_us: int = 0) -> list[EventBatch]:
        """Encode events as batches of a plain format."""
        return encode(events)

    def first_at_wall(self, payload: bytes, wall_us: int) -> int | None:
        """Fail: nothing in the simulation reads events by their time."""
        raise AssertionError("nobody reads events by their time here")

    # --- Host: the process ----------------------------------------------------------------------

    def open_clients(self, protocol: str) -> None:
        """Accept clients of a protocol."""
        self.open_protocols.add(protocol)

    def close_clients(self) -> None:
        """Stop accepting clients."""
        self.open_protocols.clear()

    def log(self, line: str, level: int = 0) -> None:
        """Keep a line, which is printed when a seed fails."""
        self.world.log(f"{self.name} {line}")

    def process(self) -> ProcessStats:
        """Return the figures of a process that does not exist."""
        return ProcessStats(1, 0.0, 0.0, b"sim", b"sim", b"sim")

    def exit(self, close: Callable[[], None] | None = None, words: str = "stopped") -> None:
        """End in order, after the current callback."""
        if close is not None:
            close()
        self.log(words)
        self._exiting = True

    def watch_disk(self, is_on: bool) -> None:
        """Do nothing: no process ends here."""

    def abandon(self) -> None:
        """End after the current callback, without a last sync."""
        self.log(UNSYNCED)
        self._exiting = True

    def fatal(self, reason: str) -> None:
        """End at once."""
        self.end = reason
        raise ProcessExit
