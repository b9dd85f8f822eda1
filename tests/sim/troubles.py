"""The faults of a storm: what happens to nodes, links, disks and clocks, and how often.

`verdicts` and `storm` check the state meanwhile and afterwards.
"""

import errno
import random
from dataclasses import dataclass
from functools import partial
from typing import Final

from beanpole.replication.pysyncobj.room import BALLAST_ROOM_BYTES
from tests.sim.cluster import Violation
from tests.sim.costs import allowed_s
from tests.sim.damage import flip
from tests.sim.host import SimHost
from tests.sim.world import WALL_S, World

LATENCY_S: Final = 0.0005
# A node whose log cannot be written ends within this time, unless it is paused or slow.
END_S: Final = 0.5
# A minority of the nodes may run while quorum is lost, for at most this long. Then they are paused,
# because an idle node costs as much processor time as a busy one.
ALONE_S: Final = 20.0


@dataclass(frozen=True)
class Faults:
    """How often each fault happens, per second."""

    crash: float = 0.2
    restart: float = 1.2
    blackout: float = 0.02
    stop: float = 0.04
    partition: float = 0.3
    heal: float = 0.8
    pause: float = 0.3
    freeze: float = 0.03
    slow: float = 0.4
    slow_disk: float = 0.2
    stall: float = 0.06
    disk_error: float = 0.06
    flip: float = 0.06
    lose_disk: float = 0.02
    transfer: float = 0.1
    compact: float = 0.3
    reset: float = 0.3
    wall: float = 0.2
    disk_low: float = 0.05
    drain: float = 0.08


def _transfer(leader: SimHost) -> None:
    """Let a leader transfer its leadership to any member."""
    leader.node.context.replica.transfer(None)


NAMES: Final = tuple(Faults.__dataclass_fields__)
CALM: Final = Faults(**dict.fromkeys(NAMES, 0.0))


class Troubles:
    """All faults of one world."""

    def __init__(self, world: World, dice: random.Random, faults: Faults) -> None:
        self.world = world
        self.dice = dice
        world.walls_move = dice.random() < 0.3
        self._rates = [(getattr(self, f"_{name}"), getattr(faults, name)) for name in NAMES]

    def strike(self, step_s: float) -> None:
        """Let a step pass: nodes with failed disks must have ended, and each fault may happen."""
        end_s = allowed_s(END_S, self.world.slowness)
        for name, host in sorted(self.world.hosts.items()):
            failed_s = self.world.disks[name].failed_s
            if host.paused or failed_s is None or host.paused_until_s > failed_s:
                continue
            if self.world.clock.now_s - failed_s > end_s:
                raise Violation(f"{name} goes on although its log could not be written")
        for fault, rate in self._rates:
            if self.dice.random() < rate * step_s:
                fault()

    def mend(self) -> None:
        """Repair the world, and start the nodes that are down."""
        world = self.world
        world.network.heal()
        world.network.slow.clear()
        world.network.full_bytes = 2**40
        for name in world.names:
            world.disks[name].hasten(LATENCY_S)
            world.disks[name].failing = None
            world.free_bytes[name] = 2**40
            host = world.hosts.get(name)
            if host is not None and host.paused:
                host.resume()
            if host is not None:
                self._drain_node(host, False)
        for name in world.names:
            if name not in world.hosts:
                world.start(name)

    def lose_quorum(self) -> float:
        """Lose the majority for hours; returns the seconds."""
        world, dice = self.world, self.dice
        seconds = dice.choice((0.5, 2.0, 6.0)) * 3600 * dice.random()
        world.asleep_until_s = world.clock.now_s + seconds
        names = sorted(world.hosts)
        dice.shuffle(names)
        kind = dice.random()
        # Crash all nodes, a majority, or none.
        down = len(names) if kind < 0.3 else len(world.names) // 2 + 1 if kind < 0.8 else 0
        for name in names[:down]:
            world.crash(name)
        alone_s = ALONE_S if 0 < down < len(names) and dice.random() < 0.3 else 0.0
        world.clock.run(alone_s)
        for name in sorted(world.hosts):
            world.hosts[name].pause(seconds - alone_s)
        world.clock.run(seconds - alone_s)
        world.counts["losses of quorum for hours"] += 1
        world.counts["seconds without quorum"] += int(seconds)
        return seconds

    # --- nodes ------------------------------------------------------------------------------------

    def _host(self) -> SimHost | None:
        names = sorted(self.world.hosts)
        return self.world.hosts[self.dice.choice(names)] if names else None

    def _crash(self) -> None:
        world = self.world
        host = self._host()
        down_max = 1 if self.dice.random() < 0.8 else len(world.names)
        if host is not None and len(world.names) - len(world.hosts) < down_max:
            world.crash(host.name, self.dice.choice((0.0, 0.0, 0.05, 3.0)))
            world.counts["crashes"] += 1

    def _restart(self) -> None:
        for name in self.world.names:
            if name not in self.world.hosts:
                self.world.start(name)
                return

    def _blackout(self) -> None:
        for name in sorted(self.world.hosts):
            self.world.crash(name)
        self.world.counts["blackouts"] += 1

    def _stop(self) -> None:
        host = self._host()
        if host is not None:
            host.enter(host.node.stopping.stop)

    def _partition(self) -> None:
        names = list(self.world.names)
        self.dice.shuffle(names)
        kind = self.dice.random()
        if kind < 0.5:
            alone = self.dice.randint(1, len(names) // 2)
            cut = {(a, b) for a in names[:alone] for b in names[alone:]}
            cut |= {(b, a) for a, b in cut}
        elif kind < 0.7:
            cut = {(names[0], names[1]), (names[1], names[0])}
        elif kind < 0.8:
            cut = {(a, b) for a in names for b in names if a != b}
        else:
            cut = {(names[0], other) for other in names[1:] if self.dice.random() < 0.7}
        self.world.network.detect_s = self.dice.choice((0.02, 0.02, 0.5, 3.0))
        self.world.network.partition(cut)
        self.world.counts["partitions"] += 1

    def _heal(self) -> None:
        self.world.network.heal()

    def _pause(self) -> None:
        host = self._host()
        if host is not None:
            host.pause(self.dice.choice((0.1, 0.5, 1.0, 5.0)) * self.dice.random())
            self.world.counts["pauses"] += 1

    def _freeze(self) -> None:
        """Pause all processes for the same time."""
        seconds = self.dice.choice((0.3, 1.0, 5.0)) * self.dice.random()
        for name in sorted(self.world.hosts):
            self.world.hosts[name].pause(seconds)
        self.world.counts["freezes of all"] += 1

    def _drain(self) -> None:
        """Let one node refuse puts for a while."""
        host = self._host()
        if host is not None and not host.node.context.draining:
            self._drain_node(host, True)
            seconds = 3.0 * self.dice.random()
            self.world.clock.after(seconds, lambda: self._drain_node(host, False))
            self.world.counts["drains"] += 1

    def _drain_node(self, host: SimHost, on: bool) -> None:
        def drain() -> None:
            if host.node.context.draining != on:
                host.node.lifecycle.drain(on)
                self.world.drained(host.name, on)

        host.enter(drain)

    # --- links and clocks -------------------------------------------------------------------------

    def _slow(self) -> None:
        names = self.world.names
        way = (self.dice.choice(names), self.dice.choice(names))
        self.world.network.slow = {way: self.dice.random() * 0.3}

    def _transfer(self) -> None:
        leader = self.world.leader()
        if leader is not None and not leader.paused:
            leader.enter(partial(_transfer, leader))
            self.world.counts["transfers"] += 1

    def _compact(self) -> None:
        host = self._host()
        if host is not None and not host.paused:
            host.enter(host.node.context.replica.compact)
            self.world.counts["snapshots"] += 1

    def _reset(self) -> None:
        """Break one link; it comes back soon."""
        a, b = self.dice.sample(self.world.names, 2)
        if self.world.network.is_linked(a, b):
            self.world.network.reset(a, b)
            self.world.counts["resets"] += 1

    def _wall(self) -> None:
        """Set the wall clock of a node."""
        if self.world.walls_move:
            name = self.dice.choice(self.world.names)
            away_s = self.dice.choice((0.0, 30.0, 86_400.0, 10 * 365 * 86_400.0))
            self.world.walls_s[name] = WALL_S + away_s * self.dice.choice((-1, 1))

    # --- disks ------------------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        for disk in self.world.disks.values():
            disk.latency_s = LATENCY_S
        name = self.dice.choice(self.world.names)
        self.world.disks[name].latency_s = self.dice.choice((0.005, 0.05, 0.5))
        self.world.counts["slow disks"] += 1

    def _stall(self) -> None:
        """Let a sync take seconds."""
        disk = self.world.disks[self.dice.choice(self.world.names)]
        disk.latency_s = seconds = self.dice.choice((1.0, 3.0, 6.0)) * self.dice.random()

        def end() -> None:
            if disk.latency_s == seconds:
                disk.hasten(LATENCY_S)

        self.world.clock.after(seconds, end)
        self.world.counts["stalled syncs"] += 1

    def _disk_error(self) -> None:
        """Let every write and sync fail from now on: the node must end by itself."""
        host = self._host()
        if host is not None and len(self.world.hosts) == len(self.world.names):
            number = self.dice.choice((errno.EIO, errno.ENOSPC))
            words = {errno.EIO: "input/output error", errno.ENOSPC: "no space left on device"}
            self.world.disks[host.name].failing = OSError(number, words[number])
            self.world.counts["failed disks"] += 1

    def _flip(self) -> None:
        """Damage a file of the node that is down, or of a node that is crashed for it."""
        world = self.world
        if not world.may_lose_disk():
            return
        down = [name for name in world.names if name not in world.hosts]
        if len(down) > 1:
            return
        name = down[0] if down else self.dice.choice(world.names)
        if not down:
            world.crash(name)
            world.counts["crashes"] += 1
        path = flip(world.disks[name], name, self.dice)
        if path is not None:
            world.damaged[name] = path
            world.counts["flipped bits"] += 1

    def _lose_disk(self) -> None:
        """Crash a node and replace its disk by an empty one."""
        world = self.world
        if world.may_lose_disk() and len(world.hosts) == len(world.names):
            name = self.dice.choice(world.names)
            world.crash(name)
            world.counts["crashes"] += 1
            world.replace_disk(name)

    def _disk_low(self) -> None:
        name = self.dice.choice(self.world.names)
        # Nothing, enough for the log but not for puts, or plenty.
        low = (0, BALLAST_ROOM_BYTES, BALLAST_ROOM_BYTES)
        self.world.free_bytes[name] = self.dice.choice((*low, 2**40, 2**40, 2**40))
