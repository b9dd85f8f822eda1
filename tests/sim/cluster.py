"""A whole cluster of replicas in one process: real consensus, virtual time, network and disks.

Belongs here: the environment of one replica (`Node`), the cluster of all nodes, and the checks of
what must hold at every moment. Tests decide which faults happen when.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import msgpack

from beanpole.errors import BeanpoleError
from beanpole.replication.consensus import Image, ReplicaConfig, Sink
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from beanpole.storage.format import Identity
from tests.sim.clock import Clock
from tests.sim.disk import Disk
from tests.sim.network import Network

TIMER_S = 0.02
CHUNK_ENTRIES = 50

Applied = list[tuple[int, bytes]]


class Violation(AssertionError):
    """A guarantee was broken."""


class ListImage:
    """The image of a machine whose state is the list of the entries it applied."""

    def __init__(self, applied: Applied) -> None:
        self._chunks = [
            msgpack.packb(applied[start : start + CHUNK_ENTRIES])
            for start in range(0, len(applied), CHUNK_ENTRIES)
        ] or [msgpack.packb([])]
        self.closed = False

    def next_chunk(self) -> bytes | None:
        """Return the next chunk."""
        return self._chunks.pop(0) if self._chunks else None

    def close(self) -> None:
        """Drop the image."""
        self.closed = True


class Node:
    """One node: the `Callbacks` of its replica, and the `Receiver` of the network."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.disk = cluster.disks[name]
        self.alive = True
        self.paused_until_s = 0.0
        self.dead_reason: str | None = None
        self.applied: Applied = []
        self.proposed: dict[int, bytes] = {}  # index -> entry, proposed in this life
        self.applies = 0
        self.turns = 0
        self._waking = False
        self._inbox: list[Callable[[], None]] = []
        self._random = random.Random(cluster.random.random())
        config = cluster.config(name)
        self.replica = PySyncObjReplica(config, self, self.disk, cluster.repairs)
        if len(cluster.names) > 1:
            self.replica.in_flight_max = cluster.in_flight_max

    def start(self) -> None:
        """Start the replica and its timer."""
        self.replica.start()
        self._timer()

    def stop(self) -> None:
        """Stop for good: no callback of this node runs any more."""
        self.alive = False

    # --- Callbacks -------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Return the node's clock, which may run at its own rate."""
        return self.cluster.clock.now_s * self.cluster.rates.get(self.name, 1.0)

    def random(self) -> float:
        """Return a seeded random number."""
        return self._random.random()

    def send(self, peer: str, message: bytes) -> bool:
        """Send a message through the network."""
        return self.cluster.network.send(self.name, peer, message)

    def flush(self) -> None:
        """Do nothing: every message is sent at once."""

    def committed(self) -> None:
        """Propose nothing: tests decide what is proposed."""

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """Append an entry to the list; other nodes must have applied the same at its index."""
        if entry in self.cluster.poison:
            raise ValueError("poison")
        first = self.cluster.committed.setdefault(index, (term, entry))
        if first != (term, entry):
            raise Violation(f"{self.name} applies {entry!r} at {index}, another node {first!r}")
        if self.applied and self.applied[-1][0] >= index:
            raise Violation(f"{self.name} applies {index} after {self.applied[-1][0]}")
        self.applied.append((index, entry))
        self.applies += 1
        if self.proposed.pop(index, None) == entry:
            self.cluster.acknowledged.add(entry)

    def begin_image(self) -> Image:
        """Copy the list."""
        return ListImage(list(self.applied))

    def image_bytes(self) -> int:
        """Return the size of all entries."""
        return sum(len(entry) for _, entry in self.applied)

    def log(self, line: str, is_warning: bool = False) -> None:
        """Drop the line."""

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """Replace the list by the one of a snapshot."""
        self.applied = [
            (index, entry)
            for chunk in chunks
            for index, entry in msgpack.unpackb(chunk, use_list=False)
        ]
        self.cluster.loads += 1

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """Stream a peer's snapshot over virtual time while there is a link."""
        source = self.cluster.nodes.get(peer)
        chunks = None if source is None else source.chunks_of(index)
        self.cluster.fetches += 1

        def step() -> None:
            if not self.alive:
                return
            if chunks is None or source is None or not source.alive or not self._reaches(peer):
                done("the peer is gone")
                return
            try:
                chunk = next(chunks, None)
            except BeanpoleError as error:
                done(f"{peer}: DATA_LOSS: {error}")
                return
            if chunk is None:
                done(None)
                return
            sink.write(chunk)
            self.cluster.clock.after(self.cluster.fetch_step_s, step)

        self.cluster.clock.after(self.cluster.fetch_step_s, step)

    def chunks_of(self, index: int) -> Iterator[bytes] | None:
        """Return the chunks of a snapshot at an index or behind it; None if there is none."""
        try:
            found = self.replica.snapshot_source()
        except BeanpoleError:
            return None
        return None if found is None or found[0].index < index else found[1]

    def _reaches(self, peer: str) -> bool:
        network = self.cluster.network
        return network.is_linked(self.name, peer) and (self.name, peer) not in network.cut

    def wake(self) -> None:
        """Schedule a turn soon."""
        if not self._waking:
            self._waking = True
            delay_s = self.cluster.turn_delay_s * self._random.random()
            self.cluster.clock.after(delay_s, self._woken)

    def role_changed(self) -> None:
        """Check that a term has one leader."""
        if self.replica.role == "leader":
            term = self.replica.term
            holder = self.cluster.leaders.setdefault(term, self.name)
            if holder != self.name:
                raise Violation(f"{holder} and {self.name} both lead term {term}")

    def rejoined(self) -> None:
        """Start without `rejoin` from now on."""
        self.cluster.rejoin.discard(self.name)

    def fatal(self, reason: str) -> None:
        """Note the reason, and stop."""
        self.dead_reason = reason
        self.alive = False
        self.cluster.deaths.append((self.name, reason))

    # --- Receiver --------------------------------------------------------------------------------

    def receive(self, peer: str, message: bytes) -> None:
        """Receive a message, at once or after the pause."""
        self._do(lambda: self.replica.receive(peer, message))

    def connected(self, peer: str) -> None:
        """Note a new link."""
        self._do(lambda: self.replica.connected(peer))

    def disconnected(self, peer: str) -> None:
        """Note that a link is gone."""
        self._do(lambda: self.replica.disconnected(peer))

    def turn(self) -> None:
        """Run one turn of the replica."""
        self.turns += 1
        self.replica.turn()
        self.replica.slice_image()
        self.cluster.check()

    def pause(self, seconds: float) -> None:
        """Stand still for a while, as under SIGSTOP: messages wait, timers are late."""
        clock = self.cluster.clock
        self.paused_until_s = clock.now_s + seconds
        clock.after(seconds, self._go_on)

    def _go_on(self) -> None:
        if not self.alive or self.cluster.clock.now_s < self.paused_until_s:
            return
        if self._random.random() < 0.5:
            self.turn()  # a timer fires before the input is read (C4)
        inbox, self._inbox = self._inbox, []
        for action in inbox:
            self._do(action)
        self.wake()

    def _do(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.cluster.clock.now_s < self.paused_until_s:
            self._inbox.append(action)
            return
        action()
        self.cluster.check()

    def _woken(self) -> None:
        self._waking = False
        if self.alive and self.cluster.clock.now_s >= self.paused_until_s:
            self.turn()

    def _timer(self) -> None:
        if self.alive:
            if self.cluster.clock.now_s >= self.paused_until_s:
                self.turn()
            self.cluster.clock.after(TIMER_S, self._timer)


class Cluster:
    """Nodes, the network and disks between them, and what was acknowledged."""

    def __init__(
        self,
        size: int = 3,
        seed: int = 1,
        repairs: Repairs = ALL_REPAIRS,
        start: bool = True,
        **overrides: Any,
    ) -> None:
        self.clock = Clock()
        self.random = random.Random(seed)
        self.network = Network(self.clock, seed + 1)
        self.names = tuple(f"n{number}" for number in range(size))
        self.disks = {
            name: Disk(self.clock, seed * 100 + place) for place, name in enumerate(self.names)
        }
        self.nodes: dict[str, Node] = {}
        self.repairs = repairs
        self.overrides = overrides
        self.turn_delay_s = 0.0002
        self.fetch_step_s = 0.002
        self.in_flight_max = 8
        self.rates: dict[str, float] = {}
        self.rejoin: set[str] = set()  # nodes with a new disk that do not vote yet
        self.committed: dict[int, tuple[int, bytes]] = {}
        self.acknowledged: set[bytes] = set()
        self.leaders: dict[int, str] = {}
        self.deaths: list[tuple[str, str]] = []
        self.deaths_expected = False
        self.poison: set[bytes] = set()
        self.loads = self.fetches = 0
        self.count = 0
        if start:
            for name in self.names:
                self.start(name)

    def config(self, name: str) -> ReplicaConfig:
        """Return a node's configuration: small files, so that everything happens often."""
        values: dict[str, Any] = {"segment_bytes": 64 * 1024, **self.overrides}
        return ReplicaConfig(
            node_id=name,
            members=self.names,
            directory=f"/{name}",
            identity=Identity("sim", name),
            rejoin=name in self.rejoin,
            **values,
        )

    # --- nodes -----------------------------------------------------------------------------------

    def start(self, name: str) -> Node:
        """Start a node on its disk."""
        node = Node(self, name)
        self.nodes[name] = node
        node.start()
        self.network.join(name, node)
        return node

    def crash(self, name: str) -> None:
        """Kill a node; its disk loses what was not synced."""
        node = self.nodes.pop(name)
        node.stop()
        self.network.leave(name)
        node.disk.crash()

    def restart(self, name: str) -> Node:
        """Crash and start a node."""
        self.crash(name)
        return self.start(name)

    # --- for tests -------------------------------------------------------------------------------

    def leader(self) -> Node | None:
        """Return the leader of the highest term, if it has committed in it."""
        leaders = [
            node for node in self.nodes.values() if node.alive and node.replica.role == "leader"
        ]
        return max(leaders, key=lambda node: node.replica.term, default=None)

    def wait_leader(self, limit_s: float = 10.0, but: str | None = None) -> Node:
        """Let time pass until a leader can propose, and return it."""

        def found() -> bool:
            node = self.leader()
            return node is not None and node.name != but and node.replica.can_propose()

        assert self.clock.run_until(found, limit_s), f"no leader: {self.describe()}"
        node = self.leader()
        assert node is not None
        return node

    def propose(self, node: Node, size: int = 0) -> bytes:
        """Propose an entry that was never proposed before."""
        self.count += 1
        entry = b"%08d" % self.count + b"x" * size
        index = node.replica.propose(entry)
        node.proposed[index] = entry
        node.wake()
        return entry

    def put(self, node: Node, count: int = 1, size: int = 0, limit_s: float = 5.0) -> list[bytes]:
        """Propose entries one by one and wait until all are acknowledged."""
        entries: list[bytes] = []
        for _ in range(count):
            assert self.clock.run_until(node.replica.can_propose, limit_s), self.describe()
            entries.append(self.propose(node, size))
        done = self.acknowledged
        assert self.clock.run_until(lambda: done.issuperset(entries), limit_s), self.describe()
        return entries

    def converge(self, limit_s: float = 20.0) -> None:
        """Wait until all nodes follow a leader and have the same state, then check the history."""
        assert self.clock.run_until(self._is_equal, limit_s), f"not equal: {self.describe()}"
        self.check_history()

    def _is_equal(self) -> bool:
        leader = self.leader()
        if leader is None or len(self.nodes) < len(self.names):
            return False
        last = leader.replica.last_index
        return all(
            node.replica.applied_index == last and node.replica.leader == leader.name
            for node in self.nodes.values()
        )

    # --- checks ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Check what must hold at every moment."""
        if self.deaths and not self.deaths_expected:
            raise Violation(f"a node stopped itself: {self.deaths}")

    def check_history(self) -> None:
        """Check that all nodes agree, no acknowledged entry is lost, and none is applied twice."""
        states = {name: node.applied for name, node in self.nodes.items()}
        first = next(iter(states.values()))
        for name, state in states.items():
            if state != first:
                raise Violation(f"{name} differs: {len(state)} and {len(first)} entries")
        entries = [entry for _, entry in first]
        if len(set(entries)) != len(entries):
            raise Violation("an entry was applied twice")
        lost = sorted(self.acknowledged - set(entries))
        if lost:
            raise Violation(f"{len(lost)} acknowledged entries are lost, first {lost[0][:8]!r}")

    def describe(self) -> str:
        """Return every node's state, for failure messages."""
        return "; ".join(
            f"{name} {node.replica.role} t{node.replica.term} c{node.replica.commit_index}"
            f" a{node.replica.applied_index} d{node.replica.durable_index}"
            f" l{node.replica.last_index} f{node.replica.first_index}"
            for name, node in sorted(self.nodes.items())
        )
