"""Directed schedules for the links between nodes: messages that do not arrive as they were sent.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if a guarantee is broken.
"""

from collections.abc import Iterable
from typing import Final

from beanpole.replication.pysyncobj.repairs import Repairs
from beanpoled.links import frames
from tests.sim.cluster import Violation
from tests.sim.host import SimHost
from tests.sim.links import KIND_AT
from tests.sim.schedules_node import Hand, follower, job_of, quick_world
from tests.sim.storm import Stuck
from tests.sim.wire import Wire
from tests.sim.world import World

BODY = b"what was put, and nothing else"
# A path that loses packets above the size that a tunnel leaves.
LARGE: Final = b"B" * 4000
PASSES_BYTES: Final = 1400
# The defaults: links end within the time after which a silent node is declared down.
PATIENT: Final = {
    "command_timeout_ms": 5000,
    "fence_timeout_ms": 6500,
    "node_timeout_ms": 8000,
}
# Two links that stall, then a silence of node_timeout_ms.
LOST_S: Final = 20.0
# A path that drains more slowly than the leader fills it: an entry of others each 25 ms.
SLOW_BYTES_S: Final = 8000
LOAD_PERIOD_S: Final = 0.05
LOAD: Final = b"L" * 200
# The path's queue holds seconds by then.
FILLED_S: Final = 6.0
# Less than the answers to a leader need; their queue holds seconds after FILLED_S.
LATE_BYTES_S: Final = 1000
# Less than fence_timeout_ms by more than raft_max_ms.
PAUSED_S: Final = 6.0
# A node is heard in time within raft_max_ms, of which its command needs the half, and a commit.
FAST_S: Final = 1.2


def a_bit_of_a_body_flips_on_its_way(_: int, repairs: Repairs) -> None:
    """A batch with a flipped bit ends its link and is sent again; so does the leader's append."""
    for kind in (frames.BATCH, frames.RAFT):
        _flip_in(kind, repairs)


def _flip_in(kind: int, repairs: Repairs) -> None:
    world, leader = quick_world(repairs)
    origin = follower(world, leader)
    flips: list[tuple[str, str]] = []

    def spoil(sender: str, receiver: str, message: bytes) -> bytes:
        place = message.find(BODY)
        if flips or place < 0 or message[KIND_AT] != kind:
            return message
        flips.append((sender, receiver))
        return message[:place] + bytes((message[place] ^ 1,)) + message[place + 1 :]

    world.frames_go_wrong = True
    world.network.spoil = spoil
    hand = Hand(world, origin)
    hand.put(BODY)
    if not world.clock.run_until(lambda: bool(hand.replies), 10.0):
        raise Stuck(f"a put is not answered after a wrong frame: {world.describe()}")
    assert len(flips) == 1, f"no frame of kind {kind} held the body"
    if not world.clock.run_until(lambda: world.is_equal() and len(world.serving()) == 3, 10.0):
        raise Stuck(f"the nodes do not agree after a wrong frame: {world.describe()}")
    if hand.replies[0][0] != b"INSERTED":
        raise Stuck(f"a put is answered {hand.replies[0][0]!r} after a wrong frame")
    number = job_of(hand)
    for host in world.serving():
        reader = Hand(world, host)
        reader.ask(b"peek %d" % number)
        if (got := reader.replies[-1][2]) != BODY:
            raise Violation(f"the body that was put is {BODY!r}, {host.name} has {got!r}")
    # The other nodes may learn of the last reader's entry only with a heartbeat.
    if not world.clock.run_until(world.is_equal, 10.0):
        raise Stuck(f"the nodes do not agree after they were read: {world.describe()}")
    world.check_equal()
    if not world.counts["links cut for a bad frame"]:
        raise Violation("a frame with a wrong checksum was taken over")


def large_packets_are_lost(_: int, repairs: Repairs) -> None:
    """A node whose large packets do not arrive, or that gets none, keeps no job from the others."""
    for sends in (True, False):
        _lose_large(sends, repairs)


def _lose_large(sends: bool, repairs: Repairs) -> None:
    world, leader = quick_world(repairs, **PATIENT)
    victim = follower(world, leader)
    third = next(host for host in world.serving() if host not in (leader, victim))
    worker = Hand(world, victim)
    worker.hold(ttr_s=600)
    stuck: set[tuple[str, int]] = set()  # what follows a lost packet waits for it

    def lose(sender: str, receiver: str, message: bytes) -> Iterable[float]:
        network = world.network
        if victim.name == (sender if sends else receiver):
            way = (sender + receiver, network.generation(sender, receiver))
            if len(message) > PASSES_BYTES:
                stuck.add(way)
            if way in stuck:
                return ()
        return (network.delay_s,)

    world.network.filter = lose
    Hand(world, victim if sends else leader).put(LARGE)
    other = Hand(world, third)
    other.send(b"reserve")
    keeps = f"a node that {'sends' if sends else 'gets'} nothing large keeps"
    if not world.clock.run_until(lambda: worker.gone, LOST_S):
        raise Stuck(f"{keeps} its worker: {world.describe()}")
    if not world.clock.run_until(lambda: bool(other.replies), LOST_S):
        raise Stuck(f"{keeps} the job of its worker: {world.describe()}")
    world.network.filter = None
    world.network.reset(leader.name, victim.name)  # no stream goes on behind bytes that are lost
    if not world.clock.run_until(lambda: world.is_equal() and len(world.serving()) == 3, LOST_S):
        raise Stuck(f"the nodes do not agree after the path is mended: {world.describe()}")
    if (ups := victim.node.context.machine.origins[victim.node.context.index].incarnation) > 4:
        raise Stuck(f"the node began {ups} incarnations: it is declared down again and again")


def _hold_and_wait(world: World, host: SimHost, elsewhere: SimHost) -> tuple[Hand, Hand]:
    """Return a worker that holds a job at a node, and a client that waits for one elsewhere."""
    worker, other = Hand(world, host), Hand(world, elsewhere)
    worker.hold(ttr_s=600)
    other.send(b"reserve")
    return worker, other


def _expect_order(world: World, worker: Hand, other: Hand, within_s: float) -> None:
    """See a worker go, and only then its job."""
    world.clock.run_until(lambda: worker.gone or bool(other.replies), within_s)
    if other.replies:
        raise Violation("a job went to another client while its worker was connected")
    if not worker.gone:
        raise Stuck(f"a node that is not heard in time keeps its worker: {world.describe()}")
    other.wait(1, LOST_S)


class Asker(Hand):
    """A client whose next put follows each answer."""

    def __init__(self, world: World, host: SimHost) -> None:
        super().__init__(world, host)
        self.send(b"use load")

    def received(self, wire: Wire, data: bytes) -> None:
        """Put again."""
        super().received(wire, data)
        self.put(LOAD)


class Trickle:
    """A node that the leader's frames reach late: a worker holds a job there, another one waits."""

    def __init__(self, repairs: Repairs, bytes_s: int | None = SLOW_BYTES_S) -> None:
        self.world, self.leader = quick_world(repairs, **PATIENT)
        self.victim = follower(self.world, self.leader)
        hosts = self.world.serving()
        third = next(host for host in hosts if host not in (self.leader, self.victim))
        self.worker, self.other = _hold_and_wait(self.world, self.victim, third)
        self._loads = [Hand(self.world, host) for host in (self.leader, third)]
        for hand in self._loads:
            hand.send(b"use load")
        self._is_loaded = True
        self._load()
        self.world.clock.run(1.0)
        if bytes_s is not None:
            self.world.network.rates[self.leader.name, self.victim.name] = bytes_s

    def _load(self) -> None:
        for hand in self._loads:
            hand.put(LOAD)
        if self._is_loaded:
            self.world.clock.after(LOAD_PERIOD_S, self._load)

    def expect_fence(self, within_s: float) -> None:
        """See the worker go, and only then its job."""
        _expect_order(self.world, self.worker, self.other, within_s)

    def unload(self) -> None:
        """Put no more, so that the queue drains."""
        self._is_loaded = False

    def mend(self) -> None:
        """End the load, and see that all nodes serve."""
        self.unload()
        world = self.world
        world.network.filter = None
        world.network.mend()
        # Of an introduction that the filter has cut in two, the second half would be refused.
        world.network.reset(self.leader.name, self.victim.name)
        if not world.clock.run_until(
            lambda: world.is_equal() and len(world.serving()) == 3, 2 * LOST_S
        ):
            raise Stuck(f"the nodes do not agree after the path is mended: {world.describe()}")


def the_leader_s_frames_arrive_late(_: int, repairs: Repairs) -> None:
    """A node that frames only trickle to sends its clients away, whether or not they ask for more.

    The leader hears it, and so does not declare it down: all that is late is what it sends back.
    """
    for asks in (True, False):
        _arrive_late(asks, repairs)


def _arrive_late(asks: bool, repairs: Repairs) -> None:
    scene = Trickle(repairs)
    world = scene.world
    if asks:
        Asker(world, scene.victim)
    scene.expect_fence(2 * LOST_S)
    refused = Hand(world, scene.victim)
    for _ in range(int(LOST_S)):
        world.clock.run(1.0)
        if scene.victim in world.serving():
            raise Violation("a node accepts clients while it is not heard in time")
    if not refused.gone:
        raise Violation("a node that is cut off took a client")
    scene.unload()
    if not world.clock.run_until(lambda: scene.victim in world.serving(), 3 * LOST_S):
        raise Stuck(f"the queue drained, and its clients are refused: {world.describe()}")
    hand = Hand(world, scene.victim)
    hand.put(BODY)
    if not world.clock.run_until(lambda: bool(hand.replies), FAST_S):
        raise Violation("a node accepts clients while it is not heard in time")
    scene.mend()


def frames_arrive_and_none_leave(_: int, repairs: Repairs) -> None:
    """A node that hears the leader, in time or late, and that the leader does not hear.

    The leader ends a link on which it hears nothing after three seconds, and declares the node down
    after `node_timeout_ms`: a fence that counts from the end of the link is too late.
    """
    for bytes_s in (None, SLOW_BYTES_S):
        _let_none_leave(bytes_s, repairs)


def _let_none_leave(bytes_s: int | None, repairs: Repairs) -> None:
    scene = Trickle(repairs, bytes_s)
    world, victim = scene.world, scene.victim
    world.clock.run(FILLED_S)
    if scene.worker.gone:
        raise Stuck(f"a path that is slow for {FILLED_S} s ends connections already")
    stays = (victim.name, scene.leader.name)

    def hold_back(sender: str, receiver: str, message: bytes) -> Iterable[float]:
        return () if (sender, receiver) == stays else (world.network.delay_s,)

    world.network.filter = hold_back
    scene.expect_fence(LOST_S)
    if victim in world.serving():
        raise Violation("a node accepts clients while it is not heard")
    scene.mend()


def a_leader_is_left_with_one_of_five(_: int, repairs: Repairs) -> None:
    """A node that hears only a leader without a majority closes its clients in time, too.

    That leader claims to lead until it steps down, when another one has led for a while already.
    """
    times_ms = {"fence_timeout_ms": 1700, "node_timeout_ms": 1750}
    world, leader = quick_world(repairs, size=5, **times_ms)
    victim = follower(world, leader)
    rest = next(host for host in world.serving() if host not in (leader, victim))
    worker, other = _hold_and_wait(world, victim, rest)
    world.network.isolate(leader.name, victim.name)
    _expect_order(world, worker, other, LOST_S)


def late_answers_reach_a_leader(_: int, repairs: Repairs) -> None:
    """A leader that gets old answers, and whose messages are lost, closes its own clients in time.

    What is queued on the way to it goes on to arrive after another leader was elected.
    """
    world, leader = quick_world(repairs, **PATIENT)
    others = [host for host in world.serving() if host is not leader]
    worker, other = _hold_and_wait(world, leader, others[0])
    for host in others:
        world.network.rates[host.name, leader.name] = LATE_BYTES_S
    world.clock.run(FILLED_S)
    assert world.leader() is leader, world.describe()

    def hold_back(sender: str, receiver: str, message: bytes) -> Iterable[float]:
        return () if sender == leader.name else (world.network.delay_s,)

    world.network.filter = hold_back
    _expect_order(world, worker, other, LOST_S)


def a_paused_node_is_cut_off(_: int, repairs: Repairs) -> None:
    """A pause counts as time in which the leader did not hear the node."""
    world, leader = quick_world(repairs, **PATIENT)
    victim = follower(world, leader)
    third = next(host for host in world.serving() if host not in (leader, victim))
    worker, other = _hold_and_wait(world, victim, third)
    victim.pause(PAUSED_S)
    world.clock.run(PAUSED_S - 0.1)
    world.network.isolate(victim.name)
    _expect_order(world, worker, other, LOST_S)
