"""What this node knows of the other members: who is heard, their beats, whether replicas agree.

Every node tells every other its beat at each heartbeat. Silence is counted in loop time, so that a
pause of this process is never mistaken for the silence of the others.
"""

from typing import TYPE_CHECKING, Final

from beanpoled.agreement import RELINK_US, Agreement
from beanpoled.frames import Beat

if TYPE_CHECKING:
    from beanpoled.node import Node

# A peer is silent after this many heartbeats without a frame: its waiters are passed over.
SILENT_HEARTBEATS: Final = 2


class Peer:
    """One other member."""

    __slots__ = ("beat", "generation", "knows", "left_us", "linked", "silence_us", "silent")

    def __init__(self) -> None:
        self.linked = False
        self.left_us = -RELINK_US  # loop time at which the last link was gone
        self.generation = 0  # of the link: grows with each new one
        self.silence_us = 0
        self.silent = False
        self.beat: Beat | None = None
        # The newest machine version that its program knows; 0 until it says so on this very link,
        # because each restart may bring another program.
        self.knows = 0


class Peers:
    """All other members, by name."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.peers = {name: Peer() for name in node.members if name != node.name}
        self.contact_us = 0  # loop time since this node last had a leader with a majority
        self.disk_low = False
        self.digest_index = 0
        self.digest = 0
        self.digest_version = 0
        self.agreement = Agreement(self.peers)
        self._since_beat_us = 0

    # --- links and silence ----------------------------------------------------------------------

    def up(self, name: str) -> None:
        """There is a new link."""
        peer = self.peers[name]
        peer.linked = True
        peer.generation += 1
        peer.knows = 0
        self.heard(name)

    def down(self, name: str) -> None:
        """The link is gone."""
        peer = self.peers[name]
        peer.linked = False
        peer.left_us = self._node.loop_us
        peer.knows = 0

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
        if self.agreement.disputed:
            self._judge()
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
            machine_version=node.versions.knows,
            disk_low=self.disk_low,
            stopping=node.lifecycle.stopping,
            digest_index=self.digest_index,
            digest=self.digest,
            digest_version=self.digest_version,
            active_version=node.machine.version,
            kept_index=node.introductions.kept_index(),
        )
        node.send_beat(beat)

    def beat(self, name: str, beat: Beat) -> None:
        """A beat of a peer arrived."""
        node = self._node
        peer = self.peers[name]
        peer.beat = beat
        peer.knows = beat.machine_version if peer.linked else 0
        node.introductions.accepted(name, beat.kept_index)
        if beat.leading and beat.term == node.replica.term and node.replica.leader == name:
            node.turn_begins()  # after a pause of this process the last turn is long ago
            node.clock.hear(beat.term, beat.cluster_us, node.now_us)
        self._compare(name, beat)

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

    def digested(self, index: int, digest: int, version: int) -> None:
        """The canonical digest at an index that the log fixed is ready; of a machine's version."""
        self.digest_index, self.digest, self.digest_version = index, digest, version
        self.agreement.digested((index, digest, version))

    def image_loaded(self) -> None:
        """A snapshot replaced the machine: what was told of the one before holds no longer."""
        machine = self._node.machine
        self.digest_index = self.digest = self.digest_version = 0
        self.agreement.forget()
        self.agreement.applied(machine.index, machine.chain)

    def _compare(self, name: str, beat: Beat) -> None:
        chain = (beat.applied_index, beat.chain)
        image = (beat.digest_index, beat.digest, beat.digest_version)
        differs = self.agreement.told(name, chain, image, self._node.loop_us)
        if differs:
            self._node.host.log(f"the state of {name} differs from ours {differs}")
            self._judge()

    def _judge(self) -> None:
        """Stop if the members that have shown that they agree with this node are too few."""
        loop_us = self._node.loop_us
        linked = [
            name
            for name, peer in self.peers.items()
            if peer.linked or loop_us - peer.left_us < RELINK_US
        ]
        reason = self.agreement.judge(linked, loop_us)
        if reason is not None:
            self.send_beats()  # so that those who differ from this replica learn it, too
            self._node.host.flush_peers()
            self._node.fatal(reason)
