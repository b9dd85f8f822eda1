"""Route frames: from other members to the parts of the node, and from the origin to the leader.

`links` handles the bytes on a link, `host` the sockets. The part that receives a frame decides its
meaning.
"""

from beanpole.errors import ProtocolError
from beanpoled.host.seam import WARNING
from beanpoled.leading.leader import Leader
from beanpoled.links import frames
from beanpoled.origin.leader_link import LeaderLink
from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from beanpoled.turn.heartbeats import Heartbeats
from beanpoled.turn.roles import Roles


class ToLeader(LeaderLink):
    """The path from this node's origin to the leader; if this node leads, there is no link."""

    def __init__(self, context: Context, peers: Peers, leader: Leader) -> None:
        self._context = context
        self._peers = peers
        self._term = leader.term
        self._proposer = leader.proposer
        self._dispatcher = leader.dispatcher

    def target(self) -> tuple[str, int, int] | None:
        """See `LeaderLink`."""
        context = self._context
        leader = context.replica.leader
        term = context.replica.term
        if leader is None:
            return None
        if leader == context.name:
            return (leader, term, 0) if self._term.number == term else None
        peer = self._peers.peers[leader]
        return (leader, term, peer.generation) if peer.linked else None

    def send(self, kind: int, frame: bytes) -> bool:
        """See `LeaderLink`."""
        context = self._context
        leader = context.replica.leader
        if leader is None:
            return False
        if leader != context.name:
            return context.host.send_peer(leader, kind, frame)
        try:
            if kind == frames.BATCH:
                self._proposer.receive_batch(context.index, frame)
            elif kind == frames.WAITS:
                self._dispatcher.receive_waits(context.index, frame)
            else:
                self._dispatcher.receive_unwaits(context.index, frame)
        except ProtocolError as error:
            # There is no link to close: the origin resends everything, as after a link that was
            # full.
            context.host.log(f"this node refuses what it sent itself: {error}", WARNING)
            return False
        return True

    def wake(self) -> None:
        """See `LeaderLink`.

        While this node leads and its entry is in flight, nothing can be proposed; the turn that
        sees the commit also takes what came meanwhile. So does the turn that ends the wait for
        clients that were just answered. A turn costs as much as ten commands.
        """
        if not self._proposer.must_wait():
            self._context.wake()


class Router:
    """Pass the frames that arrive on this node's links to the parts they are meant for."""

    def __init__(
        self,
        context: Context,
        peers: Peers,
        heartbeats: Heartbeats,
        origin: Origin,
        leader: Leader,
        roles: Roles,
    ) -> None:
        self._context = context
        self._peers = peers
        self._heartbeats = heartbeats
        self._origin = origin
        self._leader = leader
        self._proposer = leader.proposer
        self._dispatcher = leader.dispatcher
        self._roles = roles

    def link_up(self, peer: str) -> None:
        """Handle a new link to a member."""
        context = self._context
        context.read_clock()
        self._peers.up(peer)
        self._heartbeats.received_from(peer)
        self._leader.forget_link(context.index_of(peer))
        context.replica.connected(peer)
        self._heartbeats.greet(peer)
        context.wake()

    def link_down(self, peer: str) -> None:
        """Handle the end of the link to a member."""
        context = self._context
        self._peers.down(peer)
        self._leader.forget_link(context.index_of(peer))
        context.replica.disconnected(peer)
        context.wake()

    def receive(self, peer: str, kind: int, payload: bytes) -> None:
        """Handle a frame of a member.

        Raises:
            ProtocolError: a correct member never sends this; the host closes the link.
        """
        context = self._context
        self._heartbeats.received_from(peer, kind == frames.BATCH)
        if self._roles.changed:
            # This node was elected a moment ago; it must act as leader before it handles frames of
            # the new term.
            self._roles.follow()
        if kind == frames.RAFT:
            context.replica.receive(peer, payload)  # the replica asks for a turn itself
        elif kind == frames.BATCH:
            self._proposer.receive_batch(context.index_of(peer), payload)
            self._origin.leader_link.wake()
        elif kind == frames.WAITS:
            self._dispatcher.receive_waits(context.index_of(peer), payload)
            self._origin.leader_link.wake()
        elif kind == frames.UNWAITS:
            self._dispatcher.receive_unwaits(context.index_of(peer), payload)
            context.wake()
        elif kind == frames.NONES:
            self._origin.nones(peer, payload)
        elif kind == frames.HEARTBEAT:
            self._heartbeats.receive(peer, frames.decode_heartbeat(payload))
        else:
            raise ProtocolError(f"{peer} sent a frame of the unknown kind {kind}")
