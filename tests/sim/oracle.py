"""Durability and clock checks made outside the nodes: contents of disks, the speed of time.

Every node's acknowledgements are compared with what a crash left of its log (R6), every commit with
the disks of a majority, and every leader's clock with the time in which it could serve: it may not
be ahead of that, and not behind it where nothing is in the way. The oracle knows replicas and
hosts, never clients; `verdicts` judges the replies to clients.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from beanpole.replication.pysyncobj import messages
from beanpoled.shared.clock import TURN_MAX_US
from tests.sim.cluster import Violation
from tests.sim.witness import STAMP_S

if TYPE_CHECKING:
    from tests.sim.host import SimHost
    from tests.sim.world import World

# The first two bytes of an acknowledgement: an array of six numbers, and its kind.
ACK_HEAD: Final = bytes((0x96, messages.ACK))
# A pause of a node counts as this much: the product's own constant, read before any mutation.
PAUSE_COUNTS_S: Final = TURN_MAX_US / 1e6
# Of the time in which a healthy leader runs, at least this share counts: its turns are short then.
PACE_MIN: Final = 0.9


class Reading(NamedTuple):
    """Cluster time at a node that leads, or that led until now."""

    term: int
    cluster_us: int
    ran_s: float  # how long the process had run, without its pauses

    @classmethod
    def of(cls, host: "SimHost", term: int) -> "Reading":
        """Read the clock of a node, which leads in this term."""
        context = host.node.context
        return cls(term, context.clock.estimate_us(context.now_us), host.ran_s)


class Oracle:
    """Entries that nodes acknowledged and had on disk, kept outside of the nodes."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.judges = True  # off in schedules that look at what clients lose instead
        self._had: dict[str, int] = {}  # durable when the node died
        self._told: dict[str, tuple[int, int]] = {}  # term, highest index acknowledged in it
        self._promised: dict[str, int] = {}  # the part of `_told` that no later leader may have cut
        self._wiped: set[str] = set()
        # (term, cluster time, seconds in which the process ran, its pauses) at the last proposal
        self._stamped: dict[str, tuple[int, int, float, int]] = {}
        self._kept: dict[str, Reading] = {}  # by node: its time when it ceased to lead

    # --- disks ------------------------------------------------------------------------------------

    def sent(self, name: str, payload: bytes) -> None:
        """Note an acknowledgement that a node sends: it says that entries are durable."""
        if payload[:2] != ACK_HEAD:
            return
        _, term, _, next_index, kind, nonce = messages.decode(payload)
        if kind == messages.MATCHED and not nonce:
            known = self._told.get(name, (0, 0))
            if (term, next_index - 1) > known:
                self._told[name] = (term, next_index - 1)

    def died(self, host: "SimHost") -> None:
        """Note what a node has on disk just before it loses what was not synced."""
        name, replica = host.name, host.node.context.replica
        self._had[name] = self.durable(name)
        term, index = self._told.pop(name, (0, 0))
        self._promised[name] = index if term == replica.term else 0
        self._stamped.pop(name, None)
        self._kept.pop(name, None)

    def wiped(self, name: str) -> None:
        """Note that a node's disk is empty; its old content counts until the node has rejoined."""
        self._wiped.add(name)
        self._promised.pop(name, None)

    def started(self, name: str) -> None:
        """Check that a restarted node has everything it acknowledged (R6)."""
        replica = self._world.hosts[name].node.context.replica
        if name in self._wiped:
            return
        needed = max(self._had.get(name, 0), self._promised.pop(name, 0))
        if replica.last_index < needed and self.judges:
            raise Violation(f"{name} had, or acknowledged, {needed} and has {replica.last_index}")

    def durable(self, name: str) -> int:
        """Return the last index on a node's disk that the node may acknowledge."""
        host = self._world.hosts.get(name)
        had = self._had.get(name, 0)
        if host is None or not host.ready:
            return had
        replica = host.node.context.replica
        if name in self._wiped:
            if replica.rejoining:
                return had
            self._wiped.discard(name)
        return replica.durable_index

    def committed(self, name: str, index: int) -> None:
        """Check that a newly applied entry is on the disks of a majority (D2)."""
        names = self._world.names
        having = sum(self.durable(other) >= index for other in names)
        if having <= len(names) // 2 and self.judges:
            raise Violation(f"{name} applies {index}, which {having} of {len(names)} disks have")

    # --- time -------------------------------------------------------------------------------------

    def proposed(self, host: "SimHost") -> None:
        """Check cluster time as a leader stamps an entry: each pause counts 250 ms at most."""
        self._goes_on(host)
        if not host.node.leader.term.serving:
            return  # entries committed before its election may be ahead of its clock
        term = host.node.context.replica.term
        time_us = host.node.context.clock.estimate_us(host.node.context.now_us)
        before = self._stamped.get(host.name)
        self._stamped[host.name] = (term, time_us, host.ran_s, host.pauses)
        if before is None or before[0] != term:
            return
        _, before_us, ran_s, pauses = before
        passed_s = (host.ran_s - ran_s) * host.rate + (host.pauses - pauses) * PAUSE_COUNTS_S
        if (time_us - before_us) / 1e6 > passed_s + STAMP_S:
            raise Violation(
                f"cluster time went on by {(time_us - before_us) / 1e6:.3f} s at {host.name}, "
                f"which could serve for {passed_s:.3f} s"
            )

    def deposed(self, host: "SimHost") -> None:
        """Note the time of a node that ceases to lead: its own estimate goes on from there."""
        clock, replica = host.node.context.clock, host.node.context.replica
        if clock.leading and replica.role != "leader":
            self._kept[host.name] = Reading.of(host, clock.term)

    def _goes_on(self, host: "SimHost") -> None:
        """Check that a node that leads again has lost no time, unless another led meanwhile."""
        kept = self._kept.pop(host.name, None)
        if kept is None:
            return
        now = Reading.of(host, host.node.context.replica.term)
        leaders = self._world.leaders
        if any(leaders.get(term) not in (host.name, None) for term in range(kept.term, now.term)):
            return  # the other leader may have been behind
        self._world.counts["nodes that led again"] += 1
        # Nothing counts from the fall until the next turn begins (seed 109618: 50 ms).
        self._check_passed(host, kept, now, 1.0, PAUSE_COUNTS_S)

    def healthy(self) -> Reading | None:
        """Return the leader's time, from which on nothing is in its way."""
        leader = self._world.leader()
        return None if leader is None else Reading.of(leader, leader.node.context.replica.term)

    def kept_pace(self, before: Reading | None) -> None:
        """Check that the cluster's time has passed since `healthy`, if the leader is the same."""
        leader, now = self._world.leader(), self.healthy()
        if before is None or now is None or leader is None or now.term != before.term:
            return
        self._world.counts["leaders that kept pace"] += 1
        self._check_passed(leader, before, now, PACE_MIN, STAMP_S)

    def _check_passed(
        self, host: "SimHost", before: Reading, now: Reading, share: float, slack_s: float
    ) -> None:
        ran_s = (now.ran_s - before.ran_s) * host.rate
        passed_s = (now.cluster_us - before.cluster_us) / 1e6
        if passed_s < ran_s * share - slack_s:
            raise Violation(
                f"cluster time went on by {passed_s:.3f} s at {host.name}, which ran for "
                f"{ran_s:.3f} s"
            )
