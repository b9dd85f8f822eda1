"""Acknowledgements: which may be counted, when, and what a majority of them proves.

Group commit: an entry counts for a member only when it is durable on that member's disk (D2). The
follower defers its acknowledgements, and the leader defers its own. This module also derives from
the acknowledgements the proofs of leadership, the flow control and the set of rejoining members.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from beanpole.errors import ProtocolError
from beanpole.replication.pysyncobj import messages

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.messages import Message
    from beanpole.replication.pysyncobj.rejoin import Rejoin
    from beanpole.replication.pysyncobj.shared import Shared
    from beanpole.replication.pysyncobj.transport import LibraryTransport


class FollowerAcks:
    """The acknowledgements that this member sends to the leader."""

    def __init__(self, shared: "Shared", rejoin: "Rejoin") -> None:
        self._round = 0  # the round of the newest message of the leader of `_round_term`
        self._round_term = -1
        self._shared = shared
        self._rejoin = rejoin
        self._deferred: tuple[str, int, int] | None = None  # leader, term, index
        self._reported = 0  # the index up to which the deferred one was sent already
        self._sent_s = -1e9

    def note_round(self, term: int, round_: int) -> None:
        """Note the round of a message of the leader. Each leader numbers its own rounds."""
        if term != self._round_term:
            self._round, self._round_term = 0, term
        self._round = max(self._round, round_)

    def matched(self, leader: str, index: int, brought_entries: bool) -> None:
        """Acknowledge that the log matches the leader's up to `index`, as far as it is durable."""
        shared = self._shared
        term = shared.core.term
        durable = shared.journal.durable if shared.repairs.clip_follower_acks else index
        if index > durable:
            deferred = self._deferred
            if deferred is None or deferred[:2] != (leader, term) or deferred[2] < index:
                self._deferred = (leader, term, index)
            self._reported = durable
            if brought_entries and shared.now_s - self._sent_s < shared.config.heartbeat_s:
                return  # a larger index will be durable soon; a slow disk still sends heartbeats
            index = durable
        elif self._deferred is not None and self._deferred[2] <= index:
            self._deferred = None
        self._send_ack(leader, messages.MATCHED, index + 1)

    def rewind(self, leader: str, next_index: int) -> None:
        """Ask for all entries from `next_index` on."""
        self._send_ack(leader, messages.REWIND, next_index)

    def alive(self, leader: str) -> None:
        """Answer without an index: only a sign of life."""
        self._send_ack(leader, messages.ALIVE, 0)

    def durable_grew(self) -> None:
        """Send the deferred acknowledgement, as far as the log is durable."""
        shared, deferred = self._shared, self._deferred
        if deferred is None:
            return
        leader, term, index = deferred
        if term != shared.core.term:
            self._deferred = None
            return
        index = min(index, shared.journal.last)
        durable = shared.journal.durable
        if durable >= index:
            self._deferred = None
        elif durable <= self._reported:
            return
        self._reported = min(index, durable)
        self._send_ack(leader, messages.MATCHED, self._reported + 1)

    def _send_ack(self, leader: str, kind: int, next_index: int) -> None:
        shared = self._shared
        self._sent_s = shared.now_s
        # B3: the term, so that the acknowledgement cannot count in another one. The round, so that
        # the leader knows which of its messages this member has received.
        term = shared.core.term
        shared.post(leader, (messages.ACK, term, self._round, next_index, kind, self._rejoin.nonce))


class LeaderAcks:
    """The acknowledgements that the leader of one term receives, and what they prove."""

    def __init__(self, shared: "Shared", transport: "LibraryTransport") -> None:
        # The index that is durable at each peer, whether it counts or not; shared with the flow
        # control of the transport.
        self.known = transport.known
        self._shared = shared
        self._transport = transport
        self._term = -1
        self._answered: dict[str, int] = {}  # the newest round that a counting peer answered
        self._answered_s: dict[str, float] = {}
        self._rewound: dict[str, int] = {}  # the round of the last rewind that was honoured
        self._confirmations: list[tuple[int, Callable[[], None]]] = []
        self._rejoining: dict[str, int] = {}  # peer -> nonce of its current life
        self._rejoined_at: dict[str, tuple[int, int]] = {}  # peer -> (nonce, index)

    def begin_term(self) -> None:
        """Forget the acknowledgements of other terms."""
        term = self._shared.core.term
        if term == self._term:
            return
        self._term = term
        self.known.clear()
        self._transport.sent_after.clear()
        self._answered.clear()
        self._answered_s.clear()
        self._rewound.clear()
        self._confirmations.clear()
        self._rejoining.clear()
        self._rejoined_at.clear()

    def receive(self, peer: str, message: "Message") -> None:
        """Handle an acknowledgement."""
        _, term, round_, next_index, kind, nonce = message
        shared = self._shared
        core = shared.core
        if not core.leads:
            return
        # B3: the library counts acknowledgements of earlier terms, for entries that the peer may
        # have lost since.
        if term != core.term and shared.repairs.acks_of_this_term:
            return
        self.begin_term()
        self._note_rejoin(peer, nonce)
        if peer not in self._rejoining:
            self._answered[peer] = max(self._answered.get(peer, 0), round_)
            self._answered_s[peer] = shared.now_s
        self._transport.answered(peer, round_)
        if self._confirmations:
            shared.due = True
        if kind == messages.REWIND:
            self._rewind(peer, next_index, round_)
            return
        if kind == messages.MATCHED:
            index = next_index - 1
            if index > shared.journal.last and shared.repairs.acks_of_this_term:
                raise ProtocolError(f"{peer} acknowledged {index}, which does not exist")
            self.known[peer] = max(self.known.get(peer, 0), index)
        self._count(peer)
        self._transport.acknowledged(peer)

    # --- counting --------------------------------------------------------------------------------

    def _effective(self, index: int) -> int:
        """Clip an acknowledged index so that the library's count is correct.

        The library always counts the leader itself (D2). That is correct only for entries that are
        durable at the leader, or that a majority has without the leader.
        """
        shared = self._shared
        if not shared.repairs.clip_leader_acks:
            return index
        durable = shared.journal.durable
        if index <= durable:
            return index
        counted = sorted((self._counting(peer) for peer in shared.peers), reverse=True)
        without_leader = counted[shared.majority - 1] if len(counted) >= shared.majority else 0
        return min(index, max(durable, without_leader))

    def _counting(self, peer: str) -> int:
        return 0 if peer in self._rejoining else self.known.get(peer, 0)

    def _count(self, peer: str) -> None:
        """Pass the clipped acknowledgement to the library."""
        if peer in self._rejoining:
            return  # A6: it counts neither for a commit nor as an answer of a majority
        shared = self._shared
        core, node = shared.core, shared.members[peer]
        index = self._effective(self.known.get(peer, 0))
        if core.count(node, index):
            self._lift()
            return
        before = core.next_index[node]
        self._transport.receive(
            peer,
            {
                "type": "next_node_idx",
                "reset": False,
                "success": True,
                "next_node_idx": index + 1,
            },
        )
        # B4: the library rewinds to the acknowledged index and resends all entries in flight.
        if shared.repairs.acks_never_rewind and core.next_index[node] < before:
            core.next_index[node] = before
        self._lift()

    def _lift(self) -> None:
        """Raise the match indexes that another acknowledgement, or this disk, made countable."""
        shared = self._shared
        core = shared.core
        matches = core.match_index
        for peer in shared.peers:
            known, node = self._counting(peer), shared.members[peer]
            if matches[node] < known:
                matches[node] = max(matches[node], self._effective(known))
        if shared.peers and core.reached() > core.commit:
            # The next tick commits, and notifies the members that need to know at once.
            core.commit_soon()
            shared.due = True

    def durable_grew(self) -> None:
        """Count the entries that became durable on the leader's own disk."""
        if self._shared.core.leads and self._term == self._shared.core.term:
            self._lift()

    def _rewind(self, peer: str, next_index: int, round_: int) -> None:
        """Resend from the index at which the peer's log ends or differs."""
        shared = self._shared
        if shared.repairs.one_rewind_per_resend:
            # B4, B5: answers to messages that were in flight when the last rewind was honoured
            # ask for entries that are being resent already.
            if round_ <= self._rewound.get(peer, 0):
                next_index = 0
            else:
                self._rewound[peer] = self._transport.round
        node, core = shared.members[peer], shared.core
        if next_index:
            low = self.known.get(peer, 0) + 1
            core.next_index[node] = max(low, min(next_index, shared.journal.last + 1))
            self._transport.sent_after.pop(peer, None)
            core.send_now()
            shared.due = True
        if peer not in self._rejoining:
            answer = {"type": "next_node_idx", "reset": False, "success": False, "next_node_idx": 1}
            self._transport.receive(peer, answer)  # only a sign of life
        self._transport.acknowledged(peer)

    # --- proofs by a majority --------------------------------------------------------------------

    def majority_answers(self) -> bool:
        """Return whether a majority answered within the last raft_min_s."""
        shared = self._shared
        if not shared.core.leads:
            return False
        since_s = shared.callbacks.now_s() - shared.config.raft_min_s
        answers = 1 + sum(at_s >= since_s for at_s in self._answered_s.values())
        return answers >= shared.majority

    def majority_heard_s(self) -> float:
        """Return when this leader sent the newest message that a majority answered.

        By the clock of `Callbacks.now_s`; 0 if this member does not lead, or if that is too long
        ago.
        """
        shared = self._shared
        if not shared.core.leads or shared.core.term != self._term:
            return 0.0
        return self._transport.sent_s(self._proved_round())

    def confirm(self, done: Callable[[], None]) -> None:
        """Call `done` once a majority has answered messages sent after this call (E1)."""
        self.begin_term()
        self._confirmations.append((self._transport.round, done))
        self._shared.due = True

    def wants_answers(self) -> bool:
        """Return whether a confirmation needs a message that was not sent yet."""
        waiting = self._confirmations
        return bool(waiting) and waiting[-1][0] >= self._transport.asked_round

    def check_confirmations(self) -> None:
        """Call the callbacks of the confirmations that are proved."""
        waiting = self._confirmations
        shared = self._shared
        core = shared.core
        if not waiting:
            return
        if not core.leads or core.term != self._term:
            waiting.clear()
            return
        # Until an entry of its own term is committed, a new leader does not know the commit index.
        if core.commit < core.first_of_term:
            return
        proved = self._proved_round()
        while waiting and waiting[0][0] < proved:
            _, done = waiting.pop(0)
            done()

    def _proved_round(self) -> int:
        shared = self._shared
        needed = shared.majority - 2
        if needed < 0 or not shared.repairs.confirm_by_majority:
            return self._transport.round + 1
        answered = sorted((self._answered.get(peer, 0) for peer in shared.peers), reverse=True)
        return answered[needed]

    # --- members that lost their disk (A6) -------------------------------------------------------

    def can_lead(self, peer: str) -> bool:
        """Return whether leadership may be handed over to the peer: it has a link, and counts."""
        return peer not in self._rejoining and self._transport.links[peer].linked

    def match_index(self, peer: str) -> int:
        """Return the index that a peer is known to have; 0 while it is rejoining."""
        return 0 if peer in self._rejoining else self.known.get(peer, 0)

    def _note_rejoin(self, peer: str, nonce: int) -> None:
        if not nonce or not self._shared.repairs.rejoin_without_vote:
            if self._rejoining.pop(peer, None) is not None:
                self._rejoined_at.pop(peer, None)
            return
        if self._rejoining.get(peer) != nonce:
            # The entries that an earlier life of the peer acknowledged are lost.
            self._rejoining[peer] = nonce
            self.known.pop(peer, None)
            self._answered.pop(peer, None)
            self._answered_s.pop(peer, None)
            self._rejoined_at.pop(peer, None)
            self._shared.core.match_index[self._shared.members[peer]] = 0
            self.confirm(lambda: self._proved(peer, nonce))
        proof = self._rejoined_at.get(peer)
        if proof is not None:
            self._shared.post(peer, (messages.REJOINED_AT, self._term, *proof))

    def _proved(self, peer: str, nonce: int) -> None:
        # A majority confirmed this leader after the peer began to rejoin, and the peer is not in
        # it. That majority shares a member other than the peer with every majority that committed
        # by the peer's acknowledgement, so every entry committed before the peer lost its disk is
        # in this log, up to the current commit index.
        if self._rejoining.get(peer) == nonce:
            self._rejoined_at[peer] = (nonce, self._shared.core.commit)
