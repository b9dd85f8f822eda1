"""A cluster of whole nodes in one process: real nodes, replicas and machines over simulated hosts.

Wired as `beanpoled.main` wires them. Belongs here: starting, killing and looking at nodes. Which
faults happen when is decided by `storm`, what clients do by `clients`.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from crc32c import crc32c

from beanpole.commands import MACHINE_VERSION
from beanpole.core.image import image
from beanpole.errors import BeanpoleError
from beanpole.replication.consensus import Image, Sink
from beanpole.replication.pysyncobj.backend import PySyncObjReplica
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpole.storage.ballast import make_room_to_start
from beanpoled.config.node import SETTINGS, NodeConfig
from beanpoled.config.protocols import FIRST
from beanpoled.config.settings import Addresses
from beanpoled.disk import identity
from beanpoled.disk.disks import Disks
from beanpoled.disk.identity import DISK_ID_BYTES
from beanpoled.frontends.table import FRONTENDS, Table
from beanpoled.main import replica_config
from beanpoled.shared.context import Context
from beanpoled.turn.callbacks import ReplicaCallbacks
from beanpoled.turn.node import Node
from tests.sim.clock import Clock
from tests.sim.cluster import Violation
from tests.sim.costs import METER, CostlyImage
from tests.sim.disk import Disk
from tests.sim.host import SimHost
from tests.sim.links import SimLinks, is_introduction
from tests.sim.network import Network
from tests.sim.next_release import note_program
from tests.sim.oracle import Oracle
from tests.sim.stops import Stops
from tests.sim.witness import Emitted, Witness

CLUSTER = "sim"
# 2024: any wall clock far enough from zero.
WALL_S = 1_704_067_200.0
LOG_LINES_MAX = 400
RAFT_MIN_MS = next(setting.default for setting in SETTINGS if setting.name == "raft_min_ms")
# What clients draw the size of a body from, beside a number of some bytes.
BODY_BYTES = (0, 0, 10, 200, 900)
# What a node says when it ends because its disk failed.
DISK_WORDS = ("could not be written", "cannot write", "has failed", "input/output", "no space")


class WatchedCallbacks(ReplicaCallbacks):
    """What a replica tells its node: applied entries are compared with the witness."""

    def __init__(self, node: Node, world: "World") -> None:
        leader = node.leader
        super().__init__(
            node.context,
            node.events,
            node.agreement,
            node.digest,
            node.origin,
            leader,
            node.roles,
            node.lifecycle,
            node.clients.listeners,
            node.clients.publications,
        )
        self.context = node.context
        self.name = node.context.name
        self.world = world
        self.witness = world.witness

    def apply(self, index: int, term: int, entry: bytes) -> None:
        """See `Callbacks`."""
        if index not in self.witness.log:
            self.world.oracle.committed(self.name, index)
        self.witness.committed(self.name, index, term, entry)
        queue = self.context.machine.queue
        kept = queue.events_kept  # not while the log brings again what is in files
        emitted = Emitted.watch(queue)
        super().apply(index, term, entry)
        self.witness.check_chain(self.name, index, self.context.machine.state_hash)
        METER.us += self.witness.costs[index]
        if kept:
            self.witness.check_events(self.name, index, emitted.crc, queue.events_total)

    def load_image(self, chunks: Iterator[bytes]) -> None:
        """See `Callbacks`."""
        super().load_image(chunks)
        note_program(self.context.machine, self.context.knows)

    def begin_image(self) -> Image:
        """See `Callbacks`."""
        return CostlyImage(super().begin_image())

    def fetch_snapshot(
        self, peer: str, index: int, sink: Sink, done: Callable[[str | None], None]
    ) -> None:
        """See `Callbacks`."""
        self.world.may_miss_events.add(self.name)
        super().fetch_snapshot(peer, index, sink, done)

    def role_changed(self) -> None:
        """See `Callbacks`."""
        super().role_changed()
        self.world.role_changed(self.context)


class WatchedReplica(PySyncObjReplica):
    """A replica whose proposals are noted."""

    world: "World"

    def propose(self, entry: bytes) -> int:
        """See `Replica`."""
        self.world.witness.proposed(entry)
        self.world.oracle.proposed(self.world.hosts[self.node_id])
        return super().propose(entry)


# What a node says before it ends because its program is too old for the log.
NEEDS_VERSION: Final = "need machine version"


class World:
    """Nodes, the network between them, their disks, and the witness."""

    def __init__(self, seed: int, size: int = 3, **overrides: Any) -> None:
        self.seed = seed
        self.repairs = ALL_REPAIRS
        self.dice = random.Random(seed * 7919 + 1)
        self.clock = Clock()
        self.network = Network(self.clock, seed + 1)
        self.network.streams = self.network.dials = True
        self.network.untraced = is_introduction
        self.names = tuple(f"n{place}" for place in range(size))
        self.disks = {
            name: Disk(self.clock, seed * 100 + place) for place, name in enumerate(self.names)
        }
        self.hosts: dict[str, SimHost] = {}
        self.overrides = overrides
        self.turn_us_max = overrides.get("raft_min_ms", RAFT_MIN_MS) * 1000 / 2
        self.rejoin: set[str] = set()
        self.versions = dict.fromkeys(self.names, MACHINE_VERSION)  # that each program knows
        self.damaged: dict[str, str] = {}  # node that is down -> the file with a flipped bit
        self.lost_disks: set[str] = set()  # until those nodes count again
        self.lost_disks_max = 1
        # Node that is down -> the member list with which somebody starts it.
        self.edited: dict[str, tuple[str, ...]] = {}
        # A schedule in which nodes refuse each other, or their own start, on purpose.
        self.expects_refusals = False
        self.may_miss_events: set[str] = set()
        self.loads: dict[str, list[float]] = {name: [] for name in self.names}  # of snapshots
        self.stream_dice: random.Random | None = None  # snapshots on their way go wrong
        self.frames_go_wrong = False
        self.slowness = 0.0  # how much slower than priced the processors are; 0: work takes no time
        self.frontends: Table = FRONTENDS
        self.body_bytes: tuple[int, ...] = BODY_BYTES
        self.in_flight_max = 1
        self.turn_s = 0.0002
        self.rates = dict.fromkeys(self.names, 1.0)
        self.walls_s = dict.fromkeys(self.names, WALL_S)
        self.walls_move = False  # somebody sets wall clocks
        self.free_bytes = dict.fromkeys(self.names, 2**40)
        self.drains: dict[str, list[list[float]]] = {name: [] for name in self.names}
        self.fences: dict[str, list[float]] = {name: [] for name in self.names}
        self.asleep_until_s = 0.0  # clients do not try to connect before
        self.witness = Witness(lambda: self.clock.now_s)
        self.oracle = Oracle(self)
        self.stops = Stops(self)
        self.leaders: dict[int, str] = {}
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self.trace = sha256()

    def config(self, name: str) -> NodeConfig:
        """Return a node's configuration: small files and short times, so that all happens often."""
        members = {
            other: Addresses(f"127.0.0.1:{1000 + place}", f"127.0.0.1:{2000 + place}")
            for place, other in enumerate(self.names)
            if other in self.edited.get(name, self.names)
        }
        values: dict[str, Any] = {setting.name: setting.default for setting in SETTINGS}
        values |= {
            "cluster": CLUSTER,
            "node_id": name,
            "members": MappingProxyType(members),
            "queue_bytes_max": 2**34,  # not of this machine: a seed is the same life on all
            "data_dir": f"/{name}",
            "peer_listen": members[name].peer,
            "grpc_listen": members[name].grpc,
            "http_listen": "127.0.0.1:1",
            "rejoin": name in self.rejoin,
            "wal_segment_bytes": 64 * 1024,
            # Which is also the ballast: not eight megabytes for each node of each world.
            "disk_reserve_bytes": 64 * 1024,
            **self.overrides,
        }
        return NodeConfig(**values)

    # --- nodes ------------------------------------------------------------------------------------

    def start(self, name: str) -> SimHost:
        """Start a node on its disk."""
        host = SimHost(self, name)
        self.hosts[name] = host
        host.guard(lambda: self._boot(host))
        return host

    def _boot(self, host: SimHost) -> None:
        name, config = host.name, self.config(host.name)
        make_room_to_start(host.files, config.data_dir)
        try:
            disks = Disks(host.files, config, self.dice.randbytes(DISK_ID_BYTES))
            host.node = node = Node(config, host, disks, self.versions[name], self.frontends)
            note_program(node.context.machine, node.context.knows)
            node.callbacks = WatchedCallbacks(node, self)
            self.stops.watch(host)
            host.peer_links = SimLinks(host)
            node.introductions.begin = lambda: self._begin(host)
            node.leader.saved_clock.load()
            if disks.own.runs:
                self._start_replica(host)
        except BeanpoleError as error:
            if name in self.edited and "member" in str(error):
                self._refused_members(host)
                return
            if name in self.damaged:
                self._refused(host)
                return
            if self.expects_refusals:
                host.fatal(str(error))
            raise Violation(f"{name} does not start: {error}") from error
        except OSError as error:
            # A disk that has an end must let it start; one that refuses need not.
            if not self.disks[name].refuses_by_itself:
                raise Violation(f"{name} does not start: {error}") from error
            self.counts["starts that a disk refused"] += 1
            self.crash(name)
            return
        if name in self.edited:
            raise Violation(f"{name} started with the members {self.edited[name]}")
        if name in self.damaged:
            raise Violation(f"{name} started although {self.damaged[name]} is damaged")
        host.joined = True
        self.network.join(name, host)
        host.peer_links.begin()

    def _start_replica(self, host: SimHost) -> None:
        node = host.node
        config = replica_config(node.context.config, node.context.disks)
        replica = WatchedReplica(config, node.callbacks, host.files, self.repairs)
        replica.world = self
        if len(self.names) > 1:
            replica.in_flight_max = self.in_flight_max
        node.start(replica)
        host.ready = True
        self.oracle.started(host.name)

    def _begin(self, host: SimHost) -> None:
        """The disk of a node that runs already knows its cluster now."""
        try:
            self._start_replica(host)
        except (BeanpoleError, OSError) as error:
            host.node.context.fatal(str(error))
        self.counts["disks that joined a cluster"] += 1
        host.peer_links.renew()

    def has_founders(self) -> bool:
        """Whether a disk is part of a cluster, so that an empty one has to rejoin it."""
        return any(self.is_founded(name) for name in self.names)

    def is_founded(self, name: str) -> bool:
        """Whether a disk is part of a cluster."""
        with suppress(BeanpoleError):
            found = identity.read(self.disks[name], f"/{name}")
            return found is not None and found.runs
        return False

    def _refused_members(self, host: SimHost) -> None:
        """A member list that was edited was noticed: it is put back for the next start."""
        host.alive = False
        del self.hosts[host.name]
        self.counts["refused member lists"] += 1
        self.log(f"{host.name} refuses to start with the members {self.edited.pop(host.name)}")

    def _refused(self, host: SimHost) -> None:
        """A damaged disk was noticed: somebody replaces it, and the node will rejoin."""
        host.alive = False
        del self.hosts[host.name]
        self.counts["refused starts"] += 1
        self.log(f"{host.name} refuses to start: {self.damaged.pop(host.name)} is damaged")
        self.replace_disk(host.name)

    def replace_disk(self, name: str) -> None:
        """Give a node that is down an empty disk; it rejoins, if there is a cluster to rejoin."""
        self.disks[name].wipe()
        self.edited.pop(name, None)  # an empty disk has nothing to compare it with
        if self.has_founders():
            self.rejoin.add(name)
            self.lost_disks.add(name)
        self.may_miss_events.add(name)
        self.oracle.wiped(name)
        self.counts["lost disks"] += 1

    def may_lose_disk(self) -> bool:
        """Whether a disk may be lost: so few at a time that the others are a majority."""
        for lost in sorted(self.lost_disks):
            host = self.hosts.get(lost)
            if host is not None and host.ready and not host.node.context.replica.rejoining:
                self.lost_disks.discard(lost)
                self.rejoin.discard(lost)
        return not self.damaged and len(self.lost_disks) < self.lost_disks_max

    def crash(self, name: str, notice_s: float = 0.0) -> None:
        """Lose a node with what its disk had not synced."""
        host = self.hosts[name]
        if host.ready:
            self.oracle.died(host)
        del self.hosts[name]
        host.alive = False
        self.drained(name, False)
        if host.joined:
            self.network.leave(name)
        self.disks[name].crash()
        for wire in list(host.wires):
            wire.died(notice_s)
        self.log(f"{name} crashed")

    def ended(self, host: SimHost) -> None:
        """A process ended itself: in order, or it says why."""
        if not host.end:
            self.crash(host.name)
            self.counts["stops"] += 1
            return
        if self.expects_refusals:
            self.log(f"{host.name} stopped itself: {host.end}")
            self.crash(host.name)
            self.counts["ends that were expected"] += 1
            return
        if host.node.context.knows < self.witness.machine.version and NEEDS_VERSION in host.end:
            self._upgrade(host)
            return
        # The disk may be well again when the process hears that it was not.
        if not self.disks[host.name].erred or not any(words in host.end for words in DISK_WORDS):
            raise Violation(f"{host.name} stopped itself: {host.end}")
        disk = self.disks[host.name]
        if disk.capacity_bytes is not None and not disk.refused:
            raise Violation(f"{host.name} ended because its disk was full: {host.end}")
        self.log(f"{host.name} stopped itself: {host.end}")
        self.crash(host.name)
        self.counts["ends by a failed disk"] += 1

    def _upgrade(self, host: SimHost) -> None:
        """A node has met a machine version that its program does not know: it asks for another."""
        newest = self.witness.machine.version
        later = range(host.node.context.knows + 1, newest + 1)
        # There may have been several raises, and it meets the first that it does not know.
        if not any(f"{NEEDS_VERSION} {one}, this program knows" in host.end for one in later):
            raise Violation(f"{host.name} stopped itself: {host.end}")
        self.versions[host.name] = newest
        self.crash(host.name)
        self.counts["programs that were too old"] += 1

    def killed(self, host: SimHost) -> None:
        """A process died at a call of its disk, perhaps before it was ready."""
        self.counts["deaths at a call" if host.ready else "deaths within a start"] += 1
        self.crash(host.name)

    def complained(self, host: SimHost, line: str) -> None:
        """A node ends a link and says why: there is no reason but what somebody planted."""
        if line.startswith("link to ") and self.frames_go_wrong:
            self.counts["links cut for a bad frame"] += 1
        elif "cannot be made" not in line or not self.disks[host.name].erred:
            raise Violation(f"{host.name} complains: {line}")

    def drained(self, name: str, on: bool) -> None:
        """A node begins, or ends, to refuse puts."""
        times = self.drains[name]
        if on:
            times.append([self.clock.now_s, float("inf")])
        elif times and times[-1][1] == float("inf"):
            times[-1][1] = self.clock.now_s

    def role_changed(self, node: Context) -> None:
        """R1: a term has one leader."""
        replica = node.replica
        if replica.role == "leader":
            holder = self.leaders.setdefault(replica.term, node.name)
            if holder != node.name:
                raise Violation(f"{holder} and {node.name} both lead term {replica.term}")

    def log(self, line: str) -> None:
        """Keep the newest lines, to look at when a seed fails."""
        if " counting " in line:
            self.counts["cold starts"] += 1
            if self.walls_move:
                self.witness.misled.append(self.clock.now_s)
        name, _, words = line.partition(" ")
        if words.endswith("closing all clients"):
            self.fences[name].append(self.clock.now_s)
        if words.startswith("no link to ") and not self.expects_refusals:
            raise Violation(f"{name} says: {words}")
        if words.startswith("loaded a snapshot"):
            self.loads[name].append(self.clock.now_s)
        if words.startswith("events "):
            self._about_events(name, words)
        self.stops.said(name, words)
        self.lines.append(f"{self.clock.now_s:.4f} {line}")
        self.trace.update(self.lines[-1].encode())
        if len(self.lines) > 2 * LOG_LINES_MAX:
            del self.lines[:LOG_LINES_MAX]

    def _about_events(self, name: str, words: str) -> None:
        """A node says that it does not keep some events: only disks may be the reason."""
        allowed = "below twice the disk's reserve" in words or self.disks[name].erred
        if not allowed or "cannot be made columns" in words:
            raise Violation(f"{name} says: {words}")
        self.may_miss_events.add(name)

    def digest(self) -> str:
        """Return the hash of everything that was sent and said."""
        return sha256(self.network.trace.digest() + self.trace.digest()).hexdigest()

    # --- looking ----------------------------------------------------------------------------------

    def leader(self) -> SimHost | None:
        """Return the node that leads and serves in the highest term."""
        leading = [
            host
            for host in self.hosts.values()
            if host.alive
            and host.node.leader.term.serving
            and host.node.context.replica.role == "leader"
        ]
        return max(leading, key=lambda host: host.node.context.replica.term, default=None)

    def serving(self, protocol: str = FIRST) -> list[SimHost]:
        """Return the nodes that accept clients of a protocol."""
        hosts = [self.hosts[name] for name in sorted(self.hosts)]
        return [host for host in hosts if protocol in host.open_protocols and not host.paused]

    def is_equal(self) -> bool:
        """Whether all nodes run, follow one leader and have applied the same."""
        leader = self.leader()
        if leader is None or len(self.hosts) < len(self.names):
            return False
        last = leader.node.context.replica.last_index
        return all(
            host.node.context.replica.applied_index == last
            and host.node.context.replica.leader == leader.name
            for host in self.hosts.values()
        )

    def check_equal(self) -> None:
        """Compare the nodes' whole states with the witness's, byte by byte."""
        expected = _image_crc(self.witness.machine)
        for name, host in sorted(self.hosts.items()):
            machine = host.node.context.machine
            if machine.index != self.witness.machine.index:
                raise Violation(f"{name} is at {machine.index}, not {self.witness.machine.index}")
            if machine.state_hash != self.witness.machine.state_hash:
                raise Violation(f"the running digest of {name} differs")
            if _image_crc(machine) != expected:
                raise Violation(f"the image of {name} differs, but its running digest does not")
            # A clock that is set ahead by years makes all events old.
            whole = name not in self.may_miss_events and not self.walls_move
            self.counts["events read"] += self.witness.events.check(host, whole)
            self.counts["whole event logs"] += whole

    def describe(self) -> str:
        """Return every node's state, for failure messages."""
        parts = []
        for name, host in sorted(self.hosts.items()):
            node, replica = host.node, host.node.context.replica
            parts.append(
                f"{name} {replica.role} t{replica.term} c{replica.commit_index} "
                f"a{replica.applied_index} l{replica.last_index} i{node.origin.incarnation}"
                f"{' up' if node.origin.up else ''}{' serves' if host.clients_open else ''}"
                f"{' paused' if host.paused else ''} links {sorted(host.links)}"
            )
        return "; ".join(parts)


def _image_crc(machine: Any) -> int:
    whole = image.Image(machine)
    crc = 0
    while (chunk := whole.next_chunk()) is not None:
        crc = crc32c(chunk, crc)
    whole.close()
    return crc
