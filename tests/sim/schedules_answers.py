"""Directed schedules for the answers to clients: each must be true, errors included.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if an answer is wrong. The fate of jobs when nodes die is in `schedules_node`.
"""

from collections.abc import Callable

from beanpole.replication.pysyncobj.repairs import Repairs
from tests.sim.cluster import Violation
from tests.sim.host import SimHost
from tests.sim.schedules_node import Hand, follower, quick_world
from tests.sim.storm import Stuck
from tests.sim.world import World

# `default` and one more.
TUBES_MAX = 2
# A follower hears nothing of the leader for this time, which is too short for an election.
BEHIND_S = 0.15
# TICKs come every 10 ms of cluster time: the rounds at each of three nodes begin all over them.
ROUNDS = 6
STEP_S = 0.00057
# The number of delays that end during `idle_workers_poll`.
DELAYS_THAT_END = 2


def _takes_only_what_it_watches(hand: Hand, putter: Hand, told: bytes) -> None:
    """Check that a client that was told it watches one other tube gets no job of `default`."""
    putter.put(b"a")
    putter.wait(len(putter.replies) + 1)
    if hand.gone:
        return
    if hand.ask(b"reserve-with-timeout 0") == b"RESERVED":
        raise Violation(f"it was told {told.decode()}, and was given a job of default")


def two_clients_make_one_tube_too_many(_: int, repairs: Repairs) -> None:
    """Two clients make the last tube: one watches it, the other is told there is no room."""
    world, _leader = quick_world(repairs, tubes_max=TUBES_MAX)
    hands = [Hand(world, host) for host in world.serving()]
    for hand, tube in zip(hands, (b"a", b"b"), strict=False):
        hand.send(b"watch " + tube)
        hand.send(b"ignore default")
    for hand in hands[:2]:
        hand.wait(2)
    words = [hand.replies[1][0] for hand in hands[:2]]
    for hand, word in zip(hands, words, strict=False):
        if word == b"WATCHING":
            _takes_only_what_it_watches(hand, hands[2], b"WATCHING 1")
    if sorted(words) != [b"NOT_IGNORED", b"WATCHING"]:
        raise Violation(f"two tubes where there is room for one: {words}")


def a_tube_vanishes_before_it_is_watched(_: int, repairs: Repairs) -> None:
    """A watch that was answered and then refused ends its session with a reason."""
    world, leader = quick_world(repairs, tubes_max=TUBES_MAX)
    behind = follower(world, leader)
    first, second, putter = (Hand(world, leader) for _ in range(3))
    watcher = Hand(world, behind)
    first.ask(b"use gone")
    watcher.ask(b"list-tube-used")
    world.clock.run(0.5)

    def slow(sender: str, receiver: str, message: bytes) -> tuple[float, ...]:
        return (BEHIND_S if (sender, receiver) == (leader.name, behind.name) else 0.001,)

    world.network.filter = slow
    first.ask(b"use default")
    world.clock.run(0.02)
    if second.ask(b"use theirs") != b"USING":
        raise Stuck("there is no room for another tube")
    if watcher.ask(b"watch gone") != b"WATCHING" or watcher.ask(b"ignore default") != b"WATCHING":
        raise Stuck("the follower knows already that the tube is gone")
    world.clock.run(1.0)
    _takes_only_what_it_watches(watcher, putter, b"WATCHING 1")
    if watcher.replies[-1][0] != b"OUT_OF_MEMORY" or not watcher.gone:
        raise Violation(f"a watch that was refused ends so: {watcher.replies[-1]}")


# --- the end of a wait ----------------------------------------------------------------------------


def _rounds(repairs: Repairs, prepare: Callable[[Hand, Hand, bytes], None], wanted: bytes) -> None:
    """Let something happen in one second, while a client waits for one second.

    Each round begins at another moment between two TICKs, with its own tube and clients.
    """
    world, _leader = quick_world(repairs)
    for place, host in enumerate(world.serving() * ROUNDS):
        tube = b"t%d" % place
        other, hand = Hand(world, host), Hand(world, host)
        for one in (other, hand):
            for line in (b"use " + tube, b"watch " + tube, b"ignore default"):
                one.ask(line)
        world.clock.run(0.1 + place * STEP_S)
        prepare(other, hand, tube)
        word = hand.ask(b"reserve-with-timeout 1")
        if word != wanted:
            raise Violation(
                f"round {place}: {word.decode()} when it was time for {wanted.decode()}"
            )


def a_delay_ends_with_a_wait(_: int, repairs: Repairs) -> None:
    """A job that is due when a wait for it ends is given to the waiter."""

    def prepare(other: Hand, _hand: Hand, _tube: bytes) -> None:
        other.ask(b"put 0 1 60 1\r\na")

    _rounds(repairs, prepare, b"RESERVED")


def a_pause_ends_with_a_wait(_: int, repairs: Repairs) -> None:
    """A job whose tube's pause ends with a wait is given to the waiter."""

    def prepare(other: Hand, _hand: Hand, tube: bytes) -> None:
        other.ask(b"put 0 0 60 1\r\na")
        other.ask(b"pause-tube %b 1" % tube)

    _rounds(repairs, prepare, b"RESERVED")


def a_ttr_ends_with_a_wait(_: int, repairs: Repairs) -> None:
    """A job whose TTR ends with a wait is given to the waiter."""

    def prepare(other: Hand, _hand: Hand, _tube: bytes) -> None:
        other.ask(b"put 0 0 1 1\r\na")
        other.ask(b"reserve")

    _rounds(repairs, prepare, b"RESERVED")


def a_warning_is_due_with_a_wait(_: int, repairs: Repairs) -> None:
    """A client is warned when its own job has a second left, also at the end of its wait."""

    def prepare(_other: Hand, hand: Hand, _tube: bytes) -> None:
        hand.ask(b"put 0 0 2 1\r\na")
        hand.ask(b"reserve")

    _rounds(repairs, prepare, b"DEADLINE_SOON")


def idle_workers_poll(_: int, repairs: Repairs) -> None:
    """Waits that end write nothing to the log, even while jobs of other tubes are delayed."""
    world, leader = quick_world(repairs)
    putter = Hand(world, leader)
    putter.ask(b"use elsewhere")
    for delay_s in (1, 2, 3600):
        putter.ask(b"put 0 %d 60 1\r\na" % delay_s)
    hands = [Hand(world, host) for host in world.serving() for _ in range(10)]
    for hand in hands:
        hand.ask(b"reserve-with-timeout 0")
    world.clock.run(0.1)
    before = leader.node.context.replica.last_index
    for _round in range(30):
        for hand in hands:
            hand.ask(b"reserve-with-timeout 0")
        world.clock.run(0.1)
    if any(word != b"TIMED_OUT" for hand in hands for word, _, _ in hand.replies):
        raise Violation("a job came from nowhere")
    written = leader.node.context.replica.last_index - before
    if written > DELAYS_THAT_END:
        raise Violation(f"{written} entries for {DELAYS_THAT_END} delays that ended")


# --- no majority ----------------------------------------------------------------------------------


def _alone(repairs: Repairs) -> tuple[World, SimHost]:
    """Return a follower with default settings whose two peers just died."""
    world = World(1, 3)
    world.repairs = repairs
    for name in world.names:
        world.start(name)
    if not world.clock.run_until(lambda: len(world.serving()) == len(world.names), 5.0):
        raise Stuck(f"not all nodes serve: {world.describe()}")
    leader = world.leader()
    assert leader is not None
    host = follower(world, leader)
    for name in world.names:
        if name != host.name:
            world.crash(name)
    return world, host


def a_node_is_left_alone(_: int, repairs: Repairs) -> None:
    """Puts that no leader saw are answered DRAINING, whenever they came; others INTERNAL_ERROR."""
    world, host = _alone(repairs)
    begun_s = world.clock.now_s
    hands: list[tuple[float, bytes, Hand]] = []
    lines = (b"put 0 0 60 1\r\na", b"delete 7", b"use new", b"reserve-with-timeout 0")
    for after_s in (0.1, 1.0, 2.0, 4.0, 6.0):
        world.clock.run(begun_s + after_s - world.clock.now_s)
        for line in lines:
            hands.append((after_s, line, Hand(world, host)))
            hands[-1][2].send(line)
    if not world.clock.run_until(lambda: all(hand.gone for _, _, hand in hands), 5.0):
        raise Stuck("it keeps its clients")
    for after_s, line, hand in hands:
        wanted = b"DRAINING" if line == lines[0] else b"INTERNAL_ERROR"
        words = [reply[0] for reply in hand.replies]
        if words != [wanted]:
            raise Violation(f"{line!r} after {after_s} s was answered {words}, not {wanted!r}")
