"""What this node knows of the other members: who is heard, their beats, whether replicas agree.

Every node tells every other its beat at each heartbeat. Silence is counted in loop time, so that a
pause of this process is never mistaken for the silence of the others.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

from beanpole import commands as c
from beanpoled.frames import Beat

if TYPE_CHECKING:
    from beanpoled.node import Node

# Digests of this many newest entries are kept to compare with what the others say. A follower
# that lags further is compared once it has caught up.
CHAIN_KEPT: Final = 16_384
# A peer is silent after this many heartbeats without a frame: its waiters are passed over.
SILENT_HEARTBEATS: Final = 2


class Peer:
    """One other member."""

    __slots__ = ("beat", "generation", "linked", "mismatch", "silence_us", "silent")

    def __init__(self) -> None:
        self.linked = False
        self.generation = 0  # of the link: grows with each new one
        self.silence_us = 0
        self.silent = False
        self.beat: Beat | None = None
        self.mismatch = False  # it applied something else at an index that we applied, too


class Peers:
    """All other members, by name."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.peers = {name: Peer() for name in node.members if name != node.name}
        self.contact_us = 0  # loop time since this node last had a leader with a majority
        self.disk_low = False
        self.digest_index = 0
        self.digest = 0
        self._chain: dict[int, int] = {}
        self._indexes: deque[int] = deque()
        self._since_beat_us = 0

    # --- links and silence ----------------------------------------------------------------------

    def up(self, name: str) -> None:
        """There is a new link."""
        peer = self.peers[name]
        peer.linked = True
        peer.generation += 1
        self.heard(name)

    def down(self, name: str) -> None:
        """The link is gone."""
        self.peers[name].linked = False

    def heard(self, name: str) -> None:
        """A frame of the peer arrived."""
        peer = self.peers[name]
        peer.silence_us = 0
        if peer.silent:
            peer.silent = False
            self._node.leader.unpark(self._node.place(name))

    def turn(self, step_us: int) -> None:
        """Count silence, send beats, judge the replicas. Input was read before."""
        node = self._node
        silent_us = SILENT_HEARTBEATS * node.config.heartbeat_ms * 1000
        for name, peer in self.peers.items():
            peer.silence_us += step_us
            if peer.silence_us > silent_us and not peer.silent:
                peer.silent = True
                node.leader.park(node.place(name))
        self.contact_us += step_us
        if self.has_contact():
            self.contact_us = 0
        if node.leader.serving:
            self._declare_down()
        self._since_beat_us += step_us
        if self._since_beat_us >= node.config.heartbeat_ms * 1000:
            self._since_beat_us = 0
            self.send_beats()

    def has_contact(self) -> bool:
        """Whether this node is connected to a leader that a majority answers, as far as seen."""
        replica = self._node.replica
        if replica.role == "leader":
            return replica.majority_answers
        peer = self.peers.get(replica.leader or "")
        return peer is not None and peer.linked and not peer.silent

    def _declare_down(self) -> None:
        """Give up members that were silent for too long while this node led.

        Who was cut off from this node alone was in contact with the leader before, and has to have
        the time to close its clients.
        """
        node = self._node
        led_us = node.loop_us - node.leader.serving_since_us
        for name, peer in self.peers.items():
            if min(peer.silence_us, led_us) < node.config.node_timeout_ms * 1000:
                continue
            place = node.place(name)
            origin = node.machine.origins.get(place)
            if origin is not None and origin.alive:
                node.leader.node_down(place, origin.incarnation)

    # --- beats ----------------------------------------------------------------------------------

    def send_beats(self) -> None:
        """Tell the others how this node is."""
        node = self._node
        leading = node.leader.serving
        beat = Beat(
            term=node.replica.term,
            leading=leading,
            cluster_us=node.clock.estimate_us(node.now_us) if leading or node.clock.was_up() else 0,
            wall_us=node.host.wall_us(),
            incarnation=node.origin.incarnation,
            applied_index=node.machine.index,
            chain=node.machine.chain,
            machine_version=c.MACHINE_VERSION,
            disk_low=self.disk_low,
            stopping=node.lifecycle.stopping,
            digest_index=self.digest_index,
            digest=self.digest,
        )
        node.send_beat(beat)

    def beat(self, name: str, beat: Beat) -> None:
        """A beat of a peer arrived."""
        node = self._node
        peer = self.peers[name]
        peer.beat = beat
        if beat.leading and beat.term == node.replica.term and node.replica.leader == name:
            node.turn_begins()  # after a pause of this process the last turn is long ago
            node.clock.hear(beat.cluster_us, node.now_us)
        self._compare(name, peer)

    def cluster_us(self) -> int | None:
        """Cluster time as the others know it who were up; None if nobody was.

        The lowest: what is late harms nobody, and TTRs must not end early.
        """
        known = [
            peer.beat.cluster_us + peer.silence_us
            for peer in self.peers.values()
            if peer.beat is not None and peer.beat.cluster_us and peer.linked and not peer.silent
        ]
        return min(known, default=None)

    def machine_version(self) -> int:
        """The newest version that every member announced; the present one while some are away."""
        known = self._node.machine.version
        versions = [
            peer.beat.machine_version if peer.beat else known for peer in self.peers.values()
        ]
        return min(c.MACHINE_VERSION, *versions) if versions else c.MACHINE_VERSION

    def disk_is_low(self) -> bool:
        """Whether puts must be refused: this disk, or a majority, is below its reserve."""
        low = int(self.disk_low)
        low += sum(peer.beat is not None and peer.beat.disk_low for peer in self.peers.values())
        return self.disk_low or low > len(self._node.members) // 2

    def successor(self) -> str | None:
        """Who should lead after this node: a linked peer that has most of the log."""
        replica = self._node.replica
        able = [
            (replica.match_index(name), name)
            for name, peer in self.peers.items()
            if peer.linked and not peer.silent and not (peer.beat and peer.beat.stopping)
        ]
        return max(able)[1] if able else None

    def skews_us(self) -> list[int]:
        """How far the other nodes' wall clocks seem to be from ours."""
        wall_us = self._node.host.wall_us()
        return [
            peer.beat.wall_us - wall_us - peer.silence_us
            for peer in self.peers.values()
            if peer.beat is not None
        ]

    # --- do the replicas agree? -----------------------------------------------------------------

    def applied(self, index: int, chain: int) -> None:
        """Remember the running digest after an entry."""
        self._chain[index] = chain
        self._indexes.append(index)
        if len(self._indexes) > CHAIN_KEPT:
            del self._chain[self._indexes.popleft()]

    def digested(self, index: int, digest: int) -> None:
        """The canonical digest at an index that the log fixed is ready."""
        self.digest_index, self.digest = index, digest

    def forget_digests(self) -> None:
        """A snapshot replaced the machine."""
        self._chain.clear()
        self._indexes.clear()

    def _compare(self, name: str, peer: Peer) -> None:
        beat = peer.beat
        if beat is None:
            return
        differs = ""
        mine = self._chain.get(beat.applied_index)
        if mine is not None and mine != beat.chain:
            differs = f"at index {beat.applied_index} (its running digest)"
        if beat.digest_index and beat.digest_index == self.digest_index:
            if beat.digest != self.digest and not differs:
                differs = f"at index {beat.digest_index} (the digest of its image)"
        elif mine is None:
            return
        if differs and not peer.mismatch:
            peer.mismatch = True
            self._judge(name, differs)
        peer.mismatch = bool(differs)

    def _judge(self, name: str, where: str) -> None:
        """Stop, if those that agree with this node cannot be a majority of the members."""
        members = len(self._node.members)
        differing = sum(peer.mismatch for peer in self.peers.values())
        self._node.host.log(f"the state of {name} differs from ours {where}")
        if differing > members - (members // 2 + 1):
            self._node.fatal(
                f"this replica differs from {differing} of {members} members {where}: "
                "stopping; keep its data directory for inspection and start it with --rejoin on "
                "an empty one"
            )
