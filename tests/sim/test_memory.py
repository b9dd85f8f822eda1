"""Durability "memory": nodes lose the end of their logs, one at a time, and the cluster nothing."""

import pytest

from beanpole.replication.pysyncobj.journal import WRITE_BEHIND_S
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from tests.sim.schedules_node import Hand, quick_world
from tests.sim.world import World

PUTS_IN_FLIGHT = 8


class Producer(Hand):
    """Puts as fast as it is answered, and keeps the ids of its jobs."""

    def keep_on(self) -> None:
        """Send as many puts as have been answered."""
        for _ in range(PUTS_IN_FLIGHT):
            self.put(b"a")
        self.wait(len(self.replies) + PUTS_IN_FLIGHT)

    @property
    def ids(self) -> list[int]:
        """The ids of all jobs that were acknowledged."""
        assert {word for word, *_ in self.replies} == {b"INSERTED"}
        return [numbers[0] for _, numbers, *_ in self.replies]


def _lost_by_a_kill(world: World, name: str, producer: Producer) -> int:
    """Kill a node while its log is written, start it again; returns the lost entries."""
    producer.keep_on()
    replica = world.hosts[name].node.context.replica
    had = replica.last_index
    world.crash(name)
    log = world.start(name).node.context.replica.log_on_disk()
    return had - log.last


@pytest.mark.parametrize("leader_too", [False, True])
def test_members_that_are_killed_in_turn_lose_no_job(leader_too: bool) -> None:
    world, leader = quick_world(ALL_REPAIRS, durability="memory")
    world.oracle.judges = False  # it wants acknowledged entries on disks
    lost, ids = 0, []
    for round_ in range(6):
        leader = world.leader() or leader
        victims = [host.name for host in world.hosts.values() if host is not leader]
        name = leader.name if leader_too and round_ % 2 else victims[round_ % 2]
        producer = Producer(world, next(h for h in world.serving() if h.name != name))
        for _ in range(20):
            producer.keep_on()
        lost += _lost_by_a_kill(world, name, producer)
        assert world.clock.run_until(lambda: len(world.serving()) == 3, 20.0), world.describe()
        ids += producer.ids
    assert world.clock.run_until(world.is_equal, 20.0), world.describe()
    world.check_equal()
    assert lost > 0, f"no kill within {WRITE_BEHIND_S} s of a write"
    queue = world.witness.machine.queue
    assert all(queue.jobs.get(number) for number in ids)
    assert queue.ready == len(ids)
