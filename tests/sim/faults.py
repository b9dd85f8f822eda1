"""Random faults on a cluster of replicas, repeatable by seed, and the checks afterwards.

One run proposes and reads while nodes crash, pause, are cut off and slowed. It then heals
everything and checks that nothing acknowledged is lost and that all nodes agree.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from tests.sim.cluster import Cluster, Node, Violation

STEP_S = 0.01


@dataclass(frozen=True)
class Plan:
    """The shares of the faults, as probabilities per step of STEP_S."""

    crash: float = 0.004
    restart: float = 0.02
    crash_all: float = 0.0003
    partition: float = 0.004
    heal: float = 0.012
    pause: float = 0.005
    slow: float = 0.006
    slow_disk: float = 0.003
    transfer: float = 0.002
    compact: float = 0.004
    lose_disk: float = 0.0
    propose: float = 0.5
    confirm: float = 0.05
    entry_sizes: tuple[int, ...] = (0, 30, 300, 3000)


@dataclass
class Run:
    """One run and its counters."""

    cluster: Cluster
    seed: int
    plan: Plan = field(default_factory=Plan)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.lost_disk: str | None = None
        self.fresh_disk: str | None = None  # the same, until the node starts on it

    def play(self, seconds: float) -> None:
        """Let faults happen."""
        end_s = self.cluster.clock.now_s + seconds
        while self.cluster.clock.now_s < end_s:
            self._step()
            self.cluster.clock.run(STEP_S)

    def settle(self, limit_s: float = 30.0) -> None:
        """Mend everything and check what must hold then."""
        cluster = self.cluster
        cluster.network.heal()
        cluster.network.slow.clear()
        cluster.network.datagrams = False
        for disk in cluster.disks.values():
            disk.latency_s = 0.0005
        for name in cluster.names:
            if name not in cluster.nodes:
                self._start(name)
        awake_s = max(node.paused_until_s for node in cluster.nodes.values())
        cluster.clock.run(max(0.0, awake_s - cluster.clock.now_s))
        cluster.converge(limit_s)
        leader = cluster.wait_leader()
        cluster.put(leader, 3)
        cluster.converge(limit_s)
        nodes = cluster.nodes.values()
        if not cluster.clock.run_until(lambda: not any(n.replica.rejoining for n in nodes), 10):
            raise Violation("a node is still rejoining")
        self.counts["acknowledged"] = len(cluster.acknowledged)
        self.counts["messages"] = cluster.network.sent
        self.counts["loads"] = cluster.loads
        self.counts["terms"] = max(cluster.leaders)

    # --- one step --------------------------------------------------------------------------------

    def _step(self) -> None:
        plan, dice = self.plan, self.random
        for name in sorted(self.cluster.nodes):
            node = self.cluster.nodes[name]
            if node.replica.role == "leader" and self._runs(node):
                self._use(node)
        for fault in (
            "crash", "restart", "crash_all", "partition", "heal", "pause", "slow", "slow_disk",
            "transfer", "compact", "lose_disk",
        ):  # fmt: skip
            if dice.random() < getattr(plan, fault):
                getattr(self, f"_{fault}")()

    def _runs(self, node: Node) -> bool:
        return node.alive and self.cluster.clock.now_s >= node.paused_until_s

    def _use(self, node: Node) -> None:
        dice = self.random
        if dice.random() < self.plan.propose:
            for _ in range(dice.choice((1, 1, 5))):
                if node.replica.can_propose():
                    self.cluster.propose(node, dice.choice(self.plan.entry_sizes))
        if dice.random() < self.plan.confirm:
            seen = max(self.cluster.committed, default=0)
            node.replica.confirm(lambda: self._confirmed(node, seen))

    def _confirmed(self, node: Node, seen: int) -> None:
        """Check that a confirmed leader knows everything committed when it was asked (R9)."""
        self.counts["confirmed"] += 1
        if node.replica.commit_index < seen:
            raise Violation(f"{node.name} confirmed at {node.replica.commit_index}, not {seen}")

    # --- faults ----------------------------------------------------------------------------------

    def _any(self) -> str | None:
        return self.random.choice(sorted(self.cluster.nodes) or [""]) or None

    def _crash(self) -> None:
        down_max = 1 if self.random.random() < 0.9 else len(self.cluster.names)
        name = self._any()
        if name and len(self.cluster.names) - len(self.cluster.nodes) < down_max:
            self.cluster.crash(name)
            self.counts["crashes"] += 1

    def _start(self, name: str) -> None:
        node = self.cluster.start(name)
        if name == self.fresh_disk and not node.replica.rejoining:
            raise Violation(f"{name} lost its disk and counts")
        if name == self.fresh_disk:
            self.fresh_disk = None

    def _restart(self) -> None:
        for name in self.cluster.names:
            if name not in self.cluster.nodes:
                self._start(name)
                return

    def _crash_all(self) -> None:
        for name in sorted(self.cluster.nodes):
            self.cluster.crash(name)
        self.counts["blackouts"] += 1

    def _partition(self) -> None:
        names = list(self.cluster.names)
        self.random.shuffle(names)
        kind = self.random.random()
        cut: set[tuple[str, str]] = set()
        if kind < 0.5:
            alone = self.random.randint(1, len(names) // 2)
            cut = {(a, b) for a in names[:alone] for b in names[alone:]}
            cut |= {(b, a) for a, b in cut}
        elif kind < 0.75:
            cut = {(names[0], names[1]), (names[1], names[0])}
        else:
            cut = {(names[0], other) for other in names[1:] if self.random.random() < 0.7}
        self.cluster.network.detect_s = self.random.choice((0.02, 0.02, 0.5, 3.0))
        self.cluster.network.partition(cut)
        self.counts["partitions"] += 1

    def _heal(self) -> None:
        self.cluster.network.heal()

    def _pause(self) -> None:
        name = self._any()
        if name:
            self.cluster.nodes[name].pause(self.random.random() * 2.5)
            self.counts["pauses"] += 1

    def _slow(self) -> None:
        names = self.cluster.names
        way = (self.random.choice(names), self.random.choice(names))
        self.cluster.network.slow = {way: self.random.random() * 0.3}

    def _slow_disk(self) -> None:
        for disk in self.cluster.disks.values():
            disk.latency_s = 0.0005
        name = self.random.choice(self.cluster.names)
        self.cluster.disks[name].latency_s = self.random.choice((0.005, 0.05, 0.5))

    def _transfer(self) -> None:
        leader = self.cluster.leader()
        if leader is not None and self._runs(leader) and leader.replica.transfer(None):
            self.counts["transfers"] += 1

    def _compact(self) -> None:
        name = self._any()
        if name and self._runs(self.cluster.nodes[name]):
            self.cluster.nodes[name].replica.compact()
            self.counts["snapshots"] += 1

    def _lose_disk(self) -> None:
        """Lose one node's disk, if no other disk is lost or being rebuilt."""
        nodes = self.cluster.nodes
        if len(nodes) < len(self.cluster.names):
            return
        if self.lost_disk is not None and nodes[self.lost_disk].replica.rejoining:
            return
        name = self.random.choice(self.cluster.names)
        self.cluster.crash(name)
        self.cluster.disks[name].wipe()
        self.cluster.rejoin.add(name)
        self.lost_disk = self.fresh_disk = name
        self.counts["lost disks"] += 1


def world(seed: int, cluster: Cluster) -> None:
    """Configure a network by seed: delays, buffers, datagrams and clock rates."""
    dice = random.Random(seed * 31 + 5)
    network = cluster.network
    network.jitter_s = dice.choice((0.0, 0.002, 0.02))
    network.full_bytes = dice.choice((2**40, 20_000))
    if dice.random() < 0.5:
        network.datagrams = True
        network.lost, network.doubled, network.late = 0.02, 0.03, 0.05
    cluster.turn_delay_s = dice.choice((0.0, 0.0002, 0.003))
    cluster.fetch_step_s = dice.choice((0.0005, 0.02))
    for name in cluster.names:
        cluster.rates[name] = 1.0 + dice.uniform(-0.05, 0.05)
