"""Send and receive heartbeats, and act on the silence of members.

Every node sends its heartbeat to every other node once in each period. Silence is counted in loop
time, so that a pause of this process is never mistaken for the silence of the other members.
`peers` holds the facts about each member.
"""

from collections.abc import Iterable
from typing import Final

from beanpole.replication.consensus import LEADER
from beanpoled.frontends.clients import Clients
from beanpoled.host.seam import WARNING
from beanpoled.leading.dispatching import Dispatcher
from beanpoled.leading.term import Term
from beanpoled.links import frames
from beanpoled.links.frames import Heartbeat
from beanpoled.origin.outbox import Origin
from beanpoled.peers.agreement import RELINK_US, RESTART_US, Agreement
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from beanpoled.turn.introductions import Introductions

# A peer is silent after this many heartbeat periods without a frame: its waiters are passed over.
SILENT_HEARTBEATS: Final = 2


class Heartbeats:
    """The heartbeats of this node and of the other members."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        agreement: Agreement,
        origin: Origin,
        term: Term,
        dispatcher: Dispatcher,
        introductions: Introductions,
        clients: Clients,
    ) -> None:
        self._context = context
        self._peers = peers
        self._agreement = agreement
        self._origin = origin
        self._term = term
        self._dispatcher = dispatcher
        self._introductions = introductions
        self._clients = clients
        self._period_us = context.config.heartbeat_ms * 1000
        self._down_us = context.config.node_timeout_ms * 1000
        self._since_sent_us = 0

    # --- silence --------------------------------------------------------------------------------

    def received_from(self, name: str, is_batch: bool = False) -> None:
        """Note that a frame of a peer arrived.

        While its links stall, a frame shows nothing but that the link is new. A batch shows that
        the path is free: the oldest one that did not arrive is the first to be sent on a link.
        """
        peer = self._peers.peers[name]
        if peer.stalls:
            if not (is_batch or self._peers.is_steady(peer)):
                return
            peer.stalls = False
        peer.silence_us = 0
        if peer.silent:
            peer.silent = False
            self._dispatcher.unpark(self._context.index_of(name))

    def turn(self, step_us: int) -> None:
        """Count silence, send heartbeats, compare replicas. Pending input has been read before."""
        peers = self._peers
        silent_us = SILENT_HEARTBEATS * self._period_us
        for name, peer in peers.peers.items():
            peer.silence_us += step_us
            if peer.silence_us > silent_us and not peer.silent:
                peer.silent = True
                self._dispatcher.park(self._context.index_of(name))
        if self._term.serving:
            self._declare_down()
        if self._agreement.disputed:
            self._judge()
        self._since_sent_us += step_us
        if self._since_sent_us >= self._period_us:
            self._since_sent_us = 0
            peers.heard_us = max(peers.heard_us, peers.heard_without_echo_us())
            self.send()

    def _declare_down(self) -> None:
        """Declare members down that were silent for too long while this node led.

        A member that was cut off from this node alone was in contact with the previous leader, and
        needs time to close its clients.
        """
        context = self._context
        led_us = context.loop_us - self._term.since_us
        for name, peer in self._peers.peers.items():
            if min(peer.silence_us, led_us) < self._down_us:
                continue
            index = context.index_of(name)
            origin = context.machine.origins.get(index)
            if origin is not None and origin.alive:
                self._term.node_down(index, origin.incarnation)

    # --- heartbeats -----------------------------------------------------------------------------

    def send(self) -> None:
        """Send the state of this node to the other members."""
        self._send_to(name for name, peer in self._peers.peers.items() if peer.linked)

    def greet(self, name: str) -> None:
        """Send the state of this node on a new link, or in return, so that echoes come at once."""
        self._send_to((name,))

    def _send_to(self, names: Iterable[str]) -> None:
        context = self._context
        clock, machine = context.clock, context.machine
        leading = self._term.serving
        digest_index, digest, digest_version = self._agreement.image
        heartbeat = Heartbeat(
            term=context.replica.term,
            leading=leading,
            cluster_us=clock.estimate_us(context.now_us) if leading or clock.was_up() else 0,
            wall_us=context.host.wall_us(),
            incarnation=self._origin.incarnation,
            applied_index=machine.index,
            state_hash=machine.state_hash,
            machine_version=context.knows,
            disk_low=self._peers.disk_low,
            stopping=context.stopping,
            digest_index=digest_index,
            digest=digest,
            digest_version=digest_version,
            active_version=machine.version,
            kept_index=self._introductions.kept_index(),
            patient=self._clients.are_patient,
            sent_us=context.now_us,
        )
        echoes = self._echoes()
        for name in names:
            echo_us = self._peers.peers[name].echo_us if echoes else 0
            frame = frames.encode_heartbeat(heartbeat._replace(echo_us=echo_us))
            context.host.send_peer(name, frames.HEARTBEAT, frame)

    def _echoes(self) -> bool:
        """Whether heartbeats contain echoes: not those of a leader that no majority answers.

        Another one may lead already, and a member that hears only this one is cut off, as it is
        itself. An election begins `raft_min_ms` after a leader's last message at the earliest.
        """
        context = self._context
        if context.replica.role != LEADER:
            return True
        age_us = context.now_us - context.replica.majority_heard_us
        return age_us <= context.config.raft_min_ms * 1000

    def receive(self, name: str, heartbeat: Heartbeat) -> None:
        """Process a heartbeat of a peer."""
        context = self._context
        peer = self._peers.peers[name]
        peer.heartbeat = heartbeat
        peer.skew_us = heartbeat.wall_us - context.host.wall_us()
        peer.knows = heartbeat.machine_version if peer.linked else 0
        self._introductions.accepted(name, heartbeat.kept_index)
        if not peer.stalls:
            is_first = not peer.echo_us
            peer.echo_us = heartbeat.sent_us
            if is_first and heartbeat.sent_us:
                self.greet(name)
        if (
            heartbeat.leading
            and heartbeat.term == context.replica.term
            and context.replica.leader == name
        ):
            context.read_clock()  # after a pause of this process the last turn is long ago
            context.clock.receive(heartbeat.term, heartbeat.cluster_us, context.now_us)
            if heartbeat.echo_us and not peer.stalls:
                self._peers.heard_us = max(self._peers.heard_us, heartbeat.echo_us)
        self._compare(name, heartbeat)

    # --- do the replicas agree? -----------------------------------------------------------------

    def _compare(self, name: str, heartbeat: Heartbeat) -> None:
        state_hash = (heartbeat.applied_index, heartbeat.state_hash)
        image = (heartbeat.digest_index, heartbeat.digest, heartbeat.digest_version)
        differs = self._agreement.compare(name, state_hash, image, self._context.loop_us)
        if differs:
            words = f"the state of {name} differs from ours {differs}"
            self._context.host.log(words, WARNING)
            self._judge()

    def _judge(self) -> None:
        """Stop this node if too few members have shown that they agree with it."""
        context = self._context
        linked, restarting = (
            self._peers.linked_within(time_us) for time_us in (RELINK_US, RESTART_US)
        )
        reason = self._agreement.judge(linked, context.loop_us, restarting)
        if reason is not None:
            self.send()  # so that the members that differ from this replica learn it, too
            context.host.flush_peers()
            context.fatal(reason)
