"""The other members as this node knows them: links, silence, the last heartbeat of each.

This module holds facts and answers questions that need nothing else. `turn.heartbeats` sends
heartbeats, and decides when a member is silent and what follows.
"""

from typing import Final

from beanpole.constants import SECOND_US
from beanpole.replication.consensus import LEADER
from beanpoled.links.frames import Heartbeat
from beanpoled.shared.context import Context

# A link that ends after this silence has stalled: the host ends it after 3 s at the earliest, and a
# link that ends for another reason was heard a moment ago.
STALL_US: Final = 2 * SECOND_US
# A link that stalls before it is this old is of no use. It exceeds the age at which the host ends a
# link that carries nothing after its first frames (3 s, with a look at each second).
STEADY_US: Final = 6 * SECOND_US


class Peer:
    """One other member."""

    __slots__ = (
        "echo_us",
        "generation",
        "heartbeat",
        "knows",
        "left_us",
        "linked",
        "silence_us",
        "silent",
        "skew_us",
        "stalls",
        "up_us",
    )

    def __init__(self) -> None:
        self.linked = False
        self.left_us = 0  # loop time at which the last link ended, or of the start without one
        self.up_us = 0  # loop time at which the last link began
        # Whether the last link stalled while it was new, as the present one may: a path that loses
        # large packets passes the introduction and a heartbeat on each link, and then nothing.
        self.stalls = False
        self.generation = 0  # of the link: grows with each new one
        self.silence_us = 0
        # Its time at the last heartbeat on this link that ended its silence; 0 for none.
        self.echo_us = 0
        self.silent = False
        self.heartbeat: Heartbeat | None = None
        # How far its wall clock was ahead of ours when that heartbeat arrived. Silence is counted
        # in loop time, so the present difference cannot be told from an old heartbeat.
        self.skew_us = 0
        # The newest machine version that its program knows; 0 until it is announced on the present
        # link, because each restart may bring another program.
        self.knows = 0


class Peers:
    """All other members.

    Attributes:
        peers: by name.
        heard_us: when this node last sent a heartbeat that its leader is known to have heard or, as
            the leader, a message that a majority has answered; in monotonic time, so that a pause
            of this process counts in full.
        disk_low: whether this node's own disk is below its reserve.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.peers = {name: Peer() for name in context.members if name != context.name}
        self.heard_us = context.now_us
        self.disk_low = False

    def up(self, name: str) -> None:
        """Note a new link."""
        peer = self.peers[name]
        peer.linked = True
        peer.up_us = self._context.loop_us
        peer.generation += 1
        peer.knows = 0
        peer.echo_us = 0  # the process at the other end may be another one

    def down(self, name: str) -> None:
        """Note the end of a link."""
        peer = self.peers[name]
        peer.linked = False
        peer.left_us = self._context.loop_us
        if peer.silence_us >= STALL_US:
            peer.stalls = not self.is_steady(peer)
        peer.knows = 0

    def is_steady(self, peer: Peer) -> bool:
        """Whether the link to a member has lasted for longer than one that stalls."""
        return self._context.loop_us - peer.up_us >= STEADY_US

    def linked_within(self, time_us: int) -> list[str]:
        """Return the members with a link now or within this time, and at first all of them."""
        loop_us = self._context.loop_us
        return [
            name
            for name, peer in self.peers.items()
            if peer.linked or loop_us - peer.left_us < time_us
        ]

    def has_contact(self) -> bool:
        """Whether this node is connected to a leader that a majority answers, as far as known."""
        replica = self._context.replica
        if replica.role == LEADER:
            return replica.majority_answers
        peer = self.peers.get(replica.leader or "")
        return peer is not None and peer.linked and not peer.silent

    @property
    def contact_us(self) -> int:
        """The age of the contact with a majority: the time since this node was heard, at most."""
        return self._context.now_us - self.heard_us

    def heard_without_echo_us(self) -> int:
        """When a majority, or a leader of a release that sends no echo, heard this node; or 0.

        Such a leader is in contact while it is heard, as it was in that release.
        """
        context = self._context
        if context.replica.role == LEADER:
            return context.replica.majority_heard_us
        peer = self.peers.get(context.replica.leader or "")
        is_older = peer is not None and peer.heartbeat is not None and not peer.heartbeat.sent_us
        return context.now_us if is_older and self.has_contact() else 0

    def cluster_us(self) -> int | None:
        """Cluster time as the members that were up know it; None if there is none.

        The lowest is returned: a late end does no harm, and TTRs must not end early.
        """
        known = [
            peer.heartbeat.cluster_us + peer.silence_us
            for peer in self.peers.values()
            if peer.heartbeat is not None and peer.linked and not peer.silent
            if peer.heartbeat.cluster_us
        ]
        return min(known, default=None)

    def disk_is_low(self) -> bool:
        """Whether puts must be refused: this disk, or a majority, is below its reserve."""
        low = int(self.disk_low)
        for peer in self.peers.values():
            low += peer.heartbeat is not None and peer.heartbeat.disk_low
        return self.disk_low or low > len(self._context.members) // 2

    def successor(self) -> str | None:
        """The member that should lead after this one: linked, and with the most of the log."""
        replica = self._context.replica
        able = [
            (replica.match_index(name), name)
            for name, peer in self.peers.items()
            if peer.linked and not peer.silent and not (peer.heartbeat and peer.heartbeat.stopping)
        ]
        return max(able)[1] if able else None

    def patient(self, concerned: set[int]) -> tuple[str, ...]:
        """The members whose clients hear nothing of an entry that concerns these origins.

        Only announcements on the present link count: a member may have come back with other
        clients.
        """
        return tuple(
            name
            for name, peer in self.peers.items()
            if peer.knows and peer.heartbeat is not None and peer.heartbeat.patient
            if self._context.index_of(name) not in concerned
        )

    def skews_us(self) -> list[int]:
        """The differences between the other nodes' wall clocks and ours, as last heard."""
        return [peer.skew_us for peer in self.peers.values() if peer.heartbeat is not None]
