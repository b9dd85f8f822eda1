"""One run: clients work while nodes crash, stop, pause and are cut off; then everything heals.

    python -m tests.sim.storm SEED [HOW_MANY]

replays runs. Each ends with a line; a broken guarantee is printed with the nodes' last log lines.
`verdicts` (safety) and `Storm.settle` (liveness) check the state afterwards.
"""

import random
import sys
from typing import Any, Final

from beanpole.core.jobs import order
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from beanpoled.links import frames
from tests.sim import callers
from tests.sim.callers import Caller
from tests.sim.clients import RETRY_S, Client
from tests.sim.costs import allowed_s
from tests.sim.crowd import Crowd
from tests.sim.hazards import Hazards, draw
from tests.sim.history import Op
from tests.sim.host import SimHost
from tests.sim.troubles import CALM as CALM
from tests.sim.troubles import Faults, Troubles
from tests.sim.verdicts import PROBE, RESERVES, Judge
from tests.sim.wire import Wire
from tests.sim.world import World

STEP_S: Final = 0.005
# 3,000 steps.
PLAY_S: Final = 15.0
# Half a second, within which a sleeping worker must be woken.
LOOK_STEPS: Final = 100
# The share of the lives in which a majority is lost for hours.
LULL_SHARE: Final = 0.1
# After everything is mended, a running node must answer a put within this time.
PUT_ANSWERED_S: Final = 3.0
# Within this time a restarted node serves, all nodes are equal, and every wait has its job.
SETTLED_S: Final = 15.0
ROUNDS: Final = 5
CALLERS: Final = 2
# The keys of one list of an order: so few that lives have orders of several lists, whose bounds
# depend on the past, which nothing else may.
KEYS_MAX: Final = 4
# A pipeline of eight waits of three seconds each, and some slack.
OPEN_MAX_S: Final = 30.0

# A quick cluster meets more of its timeouts in the same time.
QUICK: Final = {
    "raft_min_ms": 200,
    "raft_max_ms": 400,
    "command_timeout_ms": 1200,
    "fence_timeout_ms": 1700,
    "node_timeout_ms": 2500,
    "drain_timeout_ms": 900,
}


class Stuck(AssertionError):
    """No guarantee is broken, but something makes no progress."""


class Storm:
    """One run of one seed."""

    def __init__(
        self, seed: int, faults: Faults | None = None, repairs: Repairs = ALL_REPAIRS
    ) -> None:
        self.seed = seed
        self.dice = dice = random.Random(seed * 104_729 + 3)
        overrides: dict[str, Any] = dict(QUICK) if dice.random() < 0.8 else {}
        overrides["max_job_size"] = 1000
        overrides["client_output_bytes_max"] = dice.choice((4096, 100_000))
        overrides["outbox_bytes_max"] = dice.choice((3000, 10**7))
        if dice.random() < 0.5:
            # With so short a log, a node that was away for a moment needs a snapshot.
            kept = dice.choice((2_000, 20_000))
            overrides |= {"snapshot_bytes_min": kept, "log_memory_bytes": kept}
            overrides["log_retain_bytes"] = kept
        overrides["event_segment_bytes"] = dice.choice((4_096, 50_000, 10**7))
        overrides["event_segment_age_s"] = dice.choice((1, 60))
        self.world = world = World(seed, dice.choice((3, 3, 3, 5)), **overrides)
        world.repairs = repairs
        world.in_flight_max = dice.choice((1, 8))
        self.batches_max = dice.choice((1, 16))
        world.turn_s = dice.choice((0.0, 0.0002, 0.003))
        world.network.jitter_s = dice.choice((0.0, 0.002, 0.02))
        world.network.full_bytes = dice.choice((2**40, 20_000))
        for name in world.names:
            world.rates[name] = 1.0 + dice.uniform(-0.05, 0.05)
            world.walls_s[name] += dice.uniform(-5, 5)
        self.undisturbed = faults == CALM
        self.troubles = Troubles(world, dice, faults or Faults())
        kinds = frozenset[str]() if faults is not None else draw(seed)
        self.hazards = Hazards(world, seed, kinds)
        self.steps = 0
        # A calm life has no lull either.
        lull = dice.random() < LULL_SHARE and faults is None
        self.lull_step = dice.randrange(int(PLAY_S / STEP_S)) if lull else -1
        self.history: list[Op] = []
        self.known: list[int] = []
        self.clients: list[Client] = []
        self.callers: list[Caller] = []
        self.crowd = Crowd(world)

    def run(self) -> None:
        """Play, heal, judge.

        Raises:
            Violation: a guarantee is broken.
            Stuck: something makes no progress.
        """
        changed = (
            (frames, "BATCHES_IN_FLIGHT_MAX", self.batches_max),
            (order, "PART_MAX", KEYS_MAX),
        )
        before = [vars(module)[name] for module, name, _ in changed]
        try:
            for module, name, value in changed:
                vars(module)[name] = value
            self._run()
        finally:
            for (module, name, _), value in zip(changed, before, strict=True):
                vars(module)[name] = value

    def _run(self) -> None:
        world = self.world
        self.hazards.begin()
        for name in world.names:
            world.start(name)
        self.clients += [
            Client(world, number, self.history, self.known)
            for number in range(self.dice.choice((4, 10, 20)))
        ]
        self.callers += [Caller(world, number) for number in range(CALLERS)]
        self.crowd.begin()
        world.counts["lives of five nodes"] += len(world.names) == 5
        while self.steps < PLAY_S / STEP_S:
            if self.steps == self.lull_step:
                self.troubles.lose_quorum()
            self.troubles.strike(STEP_S)
            self.hazards.strike(STEP_S)
            self.steps += 1
            world.clock.run(STEP_S)
            if self.steps % LOOK_STEPS == 0:
                self.crowd.look()
                world.stops.look()
        self.settle()
        config = world.config(world.names[0])
        timeout_s = config.command_timeout_ms / 1000
        # Time without a leader counts for delays, as far as wall clocks show it.
        estimated = world.walls_move or world.counts["cold starts"] > 0
        fences = world.leases.fences
        judge = Judge(self.history, world.witness, timeout_s, estimated, world.drains, fences)
        judge.leaves = world.stops.since
        judge.all()
        world.stops.judge(
            (op.connected, op.at_s, op)
            for op in self.history
            if op.word == b"RESERVED" and op.kind in RESERVES
        )
        callers.judge(self.callers, world.witness)
        self.crowd.judge(estimated, self.undisturbed)
        world.counts["events with a host"] += sum(
            bool(row.host) for row in world.witness.events.rows
        )

    # --- after the storm --------------------------------------------------------------------------

    def settle(self) -> None:
        """Mend everything, then check that the cluster makes progress."""
        world = self.world
        self.hazards.mend()
        self.troubles.mend()
        probe = Probe(world)
        answered_s = allowed_s(PUT_ANSWERED_S, world.slowness)
        waits_for_room = False
        while (
            not world.clock.run_until(
                lambda: probe.inserted > 0 or len(world.hosts) < len(world.names), answered_s
            )
            or not probe.inserted
        ):
            if self._start_missing():
                continue  # it was stopping when the world healed, or its disk was damaged
            if not waits_for_room and self._waits_for_room():
                waits_for_room = True
                continue
            raise Stuck(f"no put is answered {answered_s} s after healing")
        for client in self.clients:
            client.active = False
        for caller in self.callers:
            caller.active = False
        self.crowd.calm()
        # A snapshot that was being written when the disks were mended may end its node once more.
        if not self._each_answers() and not self._each_answers():
            raise Stuck("a node ended again after healing")
        healthy = world.oracle.healthy()
        self._serve_waits()
        world.clock.run(2.0)
        self._check_quiet()
        world.oracle.kept_pace(healthy)
        if not world.clock.run_until(world.is_equal, SETTLED_S):
            raise Stuck(f"not all nodes are equal {SETTLED_S} s after healing")
        world.check_equal()

    def _waits_for_room(self) -> bool:
        """Whether a node lately found no room for a snapshot, and retries by the clock."""
        now_s = self.world.clock.now_s
        replicas = [host.node.context.replica for host in self.world.hosts.values()]
        return any(
            now_s < replica._snapshots._make_after_s
            for replica in replicas
            if isinstance(replica, PySyncObjReplica)
        )

    def _start_missing(self) -> bool:
        missing = [name for name in self.world.names if name not in self.world.hosts]
        for name in missing:
            self.world.start(name)
        return bool(missing)

    def _all_serve(self) -> bool:
        self._start_missing()
        return len(self.world.serving()) == len(self.world.names)

    def _each_answers(self) -> bool:
        """See that every node serves and answers a put; False if one ended meanwhile."""
        world = self.world
        if not world.clock.run_until(self._all_serve, SETTLED_S):
            raise Stuck(f"not all nodes serve {SETTLED_S} s after healing")
        asked = [Probe(world, host) for host in world.serving()]

        def is_over() -> bool:
            return len(world.hosts) < len(world.names) or all(one.inserted for one in asked)

        if not world.clock.run_until(is_over, SETTLED_S):
            raise Stuck(f"not every node answers a put {SETTLED_S} s after it serves")
        return len(world.hosts) == len(world.names)

    def _serve_waits(self) -> None:
        """Put jobs until every client that waits for one has it."""
        world = self.world
        world.clock.run(4.0)  # pauses end, timeouts come
        # A pipeline may hold several waits that time out before one that does not.
        world.clock.run_until(
            lambda: all(_waits(client) or not client.waiting for client in self.clients),
            OPEN_MAX_S,
        )
        blocked = [client for client in self.clients if _waits(client)]
        probe = Probe(world)
        tubes = sorted({tube for client in blocked for tube in client.watched})
        wanted = sum(op.kind in RESERVES for client in blocked for op in client.waiting)

        def served() -> bool:
            return not any(_waits(client) for client in blocked)

        for _ in range(ROUNDS):  # clients whose waits time out may take some of the jobs
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
        """Check that no command is open and nothing overdue."""
        world = self.world
        if not world.clock.run_until(
            lambda: not any(client.waiting for client in self.clients), OPEN_MAX_S
        ):
            left = next(client.waiting[0] for client in self.clients if client.waiting)
            raise Stuck(f"still open: {left!r}")
        for client in self.clients:
            if client.left_alone:
                raise Stuck(f"client {client.number} asked for the end and is still connected")
        if not world.clock.run_until(lambda: not self.crowd.restless, SETTLED_S):
            raise Stuck(self.crowd.restless)
        machine = world.witness.machine
        due_us = machine.next_due_us(machine.queue.now_us)
        leader = world.leader()
        if leader is None:
            raise Stuck("there is no leader")
        now_us = leader.node.context.clock.estimate_us(leader.node.context.now_us)
        if machine.has_work() or (due_us is not None and due_us < now_us - 1_000_000):
            raise Stuck(f"what was due at {due_us} is not done at {now_us}")


class Probe:
    """A client that only puts, to see whether the cluster goes on: at one node, or at all."""

    def __init__(self, world: World, only: SimHost | None = None) -> None:
        self._world = world
        self._only = only
        self._wire: Wire | None = None
        self._connects = 0
        self.inserted = 0
        self._connect()

    def _connect(self) -> None:
        self._wire = None
        serving = self._world.serving() if self._only is None else [self._only]
        if serving:
            self._connects += 1
            self._wire = Wire(self._world, serving[self._connects % len(serving)], self, 0.0001)
            self.put(PROBE)
        else:
            self._world.clock.after(RETRY_S, self._connect)

    def put(self, tube: bytes) -> None:
        """Put a job for any client."""
        if self._wire is not None and self._wire.open:
            self._wire.send(b"use %b\r\nput 1 0 60 5\r\n%b\r\n" % (tube, PROBE))

    def received(self, wire: Wire, data: bytes) -> None:
        """Count the jobs that were put."""
        self.inserted += data.count(b"INSERTED")
        if b"OUT_OF_MEMORY" in data or b"DRAINING" in data:  # refused from before the healing
            self._world.clock.after(RETRY_S, lambda: self.put(PROBE))

    def ended(self, wire: Wire) -> None:
        """Connect to another node."""
        self._world.clock.after(RETRY_S, self._connect)


def _waits(client: Client) -> bool:
    return bool(client.waiting) and client.waiting[0].kind == "reserve"


def replay(seed: int) -> str:
    """Return the command that repeats a run."""
    return f".venv/bin/python -m tests.sim.storm {seed}"


def main() -> None:
    """Run the seeds of the command line."""
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
