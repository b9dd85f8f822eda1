"""Directed schedules for limits: the largest requests, and the most at once, that clients may send.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if a guarantee is broken.
"""

from typing import Any

from beanpole.constants import (
    BATCH_COMMANDS_MAX,
    DEDUP_KEY_MAX_BYTES,
    JOB_SIZE_MAX_BYTES,
    KICK_MAX,
    KICKS_PER_ENTRY_MAX,
    TRANSITIONS_PER_ENTRY_MAX,
    TUBE_NAME_MAX_BYTES,
    U32_MAX,
)
from beanpole.core.machine import Machine
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpoled.rpc.call import Call
from tests.sim.cluster import Violation
from tests.sim.host import SimHost
from tests.sim.schedules_node import Hand, follower, quick_world
from tests.sim.storm import Stuck
from tests.sim.world import World

# A body of a call that passes every check: a batch of them is as large as it may be.
SMALL_BODY = b"x" * 488


def calls_of_the_largest_jobs(_: int, repairs: Repairs) -> None:
    """Many small jobs and a body of 2 MiB arrive at once, with the longest names and keys."""
    world, leader = quick_world(repairs, max_job_size=JOB_SIZE_MAX_BYTES)
    origin = follower(world, leader)
    tube = b"t" * TUBE_NAME_MAX_BYTES
    ended: list[Call] = []

    def call(prefix: bytes, count: int, body: bytes) -> None:
        made = Call(origin.node.clients, b"", lambda: ended.append(made))
        for number in range(count):
            key = prefix + b"%0*d" % (DEDUP_KEY_MAX_BYTES - 1, number)
            made.put(tube, U32_MAX, U32_MAX, U32_MAX, body, key)

    def both() -> None:
        call(b"k", BATCH_COMMANDS_MAX - 5, SMALL_BODY)
        call(b"b", 1, b"y" * JOB_SIZE_MAX_BYTES)

    origin.enter(both)
    if not world.clock.run_until(lambda: len(ended) == 2, 10.0):
        raise Stuck(f"{len(ended)} of 2 calls are answered: {world.describe()}")
    if any(made.failure for made in ended):
        raise Stuck(f"calls failed: {[made.failure for made in ended]}")


class Meter:
    """Counts the events of each entry at each node."""

    def __init__(self, world: World) -> None:
        self.most = 0
        for host in world.hosts.values():
            self._watch(host.node.context.machine)

    def _watch(self, machine: Machine) -> None:
        apply = machine.apply

        def watched(*arguments: Any) -> Any:
            before = machine.queue.events_total
            applied = apply(*arguments)
            self.most = max(self.most, machine.queue.events_total - before)
            return applied

        vars(machine)["apply"] = watched


def _jobs(world: World, host: SimHost, count: int, delay_s: int) -> None:
    """Put jobs through one node."""
    ended: list[Call] = []

    def put() -> None:
        made = Call(host.node.clients, b"", lambda: ended.append(made))
        for _ in range(count):
            made.put(b"default", 0, delay_s, 60, b"", b"")

    host.enter(put)
    if not world.clock.run_until(lambda: bool(ended), 10.0):
        raise Stuck("jobs are not put")


def many_kicks_in_one_moment(_: int, repairs: Repairs) -> None:
    """Clients of all nodes kick the maximum; each entry kicks a few jobs, and all are answered."""
    world, leader = quick_world(repairs)
    jobs = 4000
    _jobs(world, leader, jobs, 9000)
    hosts = world.serving()
    hands = [Hand(world, hosts[place % len(hosts)]) for place in range(30)]
    for hand in hands:
        hand.send(b"list-tube-used")
    world.clock.run(0.5)
    meter = Meter(world)
    for hand in hands:
        hand.send(b"kick %d" % KICK_MAX)
    for hand in hands:
        hand.wait(2, 10.0)
    kicked = sum(hand.replies[-1][1][0] for hand in hands)
    if kicked != jobs:
        raise Violation(f"{jobs} jobs were there, and {kicked} are said to be kicked")
    if meter.most > KICKS_PER_ENTRY_MAX:
        raise Violation(f"one entry kicked {meter.most} jobs")


def a_node_dies_with_thousands_of_jobs(_: int, repairs: Repairs) -> None:
    """The jobs of a dead node's client return, some in each entry."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    jobs = 3 * TRANSITIONS_PER_ENTRY_MAX
    _jobs(world, leader, jobs, 0)
    hand = Hand(world, host)
    for number in range(1, jobs + 1):
        hand.send(b"reserve-job %d" % number)
    hand.wait(jobs, 20.0)
    meter = Meter(world)
    world.crash(host.name)
    queue = leader.node.context.machine.queue
    if not world.clock.run_until(lambda: queue.ready == jobs, 20.0):
        raise Stuck(f"{queue.ready} of {jobs} jobs are back: {world.describe()}")
    if meter.most > TRANSITIONS_PER_ENTRY_MAX:
        raise Violation(f"one entry returned {meter.most} jobs")
