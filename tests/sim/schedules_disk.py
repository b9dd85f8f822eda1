"""Directed schedules for full disks, of whole nodes and of replicas alone.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if a guarantee is broken. Other schedules for nodes are in `schedules_node`.
"""

from typing import Any, Final

from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpole.replication.pysyncobj.snapshot_header import SnapshotHeader
from beanpole.replication.pysyncobj.snapshots import FULL_PERIOD_S
from tests.sim.cluster import Cluster, Violation
from tests.sim.host import SimHost
from tests.sim.lone import Lone
from tests.sim.schedules_node import Hand, quick_world
from tests.sim.storm import Stuck
from tests.sim.world import World

MIB: Final = 1024 * 1024
BODY_BYTES: Final = 60_000
# Small disks, and files that are small relative to them.
SMALL: Final[dict[str, Any]] = {
    "max_job_size": BODY_BYTES,
    "disk_reserve_bytes": 8 * MIB,
    "snapshot_bytes_min": 4 * MIB,
    "log_memory_bytes": MIB,
    "log_retain_bytes": MIB,
    "wal_segment_bytes": MIB,
}
DISK_BYTES: Final = 64 * MIB


def _small_disks(repairs: Repairs, size: int = 3, **over: Any) -> tuple[World, SimHost]:
    world, leader = quick_world(repairs, size, **{**SMALL, **over})
    for disk in world.disks.values():
        disk.capacity_bytes = DISK_BYTES
    return world, leader


def _fill(world: World, hand: Hand) -> int:
    """Put until puts are refused; returns the number of jobs."""
    jobs = 0
    while jobs * BODY_BYTES < DISK_BYTES:
        hand.put(b"x" * BODY_BYTES)
        hand.wait(len(hand.replies) + 1)
        if hand.replies[-1][0] == b"OUT_OF_MEMORY":
            return jobs
        jobs += 1
    raise Violation(f"{jobs} jobs of {BODY_BYTES} bytes were put on disks of {DISK_BYTES}")


def _restart(world: World) -> SimHost:
    """Crash all nodes and start them again; returns the new leader."""
    for name in world.names:
        world.crash(name)
    for name in world.names:
        world.start(name)
    if not world.clock.run_until(lambda: len(world.serving()) == len(world.names), 20.0):
        raise Stuck(f"not all nodes serve after a start on full disks: {world.describe()}")
    leader = world.leader()
    assert leader is not None
    return leader


def _all_lived(world: World, hosts: dict[str, SimHost]) -> None:
    ended = [host.name for host in hosts.values() if not host.alive]
    if ended or world.counts["ends by a failed disk"]:
        raise Violation(f"{ended} ended because a disk was full")


def _put_again(world: World, host: SimHost) -> None:
    hand = Hand(world, host)
    for _ in range(100):
        hand.put(b"again")
        hand.wait(len(hand.replies) + 1)
        if hand.replies[-1][0] == b"INSERTED":
            return
        world.clock.run(0.2)
    raise Stuck("everything was deleted, and puts are still refused")


def full_disks_end_puts_and_nothing_else(_: int, repairs: Repairs) -> None:
    """Audit 4: disks are filled, restarted while full, worked empty, and filled again."""
    world, leader = _small_disks(repairs)
    for round_ in range(2):
        hosts = dict(world.hosts)
        hand = Hand(world, leader)
        jobs = _fill(world, hand)
        if not round_ and jobs * BODY_BYTES < DISK_BYTES // 5:
            raise Violation(f"puts are refused after {jobs} jobs of {BODY_BYTES} bytes")
        world.clock.run(2.0)
        _all_lived(world, hosts)
        leader = _restart(world)
        hosts = dict(world.hosts)
        hand = Hand(world, leader)
        for _place in range(world.witness.machine.queue.ready):
            if hand.ask(b"reserve-with-timeout 0") != b"RESERVED":
                raise Stuck("a job on a full disk is not given out")
            number = hand.replies[-1][1][0]
            if hand.ask(b"delete %d" % number) != b"DELETED":
                raise Stuck("a job on a full disk is not deleted")
        _all_lived(world, hosts)
        _put_again(world, leader)
        _all_lived(world, hosts)


def workers_go_on_for_ever_on_full_disks(_: int, repairs: Repairs) -> None:
    """Commands that make no job grow the log, too, so it is cut again and again."""
    world, leader = _small_disks(repairs, disk_reserve_bytes=MIB, wal_segment_bytes=256 * 1024)
    for disk in world.disks.values():
        disk.capacity_bytes = 24 * MIB
    hosts = dict(world.hosts)
    hand = Hand(world, leader)
    _fill(world, hand)
    end = leader.node.context.replica.disk().bytes_written + 18 * MIB
    while leader.node.context.replica.disk().bytes_written < end:
        for place in range(600):
            hand.send(b"pause-tube %b 0" % (b"a" * 199 + b"ab"[place % 2 : place % 2 + 1]))
        hand.wait(len(hand.replies) + 600, 10.0)
        _all_lived(world, hosts)
    if hand.ask(b"reserve-with-timeout 0", 10.0) != b"RESERVED":
        raise Stuck("nothing goes on")


def nodes_start_although_others_took_the_whole_disk(_: int, repairs: Repairs) -> None:
    """The ballast has room for the small files of a start, and for the log at first."""
    world, leader = _small_disks(repairs)
    hand = Hand(world, leader)
    hand.put(b"a")
    hand.wait(1)
    world.clock.run(2.0)
    for name in world.names:
        world.crash(name)
    for disk in world.disks.values():
        disk.taken_bytes += disk.free_bytes("")
    for name in world.names:
        world.start(name)
    if not world.clock.run_until(lambda: len(world.serving()) == len(world.names), 20.0):
        raise Stuck(f"not all nodes serve after a start on full disks: {world.describe()}")
    hosts = dict(world.hosts)
    hand = Hand(world, world.serving()[0])
    if hand.ask(b"reserve-with-timeout 1", 5.0) != b"RESERVED":
        raise Stuck("a job on a full disk is not given out")
    _all_lived(world, hosts)


def one_disk_is_full_and_the_others_go_on(_: int, repairs: Repairs) -> None:
    """A node with a full disk takes no more of the log, and catches up when there is room."""
    world, leader = _small_disks(repairs)
    name = next(name for name in world.names if name != leader.name)
    hosts = dict(world.hosts)
    disk = world.disks[name]
    disk.taken_bytes += disk.free_bytes("") - 2 * MIB
    world.clock.run(1.0)
    hand = Hand(world, leader)
    for _place in range(200):
        hand.put(b"x" * BODY_BYTES)
        hand.wait(len(hand.replies) + 1)
        if hand.replies[-1][0] != b"INSERTED":
            raise Violation(f"a put is answered {hand.replies[-1][0]!r} because of one full disk")
        _all_lived(world, hosts)
    disk.taken_bytes = 0
    if not world.clock.run_until(world.is_equal, 20.0):
        raise Stuck(f"{name} does not catch up when there is room: {world.describe()}")
    _all_lived(world, hosts)


def a_snapshot_meets_a_full_disk(_: int, repairs: Repairs) -> None:
    """The snapshot is given up; the replica goes on, and makes one when there is room."""
    lone = Lone(repairs=repairs)
    lone.disk.capacity_bytes = DISK_BYTES
    lone.elect()
    for _place in range(20):
        index = lone.replica.propose(b"x" * 60_000)
        lone.run(0.02)
        lone.acknowledge("n1", index)
        lone.run(0.02)
    lone.replica.compact()
    while lone.replica.imaging:
        lone.clock.now_s += 0.05
        lone.replica.slice_image()
    lone.disk.taken_bytes += lone.disk.free_bytes("")  # before the replica can notice
    lone.run(1.0)
    if lone.reason is not None:
        raise Violation(f"a full disk ended the node: {lone.reason}")
    if lone.disk.list("/n0/snapshots"):
        raise Violation("what was written of a snapshot is left on a full disk")
    lone.disk.taken_bytes = 0
    lone.run(FULL_PERIOD_S + 0.1)
    lone.replica.compact()
    lone.run(1.0)
    if not lone.replica.snapshot_index:
        raise Stuck("there is room again, and no snapshot is made")


def a_fetch_meets_a_full_disk(_: int, repairs: Repairs) -> None:
    """The fetch is given up, and repeated when there is room."""
    lone = Lone(repairs=repairs)
    lone.disk.capacity_bytes = DISK_BYTES
    lone.append("n1", 1, (1, 0), [(1, b"a")] * 10, commit=8)
    lone.run(0.1)
    for round_ in (2, 3):
        lone.receive("n1", messages.OFFER, 1, round_, 50, 1)
        sink, done = lone.fetches.pop()[2:]
        sink.write(SnapshotHeader(50, 1, 1).encode())
        sink.write(b"machine")
        lone.disk.taken_bytes = lone.disk.free_bytes("") if round_ == 2 else 0
        done(None)
        lone.run(0.1)
        if lone.reason is not None:
            raise Violation(f"a full disk ended the node: {lone.reason}")
        lone.disk.taken_bytes = 0
        lone.run(FULL_PERIOD_S + 0.1)
    if lone.replica.applied_index != 50:
        raise Stuck("there is room again, and the snapshot is not installed")


def a_snapshot_that_is_not_installed(_: int, repairs: Repairs) -> None:
    """The log is not cut behind entries that are not applied."""
    lone = Lone(repairs=repairs, log_retain_bytes=10)
    lone.append("n1", 1, (1, 0), [(1, b"%d" % index) for index in range(2, 12)], commit=8)
    lone.run(0.05)
    lone.receive("n1", messages.OFFER, 1, 2, 20, 1)
    lone.append("n2", 2, (11, 1), [(1, b"%d" % index) for index in range(12, 31)])
    lone.run(0.05)
    sink, done = lone.fetches.pop()[2:]
    sink.write(SnapshotHeader(20, 1, 1).encode())
    sink.write(b"machine")
    done(None)
    lone.run(2.5)
    if lone.replica.first_index > lone.replica.applied_index:
        raise Violation(
            f"the log begins at {lone.replica.first_index}, applied is {lone.replica.applied_index}"
        )


def the_snapshot_of_a_running_leader_is_damaged(_: int, repairs: Repairs) -> None:
    """A member that lost its disk needs it, and later the leader itself, at its next start."""
    cluster = Cluster(3, repairs=repairs, snapshot_bytes_min=20_000, log_retain_bytes=2_000)
    leader = cluster.wait_leader()
    lost = next(name for name in cluster.names if name != leader.name)
    cluster.crash(lost)
    cluster.disks[lost].wipe()
    cluster.rejoin.add(lost)
    cluster.put(leader, 300, 300)
    cluster.clock.run(2.5)
    source = leader.replica.snapshot_source()
    assert source is not None, "the log is longer than snapshot_bytes_min"
    leader.disk.flip(source[0].path, source[0].bytes // 2)
    cluster.start(lost)
    last = leader.replica.last_index
    if not cluster.clock.run_until(lambda: cluster.nodes[lost].replica.applied_index >= last, 20.0):
        raise Stuck(f"{lost} cannot catch up by a damaged snapshot: {cluster.describe()}")
    cluster.restart(leader.name)
    cluster.put(cluster.wait_leader(), 10)
    cluster.converge()
