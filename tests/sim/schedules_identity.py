"""Directed schedules at the edge of a life: disks that are lost, copied, or restored.

Here nodes refuse to start, or refuse each other, on purpose. A schedule raises Violation if an
acknowledged job is lost or a second cluster begins, and Stuck if healthy nodes make no progress.
"""

import dataclasses
from functools import partial
from typing import Any, Final

from beanpole.replication.pysyncobj.repairs import Repairs
from beanpoled.config.node import NodeConfig
from tests.sim.cluster import Violation
from tests.sim.disk import Inode
from tests.sim.host import SimHost
from tests.sim.schedules_node import Hand, job_of
from tests.sim.storm import QUICK, Stuck
from tests.sim.world import World

SERVES_S: Final = 8.0
# Longer than any election takes.
QUIET_S: Final = 6.0
# More calls than a start on an empty disk makes.
CALLS_MAX: Final = 40

Names = dict[str, Inode]


class Edge(World):
    """A cluster whose operators make mistakes."""

    def __init__(self, repairs: Repairs, seed: int = 1) -> None:
        super().__init__(seed, 3, **QUICK)
        self.repairs = repairs
        self.oracle.judges = False  # the verdict here is what clients lose
        self.edits: dict[str, dict[str, Any]] = {}
        self.ends: dict[str, str] = {}  # node -> the reason it gave when it ended
        for name in self.names:
            self.start(name)
        self.wait_for(3)
        self.expects_refusals = True

    def config(self, name: str) -> NodeConfig:
        """See `World`."""
        return dataclasses.replace(super().config(name), **getattr(self, "edits", {}).get(name, {}))

    def ended(self, host: SimHost) -> None:
        """See `World`."""
        self.ends[host.name] = host.end
        super().ended(host)

    def start(self, name: str) -> SimHost:
        """See `World`."""
        getattr(self, "ends", {}).pop(name, None)
        return super().start(name)

    def wait_for(self, count: int) -> None:
        """Wait until the given number of nodes serve."""
        if not self.clock.run_until(lambda: len(self.serving()) == count, SERVES_S):
            raise Stuck(f"{count} nodes should serve: {self.describe()}; {self.lines[-20:]}")

    def roles(self) -> tuple[SimHost, SimHost, SimHost]:
        """Return the leader and the two others."""
        leader = self.leader()
        assert leader is not None
        one, other = [self.hosts[name] for name in self.names if name != leader.name]
        return leader, one, other

    def put(self, name: str) -> int:
        """Put a job at a node; returns its id once it is acknowledged."""
        hand = Hand(self, self.hosts[name])
        hand.put(b"kept")
        hand.wait(1)
        return job_of(hand)

    def must_refuse(self, name: str, words: str) -> None:
        """Check that a node has ended, or ends soon, with the given reason."""
        self.clock.run_until(lambda: name in self.ends, SERVES_S)
        if words not in self.ends.get(name, ""):
            raise Violation(f"{name} should refuse ({words}): {self.ends.get(name, 'it runs')!r}")

    def must_have(self, job: int) -> None:
        """Check that no node serves without the job."""
        self.clock.run(QUIET_S)
        for host in self.serving():
            if Hand(self, host).ask(b"peek %d" % job) != b"FOUND":
                raise Violation(f"job {job} was answered INSERTED and is lost at {host.name}")

    def must_be_whole(self, job: int) -> None:
        """Start the nodes that are down; all must serve, with the job, and go on."""
        for name in self.names:
            if name not in self.hosts:
                self.start(name)
        self.wait_for(3)
        self.must_have(job)
        self.put(self.names[0])

    # --- disks ------------------------------------------------------------------------------------

    def lose(self, name: str, folder: str = "") -> None:
        """Remove a folder of a node that is down, or everything on its disk."""
        disk = self.disks[name]
        for names in (disk._names, disk._durable_names):
            for path in [path for path in names if path.startswith(f"/{name}/{folder}")]:
                del names[path]
        for path in [path for path in disk._directories if path.startswith(f"/{name}/{folder}")]:
            disk._directories.discard(path)

    def copy(self, name: str) -> Names:
        """Return a backup of a node's disk."""
        return {path: _copied(inode) for path, inode in self.disks[name]._durable_names.items()}

    def restore(self, name: str, backup: Names) -> None:
        """Restore a backup to a node that is down."""
        disk = self.disks[name]
        disk._names = {path: _copied(inode) for path, inode in backup.items()}
        disk._durable_names = dict(disk._names)


def _copied(inode: Inode) -> Inode:
    copy = Inode()
    copy.data = bytearray(inode.data)
    return copy


def _a_job_of_two(world: Edge) -> tuple[SimHost, SimHost, SimHost, int]:
    """Put a job that the leader and the third node have; the second node was cut off meanwhile."""
    leader, second, third = world.roles()
    world.network.isolate(second.name)
    world.clock.run(0.2)
    return leader, second, third, world.put(leader.name)


def _without(world: Edge, leader: SimHost, third: SimHost) -> None:
    """Crash the leader, heal the network, and start the third node on its present disk."""
    world.crash(leader.name)
    world.network.heal()
    world.start(third.name)


def _counts(world: Edge, name: str) -> bool:
    """Whether a node takes part and has a vote."""
    host = world.hosts.get(name)
    return host is not None and host.ready and not host.node.context.replica.rejoining


# --- a disk that lost something -------------------------------------------------------------------


def a_flag_is_forgotten_after_a_death_in_the_start(_: int, repairs: Repairs) -> None:
    """Finding 1: after any death in a start with --rejoin, a start without it never votes."""
    for calls in range(CALLS_MAX):
        world = Edge(repairs)
        leader, _second, third, job = _a_job_of_two(world)
        world.crash(third.name)
        world.replace_disk(third.name)
        world.disks[third.name].calls_left = calls
        world.start(third.name)
        died = third.name not in world.hosts
        if not died:
            world.crash(third.name)
        world.disks[third.name].calls_left = None
        world.rejoin.discard(third.name)
        _without(world, leader, third)
        if world.clock.run_until(partial(_counts, world, third.name), 2.0):
            raise Violation(f"{third.name} votes with an empty disk")
        world.must_have(job)
        if not died:
            return
    raise Stuck("a start makes more calls than that")


def a_log_folder_is_gone(_: int, repairs: Repairs) -> None:
    """Finding 2: the mount of a log is missing, and a new log in its place must not vote."""
    world = Edge(repairs)
    leader, _second, third, job = _a_job_of_two(world)
    world.crash(third.name)
    world.lose(third.name, "log/")
    _without(world, leader, third)
    world.must_have(job)
    world.must_refuse(third.name, "the log is gone")


def a_disk_is_restored_from_an_earlier_life(_: int, repairs: Repairs) -> None:
    """Finding 2: the other nodes know a later incarnation of a restored disk."""
    world = Edge(repairs)
    leader, _second, third = world.roles()
    backup = world.copy(third.name)
    world.crash(third.name)
    world.start(third.name)
    world.wait_for(3)
    leader, _second, _third, job = _a_job_of_two(world)
    if leader.name == third.name:
        raise Stuck("another node should lead")
    if third.name in world.hosts:
        world.crash(third.name)
    world.restore(third.name, backup)
    _without(world, leader, third)
    world.must_have(job)
    if third.name in world.hosts and world.serving():
        raise Violation(f"{third.name} takes part with an older disk")
    # With a majority of nodes that know better, it reports that and ends.
    world.start(leader.name)
    world.must_refuse(third.name, "it is an older copy")


def a_disk_is_restored_from_an_earlier_moment(_: int, repairs: Repairs) -> None:
    """Finding 2: any node that knows what a restored disk had refuses it, within one life."""
    world = Edge(repairs)
    leader, second, third = world.roles()
    backup = world.copy(third.name)
    jobs = [world.put(leader.name) for _ in range(3)]
    world.clock.run(0.5)
    world.crash(third.name)
    world.restore(third.name, backup)
    world.crash(leader.name)
    world.start(third.name)
    world.clock.run(QUIET_S)
    if third.name in world.hosts[second.name].links:
        raise Violation(f"{second.name} talks to a disk that lost what it had")
    world.must_have(jobs[-1])
    world.start(leader.name)
    world.wait_for(2)
    world.must_have(jobs[-1])


def an_older_copy_meets_one_that_knows_and_one_that_does_not(_: int, repairs: Repairs) -> None:
    """An older copy and a restarted node must not form a majority against the node that knows."""
    world = Edge(repairs)
    first, copied, behind = world.roles()
    backup = world.copy(copied.name)
    world.network.isolate(behind.name)
    world.clock.run(0.2)
    job = world.put(first.name)
    world.clock.run(0.5)
    world.crash(copied.name)
    world.crash(behind.name)
    world.restore(copied.name, backup)
    apart = (first.name, behind.name)
    world.network.partition([apart, apart[::-1]])
    world.start(behind.name)
    world.start(copied.name)
    world.clock.run(QUIET_S)
    world.network.heal()
    world.must_have(job)
    world.must_refuse(copied.name, "it is an older copy")
    world.wait_for(2)


def two_disks_are_wiped(_: int, repairs: Repairs) -> None:
    """Finding 3: two empty disks never found a cluster, with or without the third node."""
    world = Edge(repairs)
    kept, *wiped = world.names
    job = world.put(kept)
    for name in world.names:
        world.crash(name)
    for name in wiped:
        world.disks[name].wipe()
        world.start(name)
    world.clock.run(QUIET_S)
    if world.serving() or world.leader() is not None:
        raise Violation("two empty disks began a cluster")
    waiting = world.hosts[wiped[0]].node.introductions.waiting_for()
    if kept not in waiting:
        raise Violation(f"{wiped[0]} waits for {waiting}")
    world.start(kept)
    for name in wiped:
        world.must_refuse(name, f"{name} has an empty disk")
    world.must_have(job)
    if world.serving():
        raise Violation(f"{kept} serves without a majority")


def two_fresh_disks_and_one_that_rejoins(_: int, repairs: Repairs) -> None:
    """No cluster is founded beside a disk whose owner knows that there was one."""
    world = Edge(repairs)
    job = world.put("n0")
    for name in world.names:
        world.crash(name)
        if name != "n0":
            world.disks[name].wipe()
    kept = world.copy("n0")
    world.disks["n0"].wipe()
    world.rejoin.add("n0")
    for name in world.names:
        world.start(name)
    world.clock.run(QUIET_S)
    if world.serving():
        raise Violation("a cluster began beside a disk that rejoins")
    for name in world.names:
        world.crash(name)
    world.rejoin = {"n1"}
    world.restore("n0", kept)
    for name in world.names[:2]:
        world.start(name)
    world.must_have(job)


# --- lists, other clusters, other versions --------------------------------------------------------


def a_list_is_cut_to_its_own_node(_: int, repairs: Repairs) -> None:
    """A shortened list must not found a second cluster on the same jobs, which later clashes."""
    world = Edge(repairs)
    job = world.put("n0")
    world.crash("n0")
    members = world.config("n0").members
    world.edits["n0"] = {"members": {"n0": members["n0"]}}
    world.start("n0")
    world.clock.run(1.0)
    world.must_refuse("n0", "this disk is part of n0, n1, n2: put the list back")
    world.edits.clear()
    world.must_be_whole(job)


def a_peer_has_another_configuration(_: int, repairs: Repairs) -> None:
    """Finding C: a peer with another configuration is refused; a healthy node beside it starts."""
    world = Edge(repairs)
    job = world.put("n0")
    world.crash("n2")
    world.edits["n2"] = {"durability": "memory"}
    world.crash("n1")
    world.start("n2")
    world.start("n1")
    world.wait_for(2)
    if "n1" in world.ends:
        raise Violation(f"n1 ended because of n2: {world.ends['n1']}")
    world.must_refuse("n2", "durability (config hash) differs")
    world.edits.clear()
    world.must_be_whole(job)


def a_peer_knows_only_later_versions(_: int, repairs: Repairs) -> None:
    """A peer with only later versions is refused, and no node ends because of it."""
    world = Edge(repairs)
    job = world.put("n0")
    for name in ("n1", "n2"):
        world.crash(name)
    introductions = vars(world.start("n2").node.introductions)
    hello = world.hosts["n2"].node.introductions.hello
    introductions["hello"] = lambda nonce: hello(nonce)._replace(version_min=8, version_max=9)
    world.start("n1")
    world.wait_for(2)
    world.clock.run(QUIET_S)
    if world.ends:
        raise Violation(f"a version ends nodes: {world.ends}")
    del introductions["hello"]
    world.must_be_whole(job)


def a_disk_of_another_life_is_put_in(_: int, repairs: Repairs) -> None:
    """All names are equal; only the birth id tells the two clusters apart."""
    other = Edge(repairs, seed=2)
    other.put("n1")
    world = Edge(repairs)
    job = world.put("n0")
    world.crash("n1")
    kept = world.copy("n1")
    world.restore("n1", other.copy("n1"))
    world.start("n1")
    world.must_refuse("n1", "is part of the cluster with the birth id")
    world.must_have(job)
    world.restore("n1", kept)
    world.must_be_whole(job)


def a_founder_comes_late(_: int, repairs: Repairs) -> None:
    """A node that dies, or loses power, while a cluster is founded is part of it afterwards."""
    for calls in range(CALLS_MAX):
        for victims in (("n0",), ("n2",), ("n0", "n1", "n2")):
            world = World(calls, 3, **QUICK)
            world.repairs = repairs
            for name in victims:
                world.disks[name].calls_left = calls
            for name in world.names:
                world.start(name)
            world.clock.run(0.5)
            for name in world.names:
                world.disks[name].calls_left = None
                if name not in world.hosts:
                    world.start(name)
            _must_be_one(world, f"a death at call {calls} of {victims}")


def _must_be_one(world: World, what: str) -> None:
    """Check that all nodes serve and are part of one cluster."""
    if not world.clock.run_until(lambda: len(world.serving()) == 3, SERVES_S):
        raise Stuck(f"{what}: {world.describe()}")
    births = {host.node.context.disks.own.birth for host in world.hosts.values()}
    if len(births) != 1:
        raise Violation(f"{what}: {len(births)} clusters were founded")
