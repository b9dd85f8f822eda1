"""Directed schedules for upgrades: hosts whose programs know different machine versions.

The newer program does nothing else than the older one; what differs is which versions it knows.
Like all schedules they raise Violation or Stuck if a promise is broken.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from beanpole import commands as c
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpoled.leading.proposing import DIGEST_PERIOD_US
from beanpoled.links import frames
from beanpoled.node_view import LocalNodeView
from tests.sim import next_release
from tests.sim.cluster import Violation
from tests.sim.host import SimHost
from tests.sim.schedules_node import Hand
from tests.sim.storm import QUICK, Stuck
from tests.sim.world import World
from tests.unit.beanpoled.fakes import trust_of

Send = Callable[[str, int, bytes], bool]

OLD: Final = c.BASE_VERSION
NEW: Final = next_release.VERSION
SERVES_S: Final = 8.0
# Longer than it takes to say a version, and to commit a RAISE.
SAID_S: Final = 1.0


class Upgrading(World):
    """A cluster whose nodes are upgraded; a node that asks for a newer program is noted."""

    def __init__(self, repairs: Repairs, version: int = OLD, finalize: str = "auto") -> None:
        super().__init__(1, 3, **QUICK, upgrade_finalize=finalize)
        self.repairs = repairs
        self.refused: dict[str, str] = {}  # node -> what it said when it ended
        self.versions = dict.fromkeys(self.names, version)
        for name in self.names:
            self.start(name)
        self.wait_for(3)

    def ended(self, host: SimHost) -> None:
        """A node that met a version which it may not know has said so, and is down."""
        if host.node.context.knows < self.witness.machine.version:
            self.refused[host.name] = host.end
            self.crash(host.name)
        else:
            super().ended(host)

    def wait_for(self, count: int) -> None:
        """Wait until this many nodes serve and one leads."""
        if not self.clock.run_until(lambda: len(self.serving()) == count, SERVES_S):
            raise Stuck(f"{count} nodes should serve: {self.describe()}, {self.refused}")
        if not self.clock.run_until(lambda: self.leader() is not None, SERVES_S):
            raise Stuck(f"nobody leads: {self.describe()}")

    def install(self, name: str, version: int) -> None:
        """Stop a node, install a program that knows this version, start it, and wait for it."""
        if name in self.hosts:
            self.crash(name)
        self.versions[name] = version
        self.start(name)
        self.wait_for(len(self.hosts))

    def finalize(self) -> str:
        """An operator asks the leader to end the upgrade: what it refuses with, or nothing."""
        leader = self.leader()
        assert leader is not None, "somebody leads"
        return LocalNodeView(leader.node, trust_of()).finalize(0)[1]

    def follower(self) -> str:
        """A node that does not lead."""
        leader = self.leader()
        return next(name for name in sorted(self.hosts) if self.hosts[name] is not leader)

    def put(self) -> None:
        """Put a job at every node."""
        for host in self.serving():
            hand = Hand(self, host)
            hand.put(b"a")
            hand.wait(1)
            hand.send(b"quit")

    def check(self, version: int) -> None:
        """All nodes work at this version, are equal, and none has complained."""
        if not self.clock.run_until(self.is_equal, SERVES_S):
            raise Stuck(f"the nodes do not become equal: {self.describe()}")
        for name, host in sorted(self.hosts.items()):
            found = host.node.context.machine.version
            if found != version:
                raise Violation(f"{name} works at machine version {found}, not {version}")
        self.check_equal()
        if any("differs" in line for line in self.lines):
            raise Violation("a false alarm: " + self.lines[-1])

    def snapshot(self, name: str) -> None:
        """Let a node write a snapshot, from which it starts the next time."""
        replica = self.hosts[name].node.context.replica
        wanted = replica.applied_index
        replica.compact()
        if not self.clock.run_until(lambda: replica.snapshot_index >= wanted, SERVES_S):
            raise Stuck(f"{name} has made no snapshot: {self.describe()}")

    def compare_images(self) -> None:
        """Wait until the nodes have compared their images, and go on."""
        self.put()
        self.clock.run(DIGEST_PERIOD_US / 1e6 + SAID_S)
        self.put()
        self.clock.run(SAID_S)
        for name, host in sorted(self.hosts.items()):
            if not host.node.agreement.image[0]:
                raise Stuck(f"{name} has made no digest")


def one_node_is_upgraded(_: int, repairs: Repairs) -> None:
    """It replays the log of the others, does what they do, and nobody sees a difference."""
    world = Upgrading(repairs)
    world.put()
    world.install(world.follower(), NEW)
    world.compare_images()
    world.check(OLD)


def one_after_the_other_is_upgraded(_: int, repairs: Repairs) -> None:
    """The last one brings the RAISE, at once; a power cut of all does not take it back."""
    world = Upgrading(repairs)
    for name in world.names:
        world.check(OLD)
        world.put()
        world.install(name, NEW)
    world.clock.run(SAID_S)
    world.put()
    world.check(NEW)
    for name in world.names:
        world.crash(name)
    for name in world.names:
        world.start(name)
    world.wait_for(3)
    world.compare_images()
    world.check(NEW)
    if world.refused:
        raise Violation(f"an upgraded node stopped: {world.refused}")


def an_upgraded_node_leads_before_it_has_heard(_: int, repairs: Repairs) -> None:
    """In its term nobody has said a version yet: that is not "the same as mine"."""
    world = Upgrading(repairs)
    new = world.follower()
    world.install(new, NEW)
    leader = world.leader()
    assert leader is not None and leader.name != new, "it leads already"
    # Their heartbeats come late: it is elected, and has its EPOCH applied, before it hears one.
    loud = {host: host.send_peer for host in world.hosts.values() if host.name != new}
    for host, send in loud.items():
        quiet = partial(_send_but_heartbeats, send, new)
        host.send_peer = quiet  # type: ignore[method-assign]
    leader.node.context.replica.transfer(new)
    if not world.clock.run_until(lambda: world.leader() is world.hosts.get(new), SERVES_S):
        raise Stuck(f"{new} does not lead: {world.describe()}, {world.refused}")
    world.clock.run(SAID_S)
    for host, send in loud.items():
        host.send_peer = send  # type: ignore[method-assign]
    if world.refused:
        raise Violation(f"an old node was stopped: {world.refused}")
    world.check(OLD)


def _send_but_heartbeats(send: Send, silent: str, peer: str, kind: int, payload: bytes) -> bool:
    return True if (peer, kind) == (silent, frames.HEARTBEAT) else send(peer, kind, payload)


def a_node_is_away_while_the_others_are_upgraded(_: int, repairs: Repairs) -> None:
    """It may come back with either program: as long as it is away, nothing is raised."""
    world = Upgrading(repairs)
    away = world.follower()
    world.crash(away)
    for name in world.names:
        if name != away:
            world.install(name, NEW)
    world.put()
    world.clock.run(3 * SAID_S)
    world.install(away, OLD)
    world.clock.run(SAID_S)
    if world.refused:
        raise Violation(f"an old node was stopped: {world.refused}")
    world.check(OLD)
    world.install(away, NEW)
    world.clock.run(SAID_S)
    world.check(NEW)


def a_node_goes_back_before_the_raise(_: int, repairs: Repairs) -> None:
    """Two of three are upgraded, and both go back to the older program."""
    world = Upgrading(repairs)
    first, second = world.names[:2]
    for name, version in ((first, NEW), (second, NEW), (first, OLD), (second, OLD)):
        world.install(name, version)
        world.put()
        world.check(OLD)


def an_old_program_comes_back_after_the_raise(_: int, repairs: Repairs) -> None:
    """It stops with the sentence, by the log as by a snapshot; upgraded, it goes on."""
    for snapshot in (False, True):
        world = Upgrading(repairs, NEW)
        world.clock.run(SAID_S)
        world.put()
        world.check(NEW)
        name = world.follower()
        if snapshot:
            world.hosts[name].node.context.replica.compact()
            world.clock.run(SAID_S)
            if not world.hosts[name].node.context.replica.snapshot_index:
                raise Stuck(f"{name} has made no snapshot")
        world.crash(name)
        world.versions[name] = OLD
        world.start(name)
        world.clock.run(SERVES_S)
        words = f"need machine version {NEW}, this program knows up to {OLD}: upgrade beanpoled"
        if words not in world.refused.get(name, ""):
            raise Violation(f"{name} did not stop: {world.describe()}, {world.refused}")
        world.put()
        world.install(name, NEW)
        world.check(NEW)


def a_change_waits_for_the_raise(_: int, repairs: Repairs) -> None:
    """The next release applies an entry in another way and writes another image: after RAISE."""
    with next_release.installed():
        world = Upgrading(repairs)
        for name in (world.follower(), *world.names):
            world.put()
            world.install(name, NEW)
            world.compare_images()
        world.check(NEW)
        if world.refused:
            raise Violation(f"an upgraded node stopped: {world.refused}")


def snapshots_of_both_versions_are_read(_: int, repairs: Repairs) -> None:
    """The next release starts from a snapshot of the older one, and that one from one of it."""
    with next_release.installed():
        world = Upgrading(repairs)
        name = world.follower()
        for version in (NEW, OLD, NEW):
            world.put()
            world.snapshot(name)
            world.install(name, version)
            world.check(OLD)
        for other in world.names:
            world.install(other, NEW)
        world.clock.run(SAID_S)
        world.put()
        world.snapshot(name)
        world.install(name, NEW)
        world.compare_images()
        world.check(NEW)


def an_operator_ends_the_upgrade(_: int, repairs: Repairs) -> None:
    """With "manual" the way back is open until somebody asks, however long that takes."""
    world = Upgrading(repairs, finalize="manual")
    for name in world.names:
        world.install(name, NEW)
    world.clock.run(3 * SAID_S)
    world.put()
    world.check(OLD)
    back = world.follower()
    world.install(back, OLD)
    world.clock.run(SAID_S)
    if f"{back} knows up to {OLD} and must be upgraded" not in world.finalize():
        raise Violation(f"an upgrade ends while {back} runs the older program")
    world.install(back, NEW)
    world.clock.run(SAID_S)
    world.check(OLD)
    if world.finalize():
        raise Stuck(f"the upgrade cannot end: {world.finalize()}")
    world.clock.run(SAID_S)
    world.put()
    world.check(NEW)
    if world.finalize():
        raise Violation(f"what is done is refused: {world.finalize()}")


def a_refused_wish_is_forgotten(_: int, repairs: Repairs) -> None:
    """A member that comes back does not bring a RAISE that somebody wanted before."""
    world = Upgrading(repairs, finalize="manual")
    for name in world.names:
        world.install(name, NEW)
    away = world.follower()
    world.crash(away)
    world.clock.run(SAID_S)
    if f"{away} is away" not in world.finalize():
        raise Violation(f"an upgrade ends while {away} is away")
    world.install(away, NEW)
    world.clock.run(3 * SAID_S)
    world.put()
    world.check(OLD)
