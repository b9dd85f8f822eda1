"""Where frames go: those of the other members to the parts, and those of the origin to the leader.

Bytes on a link are in `links`, sockets are in `host`. The meaning of a frame is decided by the part
that it is handed to.
"""

from beanpole.errors import ProtocolError
from beanpoled.leading.leader import Leader
from beanpoled.links import frames
from beanpoled.origin.leader_link import LeaderLink
from beanpoled.origin.outbox import Origin
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context
from beanpoled.turn.heartbeats import Heartbeats
from beanpoled.turn.roles import Roles


class ToLeader(LeaderLink):
    """The way from this node's origin to the leader; to itself it goes without a link."""

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
            # There is no link to close: as after a link that was full, everything comes again.
            context.host.log(f"this node refuses what it sent itself: {error}")
            return False
        return True

    def wake(self) -> None:
        """See `LeaderLink`.

        While this node leads and its entry is in flight, nothing can be proposed; the turn that
        finds it committed takes along what came meanwhile. So does the one that ends the wait for
        clients that were just answered. A turn costs as much as ten commands.
        """
        if not self._proposer.must_wait():
            self._context.wake()


class Router:
    """The frames that the links of this node bring, to the parts that they are for."""

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
        """A new link to a member is ready."""
        context = self._context
        context.read_clock()
        self._peers.up(peer)
        self._heartbeats.received_from(peer)
        self._leader.forget_link(context.index_of(peer))
        context.replica.connected(peer)
        context.wake()

    def link_down(self, peer: str) -> None:
        """The link to a member ended."""
        context = self._context
        self._peers.down(peer)
        self._leader.forget_link(context.index_of(peer))
        context.replica.disconnected(peer)
        context.wake()

    def receive(self, peer: str, kind: int, payload: bytes) -> None:
        """A frame of a member arrived.

        Raises:
            ProtocolError: no correct member sends this; the host closes the link.
        """
        context = self._context
        self._heartbeats.received_from(peer)
        if self._roles.changed:
            # Elected a moment ago: what origins send to the leader of this term must find it.
            self._roles.follow()
        if kind == frames.RAFT:
            context.replica.receive(peer, payload)  # it asks for a turn itself
        elif kind == frames.BATCH:
            self._proposer.receive_batch(context.index_of(peer), payload)
            self._origin.leader.wake()
        elif kind == frames.WAITS:
            self._dispatcher.receive_waits(context.index_of(peer), payload)
            self._origin.leader.wake()
        elif kind == frames.UNWAITS:
            self._dispatcher.receive_unwaits(context.index_of(peer), payload)
            context.wake()
        elif kind == frames.NONES:
            self._origin.nones(peer, payload)
        elif kind == frames.HEARTBEAT:
            self._heartbeats.receive(peer, frames.decode_heartbeat(payload))
        else:
            raise ProtocolError(f"{peer} sent a frame of the unknown kind {kind}")
