"""Directed schedules for the hosts of clients: sessions that live through a RAISE, and images.

Like all schedules they raise Violation or Stuck if a guarantee is broken. `event_log` checks with
each entry that each event has the host of its session.
"""

from typing import Final

from beanpole import commands as c
from beanpole.core.hosts import HOSTS_SINCE
from beanpole.replication.pysyncobj.repairs import Repairs
from tests.sim.cluster import Violation
from tests.sim.schedules_node import Hand
from tests.sim.schedules_versions import SAID_S, SERVES_S, Upgrading

OLD: Final = HOSTS_SINCE - 1
HOSTS: Final = (b"10.0.0.1", b"10.0.0.2", b"unix")


def hosts_of(world: Upgrading) -> list[bytes]:
    """Return the hosts of all events so far."""
    return [row.host for row in world.witness.events.rows]


def hosts_live_through_images(_: int, repairs: Repairs) -> None:
    """Clients of three hosts hold jobs while the other nodes start from snapshots of them."""
    world = Upgrading(repairs, HOSTS_SINCE)
    world.clock.run(SAID_S)
    stays = world.serving()[0]
    hands = [Hand(world, stays, host) for host in HOSTS]
    for hand in hands:
        hand.hold()
    for name in world.names:
        if name != stays.name:
            world.snapshot(name)
            world.crash(name)
            world.start(name)
            world.wait_for(3)
    for hand in hands:
        hand.put(b"b")
        hand.wait(3)
        if hand.ask(b"reserve") != b"RESERVED":
            raise Violation(f"{hand.replies[-1]} beside a ready job")
    world.check(HOSTS_SINCE)
    wanted = [host for host in HOSTS for _ in range(2)]
    if hosts_of(world) != wanted * 2:
        raise Violation(f"the events are of the hosts {hosts_of(world)}")


def hosts_come_with_the_raise(_: int, repairs: Repairs) -> None:
    """No node reports a host before the RAISE, and sessions from before it have none."""
    world = Upgrading(repairs, OLD)
    world.clock.run(SAID_S)
    world.check(OLD)
    for name in world.names[:2]:
        world.install(name, HOSTS_SINCE)
    early = [Hand(world, host, HOSTS[0]) for host in world.serving()]
    for hand in early:
        hand.put(b"a")
        hand.wait(1)
        if hand.replies[0][0] != b"INSERTED":
            raise Violation(f"a put is answered with {hand.replies[0]} before the raise")
    world.check(OLD)
    world.install(world.names[2], HOSTS_SINCE)
    if not world.clock.run_until(lambda: world.witness.machine.version == HOSTS_SINCE, SERVES_S):
        raise Violation("nothing was raised")
    world.clock.run(SAID_S)
    for hand in early[:2]:
        hand.put(b"b")
        hand.wait(2)
    if any(hosts_of(world)):
        raise Violation(f"sessions from before have the hosts {hosts_of(world)}")
    late = Hand(world, world.serving()[0], HOSTS[1])
    if late.ask(b"reserve") != b"RESERVED":
        raise Violation(f"{late.replies[-1]} beside a ready job")
    world.check(HOSTS_SINCE)
    if hosts_of(world)[-1] != HOSTS[1]:
        raise Violation(f"a new session has the host {hosts_of(world)[-1]!r}")
    if any(command[0] == c.OPEN for command in _last_commands(world)):
        raise Violation("a new session was opened without its host")


def _last_commands(world: Upgrading) -> list[c.Command]:
    """Return the commands of clients after the RAISE."""
    found: list[c.Command] = []
    for _, entry in world.witness.log.values():
        for origin, _, _, commands in c.decode_entry(entry)[3]:
            if origin != c.LEADER:
                found += commands
            elif (c.RAISE, HOSTS_SINCE) in commands:
                found.clear()
    return found
