"""Directed schedules for whole nodes: one situation at a time, in a world without randomness.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if a guarantee is broken. Schedules for replicas alone are in `schedules`.
"""

from collections.abc import Callable
from typing import Any, Final

from beanpole import commands as c
from beanpole.protocol.beanstalk.client import Reply, ReplyParser
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpoled.links import frames
from tests.sim.cluster import Violation
from tests.sim.host import SimHost
from tests.sim.links import KIND_AT
from tests.sim.storm import QUICK, Stuck
from tests.sim.wire import Wire
from tests.sim.world import World

REPLY_S = 3.0

# The delay of a job in an idle cluster, of which half passes before the leader is alone.
IDLE_DELAY_S: Final = 30
# Cluster time stands while no majority answers; what a failover takes counts, too.
IDLE_LATE_MAX_S: Final = 5.0


class Hand:
    """A scripted client that keeps every reply."""

    def __init__(self, world: World, host: SimHost, client_host: bytes = b"::1") -> None:
        self.world = world
        self.replies: list[Reply] = []
        self.gone = False
        self._parser = ReplyParser()
        self._wire = Wire(world, host, self, 0.0001, client_host=client_host)

    def send(self, line: bytes) -> None:
        """Send a request."""
        self._wire.send(line + b"\r\n")

    def put(self, body: bytes, ttr_s: int = 60) -> None:
        """Send a put."""
        self.send(b"put 0 0 %d %d\r\n%b" % (ttr_s, len(body), body))

    def ask(self, line: bytes, limit_s: float = REPLY_S) -> bytes:
        """Send a request, wait for its reply, and return the reply's first word."""
        count = len(self.replies) + 1
        self.send(line)
        self.wait(count, limit_s)
        return self.replies[-1][0]

    def wait(self, count: int, limit_s: float = REPLY_S) -> None:
        """Wait until there are the given number of replies."""
        if not self.world.clock.run_until(lambda: len(self.replies) >= count, limit_s):
            raise Stuck(f"{len(self.replies)} replies after {limit_s} s, not {count}")

    def hold(self, ttr_s: int = 60) -> None:
        """Put a job and reserve it."""
        self.put(b"a", ttr_s)
        self.wait(1)
        assert self.ask(b"reserve") == b"RESERVED"

    def received(self, wire: Wire, data: bytes) -> None:
        """Take bytes from the node."""
        self._parser.feed(data)
        while (reply := self._parser.next()) is not None:
            self.replies.append(reply)

    def ended(self, wire: Wire) -> None:
        """Note the end of the connection."""
        self.gone = True


def quick_world(repairs: Repairs, size: int = 3, **overrides: Any) -> tuple[World, SimHost]:
    """Return a cluster in which all nodes serve, and its leader."""
    world = World(1, size, **{**QUICK, **overrides})
    world.repairs = repairs
    for name in world.names:
        world.start(name)
    if not world.clock.run_until(lambda: len(world.serving()) == size, 5.0):
        raise Stuck(f"not all nodes serve: {world.describe()}")
    leader = world.leader()
    assert leader is not None
    return world, leader


def follower(world: World, leader: SimHost) -> SimHost:
    return next(host for name, host in sorted(world.hosts.items()) if host is not leader)


def job_of(hand: Hand) -> int:
    number = hand.replies[-1][1][0]
    assert isinstance(number, int)
    return number


# --- time -----------------------------------------------------------------------------------------


def a_job_runs_out_while_its_worker_waits(_: int, repairs: Repairs) -> None:
    """DEADLINE_SOON comes a second before the TTR ends."""
    world, leader = quick_world(repairs)
    hand = Hand(world, leader)
    hand.hold(ttr_s=2)
    begun_s = world.clock.now_s
    word = hand.ask(b"reserve", 5.0)
    passed_s = world.clock.now_s - begun_s
    if word != b"DEADLINE_SOON" or not 0.9 < passed_s < 1.3:
        raise Violation(f"{word.decode()} after {passed_s:.2f} s, when its TTR of 2 s ran out")


def start_forgetful(world: World, name: str) -> SimHost:
    """Start a node that does not find the newest entry of its log in its memory.

    The same happens where terms have begun after that entry again and again: the entry's time is
    unknown then.
    """
    host = world.start(name)
    vars(host.node.context.replica)["newest_entry"] = lambda: None
    return host


def a_node_was_down_while_the_others_slept(_: int, repairs: Repairs) -> None:
    """A new leader that never heard the clock does not count an hour in which all nodes stood."""
    world, leader = quick_world(repairs)
    world.clock.run(2.0)
    name = follower(world, leader).name
    world.crash(name)
    for host in world.hosts.values():
        host.pause(3600.0)
    world.clock.run(3602.0)
    leader, other = sorted(world.hosts.values(), key=lambda host: host is not world.leader())
    hand = Hand(world, other)
    hand.hold(ttr_s=30)

    def no_beats_of_the_leader(sender: str, receiver: str, message: bytes) -> tuple[float, ...]:
        heartbeat = (sender, receiver, message[KIND_AT]) == (leader.name, name, frames.HEARTBEAT)
        return () if heartbeat else (0.001,)

    world.network.filter = no_beats_of_the_leader
    host = start_forgetful(world, name)
    world.clock.run(0.3)

    def hand_over() -> None:
        leader.node.context.replica.transfer(name)

    leader.enter(hand_over)
    world.clock.run(6.0)
    assert host.node.leader.term.serving, "it does not lead"


def an_idle_leader_loses_its_majority(_: int, repairs: Repairs) -> None:
    """The time that a leader counted since its newest entry is kept when it is elected again."""
    world, leader = quick_world(repairs)
    hand = Hand(world, leader)
    hand.send(b"put 0 %d 60 1\r\na" % IDLE_DELAY_S)
    hand.wait(1)
    begun_s = world.clock.now_s
    world.clock.run(IDLE_DELAY_S / 2)
    others = [name for name in world.names if name != leader.name]
    for name in others:
        world.crash(name)
    world.clock.run(2.0)
    for name in others:
        world.start(name)

    def is_ready() -> bool:
        return any(host.node.context.machine.queue.ready for host in world.serving())

    world.clock.run_until(is_ready, 2.0 * IDLE_DELAY_S)
    late_s = world.clock.now_s - begun_s - IDLE_DELAY_S
    if not is_ready() or late_s > IDLE_LATE_MAX_S:
        raise Violation(f"a delay of {IDLE_DELAY_S} s ended {late_s:.1f} s late, or later")


def a_leader_knows_less_than_the_log(_: int, repairs: Repairs) -> None:
    """Reservations have the whole grace after a change of leader, by cluster time."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    hand = Hand(world, host)
    hand.hold(ttr_s=1)
    for name in world.names:  # before any node has saved the time
        world.crash(name)
    for name in world.names:
        if name != host.name:
            start_forgetful(world, name)
    world.clock.run(4.0)
    assert world.witness.machine.queue.timeouts == 1, "the TTR did not end"


def a_leader_alone_for_a_moment(_: int, repairs: Repairs) -> None:
    """Cluster time stands still while the leader cannot serve."""
    world, leader = quick_world(repairs)
    before_us = leader.node.context.clock.estimate_us(leader.node.context.now_us)
    world.network.partition([(a, b) for a in world.names for b in world.names if a != b])
    world.clock.run(0.7)
    assert leader.node.context.replica.role == "leader"
    passed_us = leader.node.context.clock.estimate_us(leader.node.context.now_us) - before_us
    if passed_us > 300_000:
        raise Violation(f"cluster time went on by {passed_us} us, and nobody answered the leader")


def a_leader_alone_again_and_again(_: int, repairs: Repairs) -> None:
    """A follower that becomes the leader does not count the time in which its leader stood still.

    The witness checks that the TTR does not end early.
    """
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    pairs = [(a, b) for a in world.names for b in world.names if a != b]
    clock = leader.node.context.clock
    begun_s, begun_us = world.clock.now_s, clock.estimate_us(leader.node.context.now_us)
    for _ in range(30):
        world.network.partition(pairs)
        world.clock.run(0.2)
        world.network.heal()
        world.clock.run(0.15)
    assert world.leader() is leader, "it does not lead any more"
    passed_s = (clock.estimate_us(leader.node.context.now_us) - begun_us) / 1e6
    stood_s = world.clock.now_s - begun_s - passed_s
    assert stood_s > 4.0, f"its clock stood still for {stood_s:.3f} s only"
    # Links that last for a moment bring no heartbeat back from a leader with a majority.
    assert world.clock.run_until(lambda: len(world.serving()) == 3, 2.0), world.describe()
    hand = Hand(world, host)
    hand.hold(ttr_s=8)

    def hand_over() -> None:
        leader.node.context.replica.transfer(host.name)

    leader.enter(hand_over)
    world.clock.run(10.0)
    assert host.node.leader.term.serving, "it does not lead"
    assert world.witness.machine.queue.timeouts == 1, "the TTR did not end"


def a_cold_start_with_clocks_that_nobody_believes(_: int, repairs: Repairs) -> None:
    """Time goes on from the last entry, although the saved time is older and walls differ."""
    world, leader = quick_world(repairs)
    for place, name in enumerate(world.names):
        world.walls_s[name] += 86_400.0 * place
    saved = leader.node.leader.saved_clock
    world.clock.run(1.0)  # almost a second after the time was last saved
    old = world.clock.run_until(lambda: saved._next_us - leader.node.context.loop_us < 200_000, 2.0)
    assert old, "the time is never saved"
    hand = Hand(world, leader)
    hand.put(b"a")
    hand.wait(1)
    for name in world.names:
        world.crash(name)
        start_forgetful(world, name)
    if not world.clock.run_until(lambda: len(world.serving()) == len(world.names), 5.0):
        raise Stuck("not all nodes serve")


# --- once and only once ---------------------------------------------------------------------------


def _lose_one_batch(leader: SimHost, place: int) -> None:
    """Let the leader lose the next batch of an origin, and believe that it has it."""
    part = leader.node.leader.proposer
    receive = part.receive_batch

    def lossy(origin: int, frame: bytes) -> None:
        if origin != place:
            receive(origin, frame)
            return
        part.inbox._expected[origin] = frames.decode_batch(frame)[2] + 1
        vars(part).pop("receive_batch")

    vars(part)["receive_batch"] = lossy


def a_leader_loses_a_batch(_: int, repairs: Repairs) -> None:
    """A gap in the log is noticed, and the missing batch is sent again."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    first, second = Hand(world, host), Hand(world, host)
    for hand in (first, second):  # so that both have their sessions
        hand.put(b"before")
        hand.wait(1)
    _lose_one_batch(leader, host.node.context.index)
    first.put(b"lost")
    world.clock.run(0.1)
    second.put(b"after")
    for hand in (first, second):
        if not world.clock.run_until(lambda hand=hand: len(hand.replies) == 2, 1.0):  # type: ignore[misc]
            raise Stuck("a batch that the leader lost is not sent again")


def a_node_acts_after_it_was_declared_down(_: int, repairs: Repairs) -> None:
    """Batches of a dead incarnation have no effect."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    hand = Hand(world, host)
    hand.put(b"before")
    hand.wait(1)
    other = Hand(world, host)
    world.clock.run(0.1)
    host.pause(4.0)
    world.clock.run(1.0)
    other.put(b"after")  # its session begins in this batch, so only the incarnation is wrong
    world.clock.run(2.9)
    assert world.witness.downs, "it was not declared down"
    world.clock.run(2.0)
    if b"after" in world.witness.bodies.values():
        raise Violation("a put was made after its node was declared down")


# --- waits ----------------------------------------------------------------------------------------


def a_grant_that_comes_twice(_: int, repairs: Repairs) -> None:
    """One request gets one job, whatever the leader proposes."""
    world, leader = quick_world(repairs)
    part = leader.node.leader.dispatcher
    grant: Callable[..., c.Command] = part._grant

    def twice(*arguments: Any, **words: Any) -> c.Command:
        command = grant(*arguments, **words)

        def again() -> None:
            leader.node.leader.term.commands.append(command)
            leader.node.context.wake()

        world.clock.after(0.05, lambda: leader.enter(again))
        return command

    vars(part)["_grant"] = twice
    worker, producer = Hand(world, leader), Hand(world, leader)
    worker.send(b"reserve")
    world.clock.run(0.1)
    producer.put(b"a")
    producer.put(b"b")
    worker.wait(1)
    world.clock.run(0.5)
    if world.witness.machine.queue.reserved != 1:
        raise Violation("one request is granted a second job")


def an_origin_stands_still_for_a_moment(_: int, repairs: Repairs) -> None:
    """Waiting clients of a silent origin keep their places, and are served when it is back."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    worker, producer = Hand(world, host), Hand(world, leader)
    worker.send(b"reserve")
    world.clock.run(0.1)
    host.pause(0.3)
    world.clock.run(0.5)
    producer.put(b"a")
    if not world.clock.run_until(lambda: bool(worker.replies), 2.0):
        raise Stuck(f"a client of {host.name}, which stood still for a moment, waits for ever")


# --- lives of nodes -------------------------------------------------------------------------------


def a_node_is_cut_off_with_its_clients(_: int, repairs: Repairs) -> None:
    """A node that is cut off closes its clients before other nodes give their jobs away."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    hand = Hand(world, host)
    hand.hold()
    world.network.isolate(host.name)
    if not world.clock.run_until(lambda: bool(world.witness.downs), 5.0):
        raise Stuck(f"{host.name} was not declared down")
    if not hand.gone:
        raise Violation(f"{host.name} was declared down and still has its client")


def a_node_is_given_up_and_comes_back(_: int, repairs: Repairs) -> None:
    """A node learns that it was declared down, and serves again."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    host.pause(4.0)
    world.clock.run(6.0)
    assert world.witness.downs, "it was not declared down"
    hand = Hand(world, host)
    hand.put(b"a")
    if not world.clock.run_until(lambda: bool(hand.replies), 2.0):
        raise Stuck(f"{host.name} was declared down and answers nobody")


def a_node_dies_with_a_job(_: int, repairs: Repairs) -> None:
    """Q12: the jobs of a dead node's clients return, although it never does."""
    world, leader = quick_world(repairs)
    host = follower(world, leader)
    hand = Hand(world, host)
    hand.hold()
    world.crash(host.name)
    worker = Hand(world, leader)
    if worker.ask(b"reserve", 5.0) != b"RESERVED":
        raise Stuck("the job of a dead node is not given to another worker")


def a_lone_node_loses_power(_: int, repairs: Repairs) -> None:
    """INSERTED means that the job is on the disk, also at a single node."""
    world, leader = quick_world(repairs, 1)
    world.disks["n0"].latency_s = 0.2
    hand = Hand(world, leader)
    hand.put(b"a")
    hand.wait(1)
    number = job_of(hand)
    world.crash("n0")
    host = world.start("n0")
    world.clock.run(2.0)
    if Hand(world, host).ask(b"peek %d" % number) != b"FOUND":
        raise Violation(f"job {number} was answered INSERTED and is lost")


def _power_is_lost(world: World, leader: SimHost, slow: list[str], back: list[str]) -> None:
    """Cut the power of all nodes after a client has its answer, and start some: its job exists."""
    world.oracle.judges = False  # the verdict here is what the client loses
    for name in slow:
        world.disks[name].latency_s = 0.3
    hand = Hand(world, leader)
    hand.put(b"a")
    hand.wait(1)
    number = job_of(hand)
    for name in world.names:
        world.crash(name)
        world.disks[name].latency_s = 0.0005
    world.network.heal()
    for name in back:
        world.start(name)
    if not world.clock.run_until(lambda: len(world.serving()) == len(back), 8.0):
        raise Stuck(f"not all that came back serve: {world.describe()}")
    if Hand(world, world.serving()[0]).ask(b"peek %d" % number) != b"FOUND":
        raise Violation(f"job {number} was answered INSERTED and is lost")


def power_is_lost_and_the_leader_stays_away(_: int, repairs: Repairs) -> None:
    """D2: of the nodes that acknowledged an entry, at least one has it on its disk."""
    world, leader = quick_world(repairs)
    followers = [name for name in world.names if name != leader.name]
    _power_is_lost(world, leader, followers, followers)


def power_is_lost_and_the_leader_had_a_slow_disk(_: int, repairs: Repairs) -> None:
    """D2: the leader counts itself only when its own disk has the entry, like any member."""
    world, leader = quick_world(repairs)
    away = follower(world, leader).name
    world.network.isolate(away)
    world.clock.run(0.1)
    _power_is_lost(world, leader, [leader.name], [leader.name, away])


def a_disk_is_replaced_while_another_node_is_away(_: int, repairs: Repairs) -> None:
    """A node that was away meets the new disk after it counts again, and talks to it."""
    world, leader = quick_world(repairs, 5)
    away = follower(world, leader)
    lost = next(name for name in world.names if name not in (leader.name, away.name))
    world.crash(away.name)
    world.crash(lost)
    world.replace_disk(lost)
    world.start(lost)
    if not world.clock.run_until(lambda: not world.hosts[lost].node.context.replica.rejoining, 5.0):
        raise Stuck(f"{lost} is still rejoining")
    world.start(away.name)
    world.clock.run(1.0)
    if away.name not in world.hosts[lost].links:
        raise Stuck(f"{away.name} has no link to {lost}")
