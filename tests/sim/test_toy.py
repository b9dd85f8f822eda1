"""The toy protocol in simulated clusters: an acknowledged job is taken, whichever node dies."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS
from beanpoled.frontends.table import FRONTENDS
from tests.sim.host import SimHost
from tests.sim.storm import QUICK
from tests.sim.wire import Wire
from tests.sim.world import World
from tests.toy.frontend import ROW, ToyFrontend
from tests.toy.space import registered

JOBS = 40


@pytest.fixture(autouse=True)
def space() -> Iterator[None]:
    """Register the queues of the protocol."""
    with registered():
        yield


class Toy:
    """A client that keeps the lines it received, and may act on each."""

    def __init__(self, world: World, host: SimHost) -> None:
        self.lines: list[bytes] = []
        self.gone = False
        self.act: Callable[[bytes], None] = lambda line: None
        self._rest = b""
        self._wire = Wire(world, host, self, 0.001, ROW.name)

    def send(self, line: bytes) -> None:
        """Send a request."""
        self._wire.send(line + b"\n")

    def received(self, wire: Wire, data: bytes) -> None:
        """Take bytes from the node."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.lines += lines
        for line in lines:
            self.act(line)

    def ended(self, wire: Wire) -> None:
        """Note the end of the connection."""
        self.gone = True


def toy_world(seed: int) -> World:
    """Return a cluster in which all nodes serve."""
    world = World(seed, 3, **QUICK)
    world.repairs = ALL_REPAIRS
    world.frontends = {**FRONTENDS, ROW.name: ToyFrontend}
    for name in world.names:
        world.start(name)
    assert world.clock.run_until(lambda: serves_toys(world), 5.0), world.describe()
    return world


def serves_toys(world: World) -> bool:
    """Whether all nodes serve, at the version that the protocol needs."""
    return len(world.serving()) == 3 and all(
        host.node.context.machine.version >= 3 for host in world.serving()
    )


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_was_acknowledged_is_taken_once(seed: int) -> None:
    """The leader dies at another moment for each seed; both clients are at other nodes."""
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
        taker.send(b"DONE %d well" % job)
    assert world.clock.run_until(lambda: len(taker.lines) == 2 * JOBS, 10.0)
    assert taker.lines[JOBS:] == [b"OK"] * JOBS
    queue = other.node.context.machine.queue
    assert (queue.ready, queue.reserved) == (0, 0)


def taking(toy: Toy) -> Callable[[bytes], None]:
    """Make a client a worker that is granted jobs."""

    def act(line: bytes) -> None:
        if line.startswith(b"JOB "):
            job = line.split()[1]
            toy.send(b"TELL %b soon" % job)
            toy.send(b"DONE %b taken" % job)
            toy.send(b"TAKE q")

    toy.send(b"TAKE q")
    return act


def trying(toy: Toy) -> Callable[[bytes], None]:
    """Make a client a worker that sleeps until there may be a job, and then asks for it."""

    def act(line: bytes) -> None:
        if line == b"READY":
            toy.send(b"TRY q")
        elif line == b"NO":
            toy.send(b"POLL q")
        elif line.startswith(b"JOB "):
            toy.send(b"DONE %b tried" % line.split()[1])
        elif line == b"OK":
            toy.send(b"TRY q")

    toy.send(b"POLL q")
    return act


@pytest.mark.parametrize("seed", range(1, 13))
def test_each_result_reaches_a_listener_at_another_node_once(seed: int) -> None:
    """Workers are of two kinds; the leader dies at another moment for each seed."""
    world = toy_world(seed)
    leader = world.leader()
    assert leader is not None
    one, other = (host for host in world.serving() if host is not leader)
    putter, listener = Toy(world, one), Toy(world, other)
    workers = [Toy(world, one), Toy(world, other), Toy(world, one), Toy(world, other)]
    for number in range(JOBS):
        putter.send(b"PUT q %d" % number)
    assert world.clock.run_until(lambda: len(putter.lines) == JOBS, 10.0), putter.lines
    ids = [int(line.removeprefix(b"OK ")) for line in putter.lines]
    for job in ids:
        listener.send(b"LISTEN %d" % job)
    assert world.clock.run_until(lambda: len(listener.lines) == JOBS, 10.0), listener.lines
    assert listener.lines == [b"OK"] * JOBS
    world.clock.after(world.dice.random() * 0.2, lambda: world.crash(leader.name))
    for toy, kind in zip(workers, (taking, taking, trying, trying), strict=True):
        toy.act = kind(toy)

    def all_told() -> bool:
        return sum(line.startswith(b"RESULT") for line in listener.lines) == JOBS

    assert world.clock.run_until(all_told, 20.0), listener.lines
    told = listener.lines[JOBS:]
    done = [line.split()[1:] for toy in workers for line in toy.lines if line[:4] == b"JOB "]
    for job in ids:
        mine = [line for line in told if int(line.split()[1]) == job]
        taken = [b"TOLD %d soon" % job, b"RESULT %d taken" % job]
        assert mine in (taken, [b"RESULT %d tried" % job]), mine
    assert sorted(int(job) for job, _ in done) == ids, "each job was given out once"
    assert {line.split()[2] for line in told} == {b"soon", b"taken", b"tried"}
    assert not any(toy.gone for toy in (putter, listener, *workers))


def test_a_wait_that_only_wakes_costs_the_log_nothing() -> None:
    world = toy_world(1)
    toys = [Toy(world, host) for host in world.serving() for _ in range(5)]
    for toy in toys:
        toy.send(b"POLL q")
    world.clock.run(1.0)
    hosts = world.serving()
    before = [host.node.context.machine.index for host in hosts]
    world.clock.run(5.0)
    assert [host.node.context.machine.index for host in hosts] == before
    Toy(world, hosts[0]).send(b"PUT q x")
    assert world.clock.run_until(lambda: all(toy.lines for toy in toys), 5.0)
    assert [toy.lines for toy in toys] == [[b"READY"]] * len(toys)
