"""Directed schedules for nodes that are sick and not dead: disks that hang, links that flap.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if a guarantee is broken. Crashes and cuts are in `schedules_node`.
"""

from functools import partial

from beanpole.replication.consensus import UNWRITTEN_BYTES_MAX
from beanpole.replication.pysyncobj import journal, transport
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpole.storage.wal import Wal
from beanpoled.turn import disk_health
from tests.sim.cluster import Violation
from tests.sim.host import HostFiles, SimHost
from tests.sim.mutations import Patch, nothing, planted
from tests.sim.schedules_node import Hand, quick_world
from tests.sim.storm import Stuck
from tests.sim.wire import Wire
from tests.sim.witness import Witness
from tests.sim.world import WatchedCallbacks, World

# Longer than any schedule.
FOR_EVER_S = 1e6


def a_link_flaps_while_the_disks_hang(_: int, repairs: Repairs) -> None:
    """Batches that an origin resends on each new link wait at the leader only once."""
    world, leader = quick_world(repairs)
    followers = [host for host in world.hosts.values() if host is not leader]
    for host in followers:
        world.disks[host.name].latency_s = 5.0
    origin, inbox = followers[0], leader.node.leader.proposer.inbox
    hands = [Hand(world, origin) for _ in range(20)]
    for hand in hands:
        hand.put(b"a")
        world.clock.run(0.01)
    for _ in range(6):
        world.network.reset(origin.name, leader.name)
        world.clock.run(0.1)
        numbers = [batch[2] for batch in inbox.batches if batch[0] == origin.node.context.index]
        if len(numbers) != len(set(numbers)):
            raise Violation(f"{len(numbers)} batches wait at the leader, {len(set(numbers))} once")
    for host in followers:
        world.disks[host.name].hasten(0.0005)
    for hand in hands:
        hand.wait(1)
    if len(world.witness.machine.queue.jobs) != len(hands):
        raise Stuck("not every put was made once")


def two_replicas_differ_while_the_third_is_away(_: int, repairs: Repairs) -> None:
    """Neither of two differing replicas knows that it is right, so neither serves."""
    world, leader = quick_world(repairs)
    victim, away = (host for host in world.hosts.values() if host is not leader)
    ends: list[str] = []

    def ended(host: SimHost) -> None:
        ends.append(host.end)
        world.crash(host.name)

    vars(world)["ended"] = ended
    world.crash(away.name)
    honest = WatchedCallbacks.apply

    def apply(node: WatchedCallbacks, index: int, term: int, entry: bytes) -> None:
        queue = node.context.machine.queue
        queue.next_id += node.context.name == victim.name and b"spoils" in entry
        honest(node, index, term, entry)

    hand = Hand(world, leader)
    # The witness would notice at once; here the nodes must notice by themselves.
    quiet: list[Patch] = [
        (Witness, "check_chain", nothing),
        (Witness, "check_events", nothing),
        (WatchedCallbacks, "apply", apply),
    ]
    with planted(partial(list, quiet)):
        hand.put(b"a job that spoils one")
        hand.wait(1)
        world.clock.run(2.0)
    if len(world.serving()) > 1:
        raise Violation("two replicas that differ both serve")
    if not any("no majority" in reason for reason in ends):
        raise Stuck(f"they ended otherwise: {ends}")


# --- disks that hang ------------------------------------------------------------------------------

# A tenth of the real sizes, so that a schedule reaches the bounds in seconds.
BODY = b"x" * 6_000
UNWRITTEN_BYTES = UNWRITTEN_BYTES_MAX // 10
PAUSE_S = 0.005


class Feeder(Hand):
    """A client that puts large bodies, eight at a time, and measures its longest wait."""

    def __init__(self, world: World, host: SimHost) -> None:
        super().__init__(world, host)
        self.inserted = 0
        self.longest_s = 0.0
        self._asked_s = 0.0
        self._feed()

    def _feed(self) -> None:
        self._asked_s = self.world.clock.now_s
        self._wire.send((b"put 0 0 600 %d\r\n%b\r\n" % (len(BODY), BODY)) * 8)

    def received(self, wire: Wire, data: bytes) -> None:
        """Put again when all puts are answered."""
        super().received(wire, data)
        if len(self.replies) == 8:
            self.inserted += sum(word == b"INSERTED" for word, *_ in self.replies)
            self.replies.clear()
            self.longest_s = max(self.longest_s, self.world.clock.now_s - self._asked_s)
            self.world.clock.after(PAUSE_S, self._feed)


def _in_small(world: World) -> list[Patch]:
    """Return smaller bounds, and a check that no loop waits for a disk that hangs."""
    sync, free_bytes = Wal.sync, HostFiles.free_bytes

    def measured_elsewhere(self: HostFiles, path: str) -> int:
        disk = world.disks[path.split("/")[1]]
        if disk.latency_s == FOR_EVER_S and not disk.working:
            raise Violation("the loop waits for the free space of a disk that hangs")
        return free_bytes(self, path)

    def never_waits(self: Wal) -> None:
        name = self._directory.split("/")[1]
        if self._running is not None and world.disks[name].latency_s == FOR_EVER_S:
            raise Violation("the loop waits for a disk that hangs")
        sync(self)

    return [
        (Wal, "sync", never_waits),
        (HostFiles, "free_bytes", measured_elsewhere),
        (journal, "UNWRITTEN_BYTES_MAX", UNWRITTEN_BYTES),
        (disk_health, "BEHIND_BYTES_MAX", UNWRITTEN_BYTES // 2),
        (transport, "WINDOW_BYTES", transport.WINDOW_BYTES // 10),
    ]


def _hanging(repairs: Repairs, durability: str = "sync", size: int = 3) -> tuple[World, SimHost]:
    return quick_world(
        repairs,
        size,
        durability=durability,
        max_job_size=65_535,
        log_memory_bytes=2**20,
        log_retain_bytes=2**20,
        wal_segment_bytes=2**24,
        snapshot_bytes_min=2**40,
        events="off",
    )


def _check_memory(host: SimHost) -> None:
    """Check that the bytes a node keeps for its disk are bounded."""
    log = host.node.context.replica.log_on_disk()
    if log.end - log.written > 1.2 * UNWRITTEN_BYTES:
        raise Violation(f"{host.name} keeps {log.end - log.written} bytes for its disk")


def the_disk_of_a_leader_hangs_for_ever(_: int, repairs: Repairs, durability: str = "sync") -> None:
    """Another member leads within a moment, and the old leader closes its clients."""
    world, leader = _hanging(repairs, durability)
    host = next(host for host in world.hosts.values() if host is not leader)
    feeder, lost = Feeder(world, host), Hand(world, leader)
    lost.hold()
    world.clock.run(0.2)
    world.disks[leader.name].latency_s = FOR_EVER_S
    with planted(partial(_in_small, world)):
        for _ in range(50):
            world.clock.run(0.1)
            _check_memory(leader)
        if world.leader() is leader:
            raise Violation("a leader whose disk hangs leads for ever")
        before = feeder.inserted
        world.clock.run(1.0)
        if feeder.inserted == before or feeder.longest_s > 1.5:
            raise Stuck(f"a client of {host.name} waited for {feeder.longest_s:.1f} s")
        if not lost.gone:
            raise Stuck(f"{leader.name} keeps its clients although it is left behind")
        # The others go on as if the node was away, also when they must elect.
        world.network.reset(host.name, leader.name)
        world.clock.run(1.0)
    world.disks[leader.name].hasten(0.0005)
    if not world.clock.run_until(lambda: len(world.serving()) == 3, 10.0):
        raise Stuck(f"{leader.name} does not serve again: {world.describe()}")


def the_disk_of_a_leader_in_memory_hangs_for_ever(_: int, repairs: Repairs) -> None:
    """Where commits do not wait for disks, a hanging disk costs no more memory either."""
    the_disk_of_a_leader_hangs_for_ever(0, repairs, "memory")


def the_disk_of_a_follower_hangs_for_ever(_: int, repairs: Repairs) -> None:
    """A hanging follower costs the other nodes nothing, and itself a bounded buffer."""
    world, leader = _hanging(repairs)
    victim = next(host for host in world.hosts.values() if host is not leader)
    world.disks[victim.name].latency_s = FOR_EVER_S
    with planted(partial(_in_small, world)):
        feeder = Feeder(world, leader)
        for place in range(40):
            world.clock.run(0.1)
            if place % 10 == 9:
                # Each new link, and each new leader, begins without knowing what is in flight.
                world.network.reset(leader.name, victim.name)
            _check_memory(victim)
    if world.leader() is not leader or feeder.longest_s > 0.5:
        raise Stuck(f"a client of the leader waited for {feeder.longest_s:.1f} s")
    world.disks[victim.name].hasten(0.0005)
    node = victim.node
    if not world.clock.run_until(lambda: node.lifecycle.caught_up() and node.serving, 10.0):
        raise Stuck(f"{victim.name} does not catch up: {world.describe()}")


def the_free_space_of_a_leader_is_not_told(_: int, repairs: Repairs) -> None:
    """A node that cannot measure its disk is not ready, and its clients are served by its log."""
    world, leader = _hanging(repairs)
    hand, node, disk = Hand(world, leader), leader.node, world.disks[leader.name]
    disk.looks_hang = True
    for _place in range(100):
        hand.put(b"a")
        hand.wait(len(hand.replies) + 1)
        if hand.gone or hand.replies[-1][0] != b"INSERTED":
            raise Violation(f"{leader.name} does not serve, although its log is written")
        world.clock.run(0.1)
    if not node.disk_health.hangs:
        raise Violation(f"{leader.name} waits for its free space, and does not notice")
    disk.looks_hang = False
    disk.hasten(0.0005)
    world.clock.run(0.5)
    if node.disk_health.hangs:
        raise Stuck("the disk tells its free space again, and still counts as one that hangs")


def the_free_space_is_told_nowhere(_: int, repairs: Repairs) -> None:
    """Disks that write are good for a leader: shared storage may not answer `statvfs` at all."""
    world, leader = _hanging(repairs)
    for disk in world.disks.values():
        disk.looks_hang = True
    if not world.clock.run_until(lambda: leader.node.disk_health.hangs, 10.0):
        raise Stuck(f"{leader.name} does not notice that its free space is not told")
    world.crash(leader.name)
    others = list(world.hosts.values())
    if not world.clock.run_until(lambda: any(host.node.leader.term.number for host in others), 10):
        raise Violation(f"no node leads, although each disk writes: {world.describe()}")


def a_lone_disk_hangs(_: int, repairs: Repairs) -> None:
    """A single node has no one to hand over to: it keeps a bounded buffer, and loses nothing."""
    world, leader = quick_world(repairs, 1)
    hand = Hand(world, leader)
    hand.hold()
    world.disks["n0"].latency_s = FOR_EVER_S
    late = [Hand(world, leader) for _ in range(50)]
    for other in late:
        other.put(b"a")
    world.clock.run(5.0)
    _check_memory(leader)
    if hand.gone or world.leader() is not leader:
        raise Stuck("a client is closed that asked for nothing")
    world.disks["n0"].hasten(0.0005)
    if hand.ask(b"stats-tube default") != b"OK":
        raise Stuck("it does not go on")


def a_lone_disk_in_memory_hangs(_: int, repairs: Repairs) -> None:
    """Alone and in memory, only the bound of the unwritten log waits for the disk."""
    world, leader = _hanging(repairs, "memory", 1)
    world.disks["n0"].latency_s = FOR_EVER_S
    with planted(partial(_in_small, world)):
        Feeder(world, leader)
        for _ in range(40):
            world.clock.run(0.1)
            _check_memory(leader)
    world.disks["n0"].hasten(0.0005)
    if not world.clock.run_until(lambda: len(world.serving()) == 1, 10.0):
        raise Stuck(f"it does not serve again: {world.describe()}")
    if Hand(world, leader).ask(b"stats-tube default") != b"OK":
        raise Stuck("it does not go on")


# --- processes that stand still -------------------------------------------------------------------


def a_leader_is_frozen_with_its_clients(_: int, repairs: Repairs) -> None:
    """The others go on; after the thaw its clients are closed without another answer."""
    world, leader = quick_world(repairs)
    other = next(host for host in world.hosts.values() if host is not leader)
    hands = [Hand(world, leader) for _ in range(4)]
    holder, waiter, asker, putter = hands
    holder.hold()
    waiter.send(b"reserve")
    for hand in (asker, putter):
        hand.ask(b"peek-ready")
    world.clock.run(0.1)
    before = [len(hand.replies) for hand in hands]
    leader.pause(6.0)
    holder.send(b"delete 1")
    asker.send(b"reserve-with-timeout 0")
    putter.put(b"never")
    worker = Hand(world, other)
    if worker.ask(b"reserve", 5.0) != b"RESERVED":
        raise Stuck("the job of a frozen leader is not given to another worker")
    if worker.ask(b"delete 1") != b"DELETED":
        raise Violation("a job is reserved that its worker cannot delete")
    if not leader.paused:
        raise Stuck("the others took longer than the leader was frozen")
    if not world.clock.run_until(lambda: not leader.paused, 6.0):
        raise Stuck("it does not thaw")
    if not world.clock.run_until(lambda: all(hand.gone for hand in hands), 0.5):
        raise Stuck("clients of a leader that thawed are not closed")
    if [len(hand.replies) for hand in hands] != before:
        raise Violation("a leader that was declared down answered when it thawed")
    if b"never" in world.witness.bodies.values():
        raise Violation("a put was made after its node was declared down")
