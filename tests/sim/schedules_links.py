"""Directed schedules for the links between nodes: what arrives is not what was sent.

Each function takes a seed, which it ignores, and the repairs that are on, and raises a Violation or
Stuck if a guarantee is broken.
"""

from beanpole.replication.pysyncobj.repairs import Repairs
from beanpoled.links import frames
from tests.sim.cluster import Violation
from tests.sim.links import KIND_AT
from tests.sim.schedules_node import Hand, follower, job_of, quick_world
from tests.sim.storm import Stuck

BODY = b"what was put, and nothing else"


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
