"""The toy protocol in simulated clusters: what it acknowledged is taken, whatever node dies."""

from functools import partial

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpoled.frontends.table import FRONTENDS
from tests.sim.host import SimHost
from tests.sim.storm import QUICK
from tests.sim.wire import Wire
from tests.sim.world import World
from tests.toy.frontend import ROW, ToyFrontend

JOBS = 40


class Toy:
    """A client that keeps the lines it was told."""

    def __init__(self, world: World, host: SimHost) -> None:
        self.lines: list[bytes] = []
        self.gone = False
        self._rest = b""
        self._wire = Wire(world, host, self, 0.001, ROW.name)

    def send(self, line: bytes) -> None:
        """Send a request."""
        self._wire.send(line + b"\n")

    def received(self, wire: Wire, data: bytes) -> None:
        """Take bytes of the node."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += lines

    def ended(self, wire: Wire) -> None:
        """Note the end."""
        self.gone = True


def toy_world(seed: int) -> World:
    """A cluster in which all nodes serve."""
    world = World(seed, 3, **QUICK)
    world.repairs = ALL_REPAIRS
    world.frontends = {**FRONTENDS, ROW.name: ToyFrontend}
    for name in world.names:
        world.start(name)
    assert world.clock.run_until(lambda: len(world.serving()) == 3, 5.0), world.describe()
    return world


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_was_acknowledged_is_taken_once(seed: int) -> None:
    """The leader dies at another moment of each seed; both clients are at other nodes."""
    world = toy_world(seed)
    leader = world.leader()
    assert leader is not None
    one, other = (host for host in world.serving() if host is not leader)
    putter, taker = Toy(world, one), Toy(world, other)
    for number in range(JOBS):
        world.clock.after(number * 0.01, partial(putter.send, b"PUT q %d" % number))
        taker.send(b"TAKE q")
    world.clock.after(world.dice.random() * JOBS * 0.01, lambda: world.crash(leader.name))
    assert world.clock.run_until(lambda: len(taker.lines) == JOBS, 10.0), taker.lines
    assert not putter.gone and not taker.gone
    ids = [int(line.removeprefix(b"OK ")) for line in putter.lines]
    assert taker.lines == [b"JOB %d %d" % (job, body) for body, job in enumerate(ids)]
    for job in ids:
        taker.send(b"DONE %d" % job)
    assert world.clock.run_until(lambda: len(taker.lines) == 2 * JOBS, 10.0)
    assert taker.lines[JOBS:] == [b"OK"] * JOBS
    queue = other.node.context.machine.queue
    assert (queue.ready, queue.reserved) == (0, 0)
