"""One run: clients at work while nodes crash, stop, pause and are cut off; then everything heals.

    python -m tests.sim.storm SEED [HOW_MANY]

replays runs; each ends with a line, and a broken promise with the nodes' last lines. What must hold
afterwards is in `verdicts` (safety) and in `Storm.settle` (liveness).
"""

import random
import sys
from dataclasses import dataclass
from typing import Any, Final

from beanpoled import origin
from tests.sim.clients import RETRY_S, Client
from tests.sim.history import Op
from tests.sim.host import SimHost
from tests.sim.verdicts import PROBE, RESERVES, Judge
from tests.sim.wire import Wire
from tests.sim.world import WALL_S, World

STEP_S: Final = 0.01
PLAY_S: Final = 15.0
# After everything is mended, this long until a put is answered at a node that runs.
PUT_ANSWERED_S: Final = 3.0
# ... until a node that had to start again serves, all nodes are equal, every wait has its job.
SETTLED_S: Final = 15.0
ROUNDS: Final = 5
# A pipeline of eight waits of three seconds each.
OPEN_MAX_S: Final = 30.0

# A quick cluster meets more of its timeouts in the same time.
QUICK: Final = {
    "raft_min_ms": 200,
    "raft_max_ms": 400,
    "command_timeout_ms": 1200,
    "fence_timeout_ms": 1500,
    "node_timeout_ms": 2500,
}


class Stuck(AssertionError):
    """Nothing that was promised is broken, but something does not go on."""


@dataclass(frozen=True)
class Faults:
    """Shares of the faults, as probabilities per step of STEP_S."""

    crash: float = 0.002
    restart: float = 0.012
    blackout: float = 0.0002
    stop: float = 0.0004
    partition: float = 0.003
    heal: float = 0.008
    pause: float = 0.003
    slow: float = 0.004
    slow_disk: float = 0.002
    transfer: float = 0.001
    compact: float = 0.003
    reset: float = 0.003
    wall: float = 0.002
    disk_low: float = 0.0005


NAMES: Final = tuple(Faults.__dataclass_fields__)
CALM: Final = Faults(**dict.fromkeys(NAMES, 0.0))


class Storm:
    """One run of one seed."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed * 104_729 + 3)
        overrides: dict[str, Any] = dict(QUICK) if dice.random() < 0.8 else {}
        overrides["max_job_size"] = 1000
        overrides["client_output_bytes_max"] = dice.choice((4096, 100_000))
        overrides["outbox_bytes_max"] = dice.choice((3000, 10**7))
        if dice.random() < 0.5:
            # With so little of the log kept, a node that was away for a moment needs a snapshot.
            kept = dice.choice((2_000, 20_000))
            overrides |= {"snapshot_bytes_min": kept, "log_memory_bytes": kept}
            overrides["log_retain_bytes"] = kept
        self.world = world = World(seed, dice.choice((3, 3, 3, 5)), **overrides)
        world.in_flight_max = dice.choice((1, 8))
        self.batches_max = dice.choice((1, 16))
        world.turn_s = dice.choice((0.0, 0.0002, 0.003))
        world.network.jitter_s = dice.choice((0.0, 0.002, 0.02))
        world.network.full_bytes = dice.choice((2**40, 20_000))
        for name in world.names:
            world.rates[name] = 1.0 + dice.uniform(-0.05, 0.05)
            world.walls_s[name] += dice.uniform(-5, 5)
        self.faults = faults or Faults()
        self.walls_move = dice.random() < 0.3
        self.history: list[Op] = []
        self.known: list[int] = []
        self.clients: list[Client] = []

    def run(self) -> None:
        """Play, heal, judge.

        Raises:
            Violation: a promise is broken.
            Stuck: something does not go on.
        """
        module = vars(origin)
        before = module["BATCHES_IN_FLIGHT_MAX"]
        module["BATCHES_IN_FLIGHT_MAX"] = self.batches_max
        try:
            self._run()
        finally:
            module["BATCHES_IN_FLIGHT_MAX"] = before

    def _run(self) -> None:
        world = self.world
        for name in world.names:
            world.start(name)
        self.clients += [
            Client(world, number, self.history, self.known)
            for number in range(self.dice.choice((4, 10, 20)))
        ]
        end_s = world.clock.now_s + PLAY_S
        while world.clock.now_s < end_s:
            for name in NAMES:
                if self.dice.random() < getattr(self.faults, name):
                    getattr(self, f"_{name}")()
            world.clock.run(STEP_S)
        self.settle()
        config = world.config(world.names[0])
        timeout_s = config.command_timeout_ms / 1000
        # Time without a leader counts for delays, as far as wall clocks tell it.
        estimated = self.walls_move or world.counts["cold starts"] > 0
        Judge(self.history, world.witness, timeout_s, estimated).all()

    # --- after the storm --------------------------------------------------------------------------

    def settle(self) -> None:
        """Mend everything; then what is promised about going on must hold."""
        world = self.world
        self._mend()
        probe = Probe(world)
        if not world.clock.run_until(lambda: probe.inserted > 0, PUT_ANSWERED_S):
            raise Stuck(f"no put is answered {PUT_ANSWERED_S} s after healing")
        for client in self.clients:
            client.active = False
        if not world.clock.run_until(self._all_serve, SETTLED_S):
            raise Stuck(f"not all nodes serve {SETTLED_S} s after healing")
        self._serve_waits()
        world.clock.run(2.0)
        self._check_quiet()
        if not world.clock.run_until(world.is_equal, SETTLED_S):
            raise Stuck(f"not all nodes are equal {SETTLED_S} s after healing")
        world.check_equal()

    def _mend(self) -> None:
        """Repair the world, and start what is down."""
        world = self.world
        world.network.heal()
        world.network.slow.clear()
        world.network.full_bytes = 2**40
        for name in world.names:
            world.disks[name].latency_s = 0.0005
            world.free_bytes[name] = 2**40
            host = world.hosts.get(name)
            if host is not None and host.paused:
                host.resume()
        for name in world.names:
            if name not in world.hosts:
                world.start(name)

    def _all_serve(self) -> bool:
        for name in self.world.names:
            if name not in self.world.hosts:  # it was stopping when the world healed
                self.world.start(name)
        return len(self.world.serving()) == len(self.world.names)

    def _serve_waits(self) -> None:
        """Every client that waits for a job gets one, as soon as there are enough."""
        world = self.world
        world.clock.run(4.0)  # pauses end, timeouts come
        blocked = [client for client in self.clients if _waits(client)]
        probe = Probe(world)
        tubes = sorted({tube for client in blocked for tube in client.watched})
        wanted = sum(op.kind in RESERVES for client in blocked for op in client.waiting)

        def served() -> bool:
            return not any(_waits(client) for client in blocked)

        for _ in range(ROUNDS):  # others, whose waits end by themselves, may take some of the jobs
            for tube in tubes:
                for _ in range(wanted):
                    probe.put(tube)
            if world.clock.run_until(served, SETTLED_S / ROUNDS):
                break
        if not served():
            left = [client.waiting[0] for client in blocked if _waits(client)]
            raise Stuck(f"{len(left)} of {len(blocked)} waits are not served: {left[0]!r}")
        world.counts["waits at the end"] += len(blocked)

    def _check_quiet(self) -> None:
        """No command is open, and nothing is due that did not happen."""
        world = self.world
        if not world.clock.run_until(
            lambda: not any(client.waiting for client in self.clients), OPEN_MAX_S
        ):
            left = next(client.waiting[0] for client in self.clients if client.waiting)
            raise Stuck(f"still open: {left!r}")
        machine = world.witness.machine
        due_us = machine.next_due_us(machine.queue.now_us)
        leader = world.leader()
        if leader is None:
            raise Stuck("there is no leader")
        now_us = leader.node.clock.estimate_us(leader.node.now_us)
        if machine.has_work() or (due_us is not None and due_us < now_us - 1_000_000):
            raise Stuck(f"what was due at {due_us} is not done at {now_us}")

    # --- faults -----------------------------------------------------------------------------------

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
            host.enter(host.node.lifecycle.stop)

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

    def _slow(self) -> None:
        names = self.world.names
        way = (self.dice.choice(names), self.dice.choice(names))
        self.world.network.slow = {way: self.dice.random() * 0.3}

    def _slow_disk(self) -> None:
        for disk in self.world.disks.values():
            disk.latency_s = 0.0005
        name = self.dice.choice(self.world.names)
        self.world.disks[name].latency_s = self.dice.choice((0.005, 0.05, 0.5))

    def _transfer(self) -> None:
        leader = self.world.leader()
        if leader is not None and not leader.paused:
            leader.node.replica.transfer(None)
            self.world.counts["transfers"] += 1

    def _compact(self) -> None:
        host = self._host()
        if host is not None and not host.paused:
            host.node.replica.compact()
            self.world.counts["snapshots"] += 1

    def _reset(self) -> None:
        """Break one link; it comes back soon."""
        a, b = self.dice.sample(self.world.names, 2)
        if self.world.network.is_linked(a, b):
            self.world.network.reset(a, b)
            self.world.counts["resets"] += 1

    def _wall(self) -> None:
        """Somebody sets a clock."""
        if self.walls_move:
            name = self.dice.choice(self.world.names)
            away_s = self.dice.choice((0.0, 30.0, 86_400.0, 10 * 365 * 86_400.0))
            self.world.walls_s[name] = WALL_S + away_s * self.dice.choice((-1, 1))

    def _disk_low(self) -> None:
        name = self.dice.choice(self.world.names)
        self.world.free_bytes[name] = self.dice.choice((0, 2**40, 2**40))


class Probe:
    """A client that only puts, at one node after the other, to see whether the cluster goes on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._wire: Wire | None = None
        self._connects = 0
        self.inserted = 0
        self._connect()

    def _connect(self) -> None:
        self._wire = None
        serving = self._world.serving()
        if serving:
            self._connects += 1
            self._wire = Wire(self._world, serving[self._connects % len(serving)], self, 0.0001)
            self.put(PROBE)
        else:
            self._world.clock.after(RETRY_S, self._connect)

    def put(self, tube: bytes) -> None:
        """Put a job that anybody may have."""
        if self._wire is not None and self._wire.open:
            self._wire.send(b"use %b\r\nput 1 0 60 5\r\n%b\r\n" % (tube, PROBE))

    def received(self, wire: Wire, data: bytes) -> None:
        """Count what was put."""
        self.inserted += data.count(b"INSERTED")
        if b"OUT_OF_MEMORY" in data or b"DRAINING" in data:  # of the time before the healing
            self._world.clock.after(RETRY_S, lambda: self.put(PROBE))

    def ended(self, wire: Wire) -> None:
        """Go elsewhere."""
        self._world.clock.after(RETRY_S, self._connect)


def _waits(client: Client) -> bool:
    return bool(client.waiting) and client.waiting[0].kind == "reserve"


def replay(seed: int) -> str:
    """What to type to see a run again."""
    return f".venv/bin/python -m tests.sim.storm {seed}"


def main() -> None:
    """Run seeds from the command line."""
    first = int(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    bad = 0
    for seed in range(first, first + count):
        storm = Storm(seed)
        try:
            storm.run()
        except AssertionError as error:
            bad += 1
            if count == 1:
                sys.stdout.write("\n".join(storm.world.lines) + "\n")
                sys.stdout.write(storm.world.describe() + "\n")
                raise
            kind = type(error).__name__
            sys.stdout.write(f"{seed} {kind}: {str(error)[:300]}\n    {replay(seed)}\n")
        else:
            counts = storm.world.counts
            if count == 1:
                sys.stdout.write(f"{dict(sorted(counts.items()))}\n{storm.world.digest()}\n")
    sys.stdout.write(f"{count - bad} of {count} runs kept every promise\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
