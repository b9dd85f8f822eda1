"""Directed schedules for upgrades: nodes whose programs know different machine versions.

The newer program behaves like the older one; only the versions it knows differ. Like all schedules
they raise Violation or Stuck if a guarantee is broken.
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
# Longer than it takes to report a version and to commit a RAISE.
SAID_S: Final = 1.0
# Longer than a heartbeat and the period of the life cycle, much shorter than RAISE_PATIENCE_S.
HEARD_S: Final = 0.2


class Upgrading(World):
    """A cluster whose nodes are upgraded; it records nodes that ask for a newer program."""

    def __init__(self, repairs: Repairs, version: int = OLD, finalize: str = "auto") -> None:
        super().__init__(1, 3, **QUICK, upgrade_finalize=finalize)
        self.repairs = repairs
        self.refused: dict[str, str] = {}  # node -> the reason it gave when it ended
        self.versions = dict.fromkeys(self.names, version)
        for name in self.names:
            self.start(name)
        self.wait_for(3)

    def ended(self, host: SimHost) -> None:
        """Record a node that ended because it met a version that its program lacks. See `World`."""
        if host.node.context.knows < self.witness.machine.version:
            self.refused[host.name] = host.end
            self.crash(host.name)
        else:
            super().ended(host)

    def wait_for(self, count: int) -> None:
        """Wait until the given number of nodes serve and one leads."""
        if not self.clock.run_until(lambda: len(self.serving()) == count, SERVES_S):
            raise Stuck(f"{count} nodes should serve: {self.describe()}, {self.refused}")
        if not self.clock.run_until(lambda: self.leader() is not None, SERVES_S):
            raise Stuck(f"nobody leads: {self.describe()}")

    def install(self, name: str, version: int) -> None:
        """Stop a node, install a program that knows a version, start it, and wait for it."""
        if name in self.hosts:
            self.crash(name)
        self.versions[name] = version
        self.start(name)
        self.wait_for(len(self.hosts))

    def finalize(self) -> str:
        """Ask the leader, as an operator, to end the upgrade; returns its refusal, if any."""
        leader = self.leader()
        assert leader is not None, "somebody leads"
        return LocalNodeView(leader.node, trust_of()).finalize(0)[1]

    def follower(self) -> str:
        """Return a node that does not lead."""
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
        """Check that all nodes work at a version, are equal, and raised no false alarm."""
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
        """Let a node write a snapshot, from which its next start begins."""
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


def clients_of_a_new_cluster_miss_nothing(seed: int, repairs: Repairs) -> None:
    """A client that comes as soon as a port opens finds the words of the newest version."""
    world = World(seed, 1 if seed % 4 == 3 else 3, **QUICK)
    world.repairs = repairs
    hosts = [world.start(name) for name in world.names]
    # The heartbeats of one node come late, and the RAISE waits for them.
    late = world.hosts[world.names[seed % len(hosts)]]
    send = late.send_peer
    for host in hosts:
        quiet = partial(_send_but_heartbeats, late.send_peer, host.name)
        late.send_peer = quiet  # type: ignore[method-assign]
    if not world.clock.run_until(lambda: any(map(_is_up, hosts)), SERVES_S):
        raise Stuck(f"no node comes up: {world.describe()}")
    world.clock.after(SAID_S, partial(setattr, late, "send_peer", send))
    while hosts:
        if not world.clock.run_until(lambda: any(host.clients_open for host in hosts), SERVES_S):
            raise Stuck(f"{len(hosts)} nodes do not serve: {world.describe()}")
        host = next(host for host in hosts if host.clients_open)
        hosts.remove(host)
        version = host.node.context.machine.version
        if version != c.MACHINE_VERSION:
            raise Violation(f"{host.name} accepts clients at machine version {version}")
        word = Hand(world, host).ask(b"keep %b 60" % (host.name.encode() * 11))
        if word != b"KEPT":
            raise Violation(f"{host.name} answers {word!r}")


def nodes_wait_for_no_raise_that_cannot_come(_: int, repairs: Repairs) -> None:
    """A node is restarted while another one is older, and the next while that one is away."""
    world = Upgrading(repairs)
    away = world.follower()
    first, second = (name for name in world.names if name != away)
    for name in (first, second):
        world.crash(name)
        world.versions[name] = NEW
        host = world.start(name)
        if not world.clock.run_until(partial(_is_up, host), SERVES_S):
            raise Stuck(f"{name} does not come up: {world.describe()}")
        world.clock.run(HEARD_S)
        if not host.clients_open:
            raise Violation(f"{name} waits for a RAISE that cannot come")
        world.wait_for(len(world.hosts))
        if away in world.hosts:
            world.crash(away)


def _is_up(host: SimHost) -> bool:
    return host.node.origin.up


def one_node_is_upgraded(_: int, repairs: Repairs) -> None:
    """An upgraded node replays the log of the others, acts as they do, and stays equal."""
    world = Upgrading(repairs)
    world.put()
    world.install(world.follower(), NEW)
    world.compare_images()
    world.check(OLD)


def one_after_the_other_is_upgraded(_: int, repairs: Repairs) -> None:
    """The last node's upgrade brings the RAISE at once; a power cut of all does not undo it."""
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
    """In a new term no member has reported a version yet, which does not mean "the same"."""
    world = Upgrading(repairs)
    new = world.follower()
    world.install(new, NEW)
    leader = world.leader()
    assert leader is not None and leader.name != new, "it leads already"
    # Heartbeats to it come late: it is elected, and applies its EPOCH, before it hears one.
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
    """Nothing is raised while a node is away, so it may come back with either program."""
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
    """Two of three nodes are upgraded, and both go back to the older program."""
    world = Upgrading(repairs)
    first, second = world.names[:2]
    for name, version in ((first, NEW), (second, NEW), (first, OLD), (second, OLD)):
        world.install(name, version)
        world.put()
        world.check(OLD)


def an_old_program_comes_back_after_the_raise(_: int, repairs: Repairs) -> None:
    """It stops with a clear message, by the log as by a snapshot; upgraded, it goes on."""
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
    """The next release changes how entries are applied and the image, but only after the RAISE."""
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
    """Each of two releases starts from a snapshot that the other one wrote."""
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
    """With "manual" the way back is open until an operator asks, however long that takes."""
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
    """A member that comes back does not cause a RAISE that was requested and refused before."""
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
