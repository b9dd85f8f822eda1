"""The library's transport: translate its messages to our own, with flow control for each peer.

Every message of the library passes through `LibraryTransport.send`, every message to it through
`receive`. Replaces its TCP transport, which unpickles data from the network (H1) and never stops
sending (B7). The answers are decided in `appends.py`, `acks.py` and `elections.py`; this lower
layer receives them as functions (`wire`).
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pysyncobj.node import Node

from beanpole.replication.consensus import MIB
from beanpole.replication.pysyncobj import messages
from beanpole.replication.pysyncobj.journal import Entry
from beanpole.replication.pysyncobj.messages import encode
from beanpole.replication.pysyncobj.transport_base import Payload, TransportBase

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.shared import Shared

# B7: unacknowledged bytes of the log in flight to one peer. This bounds the bytes that the peer has
# received but not made durable: sixteen slices of the log, more than a fast disk needs in a round.
WINDOW_BYTES: Final = 16 * MIB
# The window of a new link. It grows while it is used up and answers come within `raft_min_s`, and
# shrinks while they do not: heartbeats wait behind what is in flight, and a node on a slow path
# would hear its leader too late.
WINDOW_BYTES_FIRST: Final = MIB
WINDOW_BYTES_MIN: Final = MIB // 4

# The leader knows when it sent the messages of the last seconds. A fence is due within the time.
ROUND_STEP_S: Final = 0.02
ROUNDS_KEPT_MAX: Final = 512


class Link:
    """The leader's state of the link to one peer."""

    __slots__ = (
        "asked_s",
        "fitted_round",
        "full",
        "heartbeat_due_s",
        "linked",
        "offered_s",
        "paused",
        "window_bytes",
    )

    def __init__(self) -> None:
        self.linked = False  # whether the node has a link
        self.full = False  # whether the last send was rejected
        self.paused = False  # whether sending is suspended: for the library there is no link (B7)
        self.heartbeat_due_s = 0.0  # when a paused peer is due for a heartbeat
        self.asked_s = -1e9  # when an answer was last asked for
        self.offered_s = -1e9  # when a snapshot was last offered
        self.window_bytes = min(WINDOW_BYTES_FIRST, WINDOW_BYTES)
        self.fitted_round = 0  # when the window last changed: only later rounds were sent with it


class LibraryTransport(TransportBase):
    """The transport object that the library is constructed with."""

    def __init__(self) -> None:
        super().__init__()
        self.round = 0  # incremented in every turn; appends and their answers carry it
        self.asked_round = 0  # the last round in which every peer was asked for an answer
        # Some rounds and when they began, the oldest first.
        self._begun: deque[tuple[int, float]] = deque(maxlen=ROUNDS_KEPT_MAX)
        self._asking = False
        self.links: dict[str, Link] = {}
        self.known: dict[str, int] = {}  # durable at the peer, whether it counts or not
        # The entry after which the log is sent to a peer that has acknowledged none on this link.
        self.sent_after: dict[str, int] = {}
        self._shared: Shared
        self._begin_campaign: Callable[[int], bool]
        self._matched: Callable[[str, int, bool], None]
        self._wants_answers: Callable[[], bool]
        self._snapshot: Callable[[], tuple[int, int] | None]
        self._packed_key: tuple[int, ...] = ()
        self._packed = b""

    def wire(
        self,
        shared: "Shared",
        begin_campaign: Callable[[int], bool],
        matched: Callable[[str, int, bool], None],
        wants_answers: Callable[[], bool],
        snapshot: Callable[[], tuple[int, int] | None],
    ) -> None:
        """Connect the parts, before the library's object exists.

        Args:
            shared: the shared state of the replica.
            begin_campaign: notes that votes are requested in a term, and returns whether that is
                for a transfer.
            matched: acknowledges to a leader that the log matches up to an index; the last argument
                tells whether the append brought entries.
            wants_answers: returns whether a confirmation needs answers to messages of this round.
            snapshot: returns (index, term) of the snapshot to offer, if there is one.
        """
        self._shared = shared
        self._begin_campaign = begin_campaign
        self._matched = matched
        self._wants_answers = wants_answers
        self._snapshot = snapshot
        self.links = {peer: Link() for peer in shared.peers}

    # --- in --------------------------------------------------------------------------------------

    def receive(self, peer: str, payload: Payload) -> None:
        """Pass a message to the library as if it came from the peer."""
        if self.deliver is not None:
            self.deliver(self._shared.members[peer], payload)

    def connected(self, peer: str) -> None:
        """Begin to use a new link, and resend the entries that were not acknowledged before it."""
        link = self.links[peer]
        link.linked, link.full = True, False
        link.window_bytes = min(WINDOW_BYTES_FIRST, WINDOW_BYTES)
        core = self._shared.core
        known = self.forget(peer)
        if core.leads and known:
            core.next_index[self._shared.members[peer]] = known + 1
        self._resume(peer)

    def forget(self, peer: str) -> int:
        """Forget and return the peer's index: a new link may lead to a new life of the peer."""
        self.sent_after.pop(peer, None)
        return self.known.pop(peer, 0)

    def disconnected(self, peer: str) -> None:
        """Stop sending to the peer."""
        link = self.links[peer]
        link.linked = link.full = link.paused = False
        self.link_ended(self._shared.members[peer])

    def begin_round(self) -> None:
        """Begin a round, one per turn, so that its messages differ from those sent before."""
        self.round += 1
        now_s = self._shared.now_s
        if not self._begun or now_s - self._begun[-1][1] >= ROUND_STEP_S:
            self._begun.append((self.round, now_s))
        self._asking = self._wants_answers()
        if self._asking:
            self.asked_round = self.round
            self._shared.core.send_now()

    def sent_s(self, round_: int) -> float:
        """Return when a round was sent, up to ROUND_STEP_S too early; 0 if it is too long ago."""
        for first, begun_s in reversed(self._begun):
            if first <= round_:
                return begun_s
        return 0.0

    # --- out -------------------------------------------------------------------------------------

    def send(self, node: Node, message: Payload) -> bool:
        """Send one message of the library."""
        kind = message["type"]
        if kind == "append_entries":
            previous = message.get("prevLogIdx")
            if previous is None:
                # The peer needs entries that only the snapshot has; or its next index is beyond the
                # log, which a rewind corrects.
                self.withhold(node)
                return True
            return self.append(node, message["entries"], previous, message["prevLogTerm"])
        if kind == "next_node_idx":
            # The library only answers messages passed on by `appends.py`, which have new entries.
            assert message["success"], "the library refused what was checked before"
            self._matched(node.id, message["next_node_idx"] - 1, True)
            return True
        post, term = self._shared.post, message["term"]
        if kind == "request_vote":
            last, last_term = message["last_log_index"], message["last_log_term"]
            transfer = int(self._begin_campaign(term))
            return post(node.id, (messages.VOTE, term, last, last_term, transfer))
        if kind == "response_vote":
            return post(node.id, (messages.VOTE_GRANTED, term))
        assert kind == "timeout_now", f"the library sent {kind}"
        return post(node.id, (messages.TIMEOUT_NOW, term))

    def append(self, node: Node, entries: list[Entry], previous: int, previous_term: int) -> bool:
        """Send the entries after `previous`, or none."""
        shared, peer = self._shared, node.id
        if entries and not entries[0][0]:
            # The peer needs entries that only the snapshot has: a placeholder means that this
            # member, too, got them by a snapshot.
            self.withhold(node)
            return True
        link = self.links[peer]
        asked = bool(entries) or self._must_ask(link)
        if asked:
            link.asked_s = shared.now_s
        packed = self._pack(entries, previous, previous_term, asked)
        taken = shared.callbacks.send(peer, packed)
        if not shared.repairs.flow_control:
            return taken
        if not taken:
            link.full = True
            self._pause(peer, previous + 1)
        elif entries:
            # Only the first time in a term, on a link, and after the peer has asked for a rewind.
            self.sent_after.setdefault(peer, previous)
            if self._in_flight_bytes(peer, entries[-1][1]) > link.window_bytes:
                self._pause(peer, entries[-1][1] + 1)
        return taken

    def _must_ask(self, link: Link) -> bool:
        # An append that only carries the new commit index needs no answer, which saves half of the
        # messages of a lightly loaded cluster. Without any answers the leader would step down, so
        # it asks for one per period.
        period_s = self._shared.config.heartbeat_s
        return self._asking or self._shared.now_s - link.asked_s >= period_s

    def _pack(self, entries: list[Entry], previous: int, previous_term: int, asked: bool) -> bytes:
        # The same append is sent to every peer, so it is encoded once.
        core = self._shared.core
        term, commit = core.term, core.commit
        key = (term, self.round, commit, previous, asked, len(entries))
        if key != self._packed_key:
            flat: list[int | bytes] = []
            for command, _, entry_term in entries:
                flat += (entry_term, command)
            head = (messages.APPEND, term, self.round, commit, previous, previous_term)
            self._packed = encode((*head, int(asked), flat))
            self._packed_key = key
        return self._packed

    def withhold(self, node: Node) -> None:
        """Offer the snapshot instead of an append.

        F8: while the library waits for a dump it sends such messages without end. So the next index
        is set as if the peer had the whole log, and the library continues with heartbeats, which
        the peer answers when it is ready.
        """
        shared, link = self._shared, self.links[node.id]
        core = shared.core
        core.next_index[node] = shared.journal.last + 1
        snapshot = self._snapshot()
        if snapshot is None or shared.now_s - link.offered_s < shared.config.heartbeat_s:
            return
        link.offered_s = shared.now_s
        shared.post(node.id, (messages.OFFER, core.term, self.round, *snapshot))

    # --- flow control (B7) -----------------------------------------------------------------------

    def _in_flight_bytes(self, peer: str, sent: int) -> int:
        known = self.known.get(peer) or self.sent_after.get(peer)
        if known is None:
            return 0  # only heartbeats are in flight
        journal = self._shared.journal
        return journal.bytes_after(known) - journal.bytes_after(sent)

    def _pause(self, peer: str, next_index: int) -> None:
        """Make the library skip this peer; its send loop has no other way to stop."""
        node, link = self._shared.members[peer], self.links[peer]
        self._shared.core.next_index[node] = next_index
        link.paused = True
        link.heartbeat_due_s = self._shared.now_s + self._shared.config.heartbeat_s
        self.link_ended(node)

    def _resume(self, peer: str) -> None:
        link = self.links[peer]
        link.paused = False
        if link.linked:
            self.link_began(self._shared.members[peer])

    def answered(self, peer: str, round_: int) -> None:
        """Fit the window of a peer to the time after which it answers a round."""
        link, shared = self.links[peer], self._shared
        if round_ <= link.fitted_round:
            return
        if shared.now_s - self.sent_s(round_) > shared.config.raft_min_s:
            least = min(WINDOW_BYTES_MIN, WINDOW_BYTES)
            link.window_bytes = max(link.window_bytes // 2, least)
        elif link.paused and not link.full:
            link.window_bytes = min(2 * link.window_bytes, WINDOW_BYTES)
        else:
            return
        link.fitted_round = self.round

    def acknowledged(self, peer: str) -> None:
        """Resume sending to a peer whose window has room again."""
        link = self.links[peer]
        if not link.paused or link.full:
            return
        next_index = self._shared.core.next_index[self._shared.members[peer]]
        if self._in_flight_bytes(peer, next_index - 1) <= link.window_bytes // 2:
            self._resume(peer)
            self._shared.core.send_now()
            self._shared.due = True

    def resume_all(self) -> None:
        """End all pauses, because leadership began or ended."""
        for peer, link in self.links.items():
            if link.paused:
                link.full = False
                self._resume(peer)

    def send_heartbeats(self) -> None:
        """Send heartbeats to the paused peers; a peer that accepts one is no longer full."""
        shared = self._shared
        core, journal = shared.core, shared.journal
        for peer, link in self.links.items():
            if not link.paused or shared.now_s < link.heartbeat_due_s:
                continue
            link.heartbeat_due_s = shared.now_s + shared.config.heartbeat_s
            node = shared.members[peer]
            previous = core.next_index[node] - 1
            previous_term = journal.term_of(previous)
            if previous_term is None:
                self.withhold(node)
                self._resume(peer)
                continue
            link.asked_s = shared.now_s
            head = (messages.APPEND, core.term, self.round, core.commit, previous, previous_term)
            link.full = not shared.post(peer, (*head, 1, ()))
            self.acknowledged(peer)
