"""A process dies at any call of its disk, even within a start or while an empty disk rejoins.

Every call from the first on is tried, until a life passes without a death. Afterwards an ordinary
start must succeed, or be refused where only `--rejoin` is right, and no acknowledged job may be
gone. Random lives meet the same faults by chance (`hazards`).
"""

from collections.abc import Callable

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.schedules_node import Hand, job_of, quick_world
from tests.sim.storm import QUICK
from tests.sim.world import World

# More calls than any of these lives makes.
CALLS_MAX = 200
SERVE_S = 10.0
VICTIM = "n1"


def all_serve(world: World) -> bool:
    """Start nodes that are down, and wait until all nodes serve."""
    for name in world.names:
        world.disks[name].calls_left = None
        if name not in world.hosts:
            world.start(name)
    return world.clock.run_until(lambda: len(world.serving()) == len(world.names), SERVE_S)


def put(world: World, name: str) -> int:
    """Put a job at a node; returns its id once it is acknowledged."""
    hand = Hand(world, world.hosts[name])
    hand.put(b"kept")
    hand.wait(1)
    return job_of(hand)


def check(world: World, jobs: list[int]) -> None:
    """Check that all nodes serve and have every job."""
    assert all_serve(world), world.describe()
    for name in world.names:
        for job in jobs:
            assert Hand(world, world.hosts[name]).ask(b"peek %d" % job) == b"FOUND", (name, job)
    put(world, VICTIM)
    assert world.clock.run_until(world.is_equal, SERVE_S)
    world.check_equal()


def died(world: World) -> bool:
    """Whether a process died at a call."""
    return any(word.startswith("deaths") for word in world.counts)


def try_all(life: Callable[[int], bool]) -> None:
    """Run a life with a death at each of its calls; `life` returns whether a process died."""
    for calls in range(CALLS_MAX):
        if not life(calls):
            assert calls > 3, "it makes no calls"
            return
    pytest.fail(f"it dies at {CALLS_MAX} calls")


@pytest.mark.long
def test_within_the_first_start() -> None:
    def life(calls: int) -> bool:
        world = World(1, 3, **QUICK)
        world.disks[VICTIM].calls_left = calls
        for name in world.names:
            world.start(name)
        world.clock.run(1.5)
        check(world, [])
        return died(world)

    try_all(life)


def test_within_a_stop_and_the_next_start() -> None:
    def life(calls: int) -> bool:
        world, _ = quick_world(ALL_REPAIRS)
        job = put(world, VICTIM)
        disk, host = world.disks[VICTIM], world.hosts[VICTIM]
        disk.calls_left, before = calls, disk.calls
        host.enter(host.node.stopping.stop)
        assert world.clock.run_until(lambda: VICTIM not in world.hosts, SERVE_S)
        if not died(world):
            disk.calls_left = calls - (disk.calls - before)
            world.start(VICTIM)
            world.clock.run(1.5)
        check(world, [job])
        return died(world)

    try_all(life)


def test_within_the_return_of_an_empty_disk() -> None:
    """Audit 1: a node restarted without --rejoin never counts with an empty log."""

    def life(calls: int) -> bool:
        world, leader = quick_world(ALL_REPAIRS)
        old, lost = [name for name in world.names if name != leader.name]
        world.network.isolate(old)
        world.clock.run(0.1)
        job = put(world, leader.name)  # on the leader and on the disk that will be lost
        world.crash(lost)
        world.replace_disk(lost)
        world.disks[lost].calls_left = calls
        world.start(lost)
        world.clock.run(2.0)
        if died(world):
            world.rejoin.discard(lost)
            world.expects_refusals = True
            world.crash(leader.name)
            world.network.heal()
            world.start(lost)
            world.clock.run(4.0)
            for host in world.serving():
                assert Hand(world, host).ask(b"peek %d" % job) == b"FOUND", "an empty disk counted"
            if lost in world.hosts and not world.hosts[lost].ready:
                world.crash(lost)  # it waits for a start with --rejoin
            world.rejoin.add(lost)
        world.network.heal()
        world.disks[lost].calls_left = None
        check(world, [job])
        return died(world)

    try_all(life)
