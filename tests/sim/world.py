"""A cluster of whole nodes in one process: real nodes, replicas and machines over simulated hosts.

The nodes are wired as `beanpoled.main` wires them. Belongs here: starting, killing and inspecting
nodes. `storm` decides which faults happen when, and `clients` what clients do.
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
from tests.sim.leases import Leases
from tests.sim.links import SimLinks, is_introduction
from tests.sim.network import Network
from tests.sim.next_release import note_program
from tests.sim.oracle import Oracle
from tests.sim.stops import Stops
from tests.sim.witness import Emitted, Witness

CLUSTER = "sim"
# 2024. Any wall clock far enough from zero would do.
WALL_S = 1_704_067_200.0
LOG_LINES_MAX = 400
RAFT_MIN_MS = next(setting.default for setting in SETTINGS if setting.name == "raft_min_ms")
# Clients pad their short bodies by one of these numbers of bytes.
BODY_BYTES = (0, 0, 10, 200, 900)
# Parts of a node's last message when it ends because its disk failed.
DISK_WORDS = ("could not be written", "cannot write", "has failed", "input/output", "no space")


class WatchedCallbacks(ReplicaCallbacks):
    """The callbacks of a replica, with every applied entry compared with the witness."""

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
        kept = queue.events_kept  # false while entries that are in event files already are replayed
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
        self.world.oracle.deposed(self.world.hosts[self.name])
        self.world.role_changed(self.context)


class WatchedReplica(PySyncObjReplica):
    """A replica that reports its proposals to the witness and to the oracle."""

    world: "World"

    def propose(self, entry: bytes) -> int:
        """See `Replica`."""
        self.world.witness.proposed(entry)
        self.world.oracle.proposed(self.world.hosts[self.node_id])
        return super().propose(entry)


# A part of a node's last message when its program is too old for the log.
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
        self.disks = {name: Disk(self.clock, seed * 100 + at) for at, name in enumerate(self.names)}
        self.hosts: dict[str, SimHost] = {}
        self.overrides = overrides
        self.turn_us_max = overrides.get("raft_min_ms", RAFT_MIN_MS) * 1000 / 2
        self.rejoin: set[str] = set()
        self.versions = dict.fromkeys(self.names, MACHINE_VERSION)  # that each node's program knows
        self.damaged: dict[str, str] = {}  # node that is down -> its file with a flipped bit
        self.lost_disks: set[str] = set()  # nodes that do not count yet since their disk was lost
        self.lost_disks_max = 1
        # Node that is down -> the wrong member list with which an operator starts it.
        self.edited: dict[str, tuple[str, ...]] = {}
        # Set by schedules in which nodes refuse each other, or refuse to start, on purpose.
        self.expects_refusals = False
        self.may_miss_events: set[str] = set()
        self.loads: dict[str, list[float]] = {name: [] for name in self.names}  # of snapshots
        self.stream_dice: random.Random | None = None  # if set, snapshot streams fail at random
        self.frames_go_wrong = False
        self.slowness = 0.0  # factor on the prices of `costs`; 0: work takes no time
        self.frontends: Table = FRONTENDS
        self.body_bytes: tuple[int, ...] = BODY_BYTES
        self.in_flight_max = 1
        self.turn_s = 0.0002
        self.rates = dict.fromkeys(self.names, 1.0)
        self.walls_s = dict.fromkeys(self.names, WALL_S)
        self.walls_move = False  # an operator sets wall clocks
        self.free_bytes = dict.fromkeys(self.names, 2**40)
        self.drains: dict[str, list[list[float]]] = {name: [] for name in self.names}
        self.asleep_until_s = 0.0  # no client connects before this time
        self.witness = Witness(lambda: self.clock.now_s)
        self.oracle = Oracle(self)
        self.leases = Leases(self)
        self.stops = Stops(self)
        self.leaders: dict[int, str] = {}
        self.counts: Counter[str] = Counter()
        self.lines: list[str] = []
        self.trace = sha256()

    def config(self, name: str) -> NodeConfig:
        """Return a node's configuration: small files and short times, so that all is frequent."""
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
            "queue_bytes_max": 2**34,  # independent of this machine: a seed is one life
            "data_dir": f"/{name}",
            "peer_listen": members[name].peer,
            "grpc_listen": members[name].grpc,
            "http_listen": "127.0.0.1:1",
            "rejoin": name in self.rejoin,
            "wal_segment_bytes": 64 * 1024,
            # Also the size of the ballast: 8 MiB for each node of each world would be too much.
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
            # A full disk must let its node start; a disk that fails need not.
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
        """Start the replica of a running node whose disk has just joined a cluster."""
        try:
            self._start_replica(host)
        except (BeanpoleError, OSError) as error:
            host.node.context.fatal(str(error))
        self.counts["disks that joined a cluster"] += 1
        host.peer_links.renew()

    def has_founders(self) -> bool:
        """Whether any disk is part of a cluster, so that an empty disk has to rejoin it."""
        return any(self.is_founded(name) for name in self.names)

    def is_founded(self, name: str) -> bool:
        """Whether a disk is part of a cluster."""
        with suppress(BeanpoleError):
            found = identity.read(self.disks[name], f"/{name}")
            return found is not None and found.runs
        return False

    def _refused_members(self, host: SimHost) -> None:
        """Note that a node refused an edited member list; the next start has the right one."""
        host.alive = False
        del self.hosts[host.name]
        self.counts["refused member lists"] += 1
        self.log(f"{host.name} refuses to start with the members {self.edited.pop(host.name)}")

    def _refused(self, host: SimHost) -> None:
        """Note that a node refused a damaged disk, and replace the disk; the node will rejoin."""
        host.alive = False
        del self.hosts[host.name]
        self.counts["refused starts"] += 1
        self.log(f"{host.name} refuses to start: {self.damaged.pop(host.name)} is damaged")
        self.replace_disk(host.name)

    def replace_disk(self, name: str) -> None:
        """Give a node that is down an empty disk; it rejoins if there is a cluster to rejoin."""
        self.disks[name].wipe()
        self.edited.pop(name, None)  # an empty disk has no member list to compare
        if self.has_founders():
            self.rejoin.add(name)
            self.lost_disks.add(name)
        self.may_miss_events.add(name)
        self.oracle.wiped(name)
        self.counts["lost disks"] += 1

    def may_lose_disk(self) -> bool:
        """Whether another disk may be lost and the nodes with intact disks remain a majority."""
        for lost in sorted(self.lost_disks):
            host = self.hosts.get(lost)
            if host is not None and host.ready and not host.node.context.replica.rejoining:
                self.lost_disks.discard(lost)
                self.rejoin.discard(lost)
        return not self.damaged and len(self.lost_disks) < self.lost_disks_max

    def crash(self, name: str, notice_s: float = 0.0) -> None:
        """Kill a node; its disk loses what was not synced."""
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
        """Handle a process that ended itself: in order, or with a reason."""
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
        # The disk may have recovered by the time its process ends because of an earlier error.
        if not self.disks[host.name].erred or not any(words in host.end for words in DISK_WORDS):
            raise Violation(f"{host.name} stopped itself: {host.end}")
        disk = self.disks[host.name]
        if disk.capacity_bytes is not None and not disk.refused:
            raise Violation(f"{host.name} ended because its disk was full: {host.end}")
        self.log(f"{host.name} stopped itself: {host.end}")
        self.crash(host.name)
        self.counts["ends by a failed disk"] += 1

    def _upgrade(self, host: SimHost) -> None:
        """Install a newer program on a node that met a machine version which its program lacks."""
        newest = self.witness.machine.version
        later = range(host.node.context.knows + 1, newest + 1)
        # After several raises the node names the first version that its program does not know.
        if not any(f"{NEEDS_VERSION} {one}, this program knows" in host.end for one in later):
            raise Violation(f"{host.name} stopped itself: {host.end}")
        self.versions[host.name] = newest
        self.crash(host.name)
        self.counts["programs that were too old"] += 1

    def killed(self, host: SimHost) -> None:
        """Handle a process that died at a call of its disk, perhaps before it was ready."""
        self.counts["deaths at a call" if host.ready else "deaths within a start"] += 1
        self.crash(host.name)

    def complained(self, host: SimHost, line: str) -> None:
        """Check that a node that ends a link has a reason: a planted bad frame or a failed disk."""
        if line.startswith("link to ") and self.frames_go_wrong:
            self.counts["links cut for a bad frame"] += 1
        elif "cannot be made" not in line or not self.disks[host.name].erred:
            raise Violation(f"{host.name} complains: {line}")

    def drained(self, name: str, on: bool) -> None:
        """Note that a node begins or ends to refuse puts."""
        times = self.drains[name]
        if on:
            times.append([self.clock.now_s, float("inf")])
        elif times and times[-1][1] == float("inf"):
            times[-1][1] = self.clock.now_s

    def role_changed(self, node: Context) -> None:
        """Check that a term has one leader (R1)."""
        replica = node.replica
        if replica.role == "leader":
            holder = self.leaders.setdefault(replica.term, node.name)
            if holder != node.name:
                raise Violation(f"{holder} and {node.name} both lead term {replica.term}")

    def log(self, line: str) -> None:
        """Keep the newest lines, which are printed when a seed fails, and act on some of them."""
        if " counting " in line:
            self.counts["cold starts"] += 1
            if self.walls_move:
                self.witness.misled.append(self.clock.now_s)
        name, _, words = line.partition(" ")
        if words.startswith("no link to ") and not self.expects_refusals:
            raise Violation(f"{name} says: {words}")
        if words.startswith("loaded a snapshot"):
            self.loads[name].append(self.clock.now_s)
        if words.startswith("events "):
            self._about_events(name, words)
        self.leases.said(name, words)
        self.stops.said(name, words)
        self.lines.append(f"{self.clock.now_s:.4f} {line}")
        self.trace.update(self.lines[-1].encode())
        if len(self.lines) > 2 * LOG_LINES_MAX:
            del self.lines[:LOG_LINES_MAX]

    def _about_events(self, name: str, words: str) -> None:
        """Check that a node drops events only because of its disk, or a clock that was set."""
        by_age = self.walls_move and "above event_retain_" in words
        allowed = by_age or "below twice the disk's reserve" in words or self.disks[name].erred
        if not allowed or "cannot be made columns" in words:
            raise Violation(f"{name} says: {words}")
        self.may_miss_events.add(name)

    def digest(self) -> str:
        """Return the hash of everything that was sent and logged."""
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
        """Whether all nodes run, follow one leader and have applied its whole log."""
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
        """Compare the state of each node with the witness's, byte by byte."""
        expected = image_crc(self.witness.machine)
        for name, host in sorted(self.hosts.items()):
            machine = host.node.context.machine
            if machine.index != self.witness.machine.index:
                raise Violation(f"{name} is at {machine.index}, not {self.witness.machine.index}")
            if machine.state_hash != self.witness.machine.state_hash:
                raise Violation(f"the state hash of {name} differs")
            if image_crc(machine) != expected:
                raise Violation(f"the image of {name} differs, but its state hash does not")
            # A clock that is years ahead makes all events old enough to be removed.
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


def image_crc(machine: Any) -> int:
    """Return the CRC of the canonical image."""
    whole = image.Image(machine)
    crc = 0
    while (chunk := whole.next_chunk()) is not None:
        crc = crc32c(chunk, crc)
    whole.close()
    return crc
