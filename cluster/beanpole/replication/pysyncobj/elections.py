"""Elections: the conditions on which this member campaigns, votes and follows its leader.

The library's own rules (one vote per term, an up-to-date log) are correct. This module adds the
protection of a working leader: pre-vote, leader stickiness and fair timeouts (C1, C3, C4, C5).
"""

from typing import TYPE_CHECKING

from beanpole.replication.pysyncobj import messages

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.acks import LeaderAcks
    from beanpole.replication.pysyncobj.messages import Message
    from beanpole.replication.pysyncobj.rejoin import Rejoin
    from beanpole.replication.pysyncobj.shared import Shared
    from beanpole.replication.pysyncobj.transport import LibraryTransport


class Elections:
    """This member's part in elections."""

    def __init__(
        self, shared: "Shared", transport: "LibraryTransport", acks: "LeaderAcks", rejoin: "Rejoin"
    ) -> None:
        self._shared = shared
        self._transport = transport
        self._acks = acks
        self._rejoin = rejoin
        self._contact_s = -1e9  # the time of the last message of a current leader
        self._looked_s = shared.now_s  # the time of the last turn
        self._pre_votes: set[str] = set()
        self._pre_vote_term = 0
        self._may_campaign = False
        self._for_transfer = False
        self._asked_s = -1e9  # the time of the last request to campaign for a transfer
        self._campaign_s = -1e9
        self._voters: set[tuple[str, int]] = set()

    def note_leader_contact(self) -> None:
        """Note a message of the leader of this term."""
        self._contact_s = self._shared.now_s
        # The pre-votes were granted because there was no leader.
        self._may_campaign = False

    def begin_campaign(self, term: int) -> bool:
        """Note that the library requests votes; return whether it does so for a transfer."""
        self._campaign_s = self._shared.now_s
        self._voters = {vote for vote in self._voters if vote[1] >= term}
        return self._for_transfer

    # --- before each tick ------------------------------------------------------------------------

    def before_tick(self) -> None:
        """Decide whether the tick may begin an election."""
        shared = self._shared
        core, now_s = shared.core, shared.now_s
        paused_s, self._looked_s = now_s - self._looked_s, now_s
        if core.leads:
            return
        # C4: after a pause the heartbeats that arrived during it are still unread, and the library
        # would campaign before it reads them.
        if paused_s > shared.config.raft_min_s / 2 and shared.repairs.pause_is_not_silence:
            self._wait_again()
        if core.deadline_s >= now_s:
            return
        if self._rejoin.active or shared.journal.disk_hangs:
            # With a hung disk, this member's own vote and all of its proposals would wait for it.
            self._wait_again()
        elif core.transferring and now_s - self._asked_s > shared.config.raft_max_s:
            self._wait_again()  # it had no link when it was to stand
        elif core.transferring:
            self._for_transfer = True
        elif not shared.peers or not shared.repairs.pre_vote:
            self._for_transfer = False
        elif self._may_campaign:
            self._may_campaign = self._for_transfer = False
        else:
            core.postpone_election(now_s)
            self._ask_for_pre_votes()

    def _wait_again(self) -> None:
        """Restart the timeout of a member that may not campaign now.

        A transfer to it ends, too: its leader gives it up and goes on, and would be deposed by a
        campaign that comes later, which needs no pre-votes.
        """
        self._shared.core.postpone_election(self._shared.now_s)
        self._shared.core.forget_transfer()

    def deposed(self) -> None:
        """Restart the timeout: the library would let a deposed leader campaign at once (C5)."""
        if self._shared.repairs.deposed_leader_waits:
            self._shared.core.postpone_election(self._shared.now_s)

    def _ask_for_pre_votes(self) -> None:
        # C3: the term is incremented only when a majority would vote, so that a member that was cut
        # off returns with its old term and deposes no leader.
        shared = self._shared
        self._pre_vote_term = shared.core.term + 1
        self._pre_votes.clear()
        journal = shared.journal
        for peer in shared.peers:
            question = (messages.PRE_VOTE, self._pre_vote_term, journal.last, journal.last_term)
            shared.post(peer, question)

    # --- messages --------------------------------------------------------------------------------

    def pre_vote(self, peer: str, message: "Message") -> None:
        """Answer whether this member would vote, without any change of state."""
        _, term, last, last_term = message
        shared = self._shared
        core, journal = shared.core, shared.journal
        if term <= core.term:
            shared.post(peer, (messages.HIGHER_TERM, core.term))
        elif (
            not core.leads
            and not self._rejoin.active
            and not self._has_contact()
            and (last_term, last) >= (journal.last_term, journal.last)
        ):
            shared.post(peer, (messages.PRE_VOTE_GRANTED, term))

    def pre_vote_granted(self, peer: str, message: "Message") -> None:
        """Campaign in the next tick once a majority would vote."""
        core = self._shared.core
        if message[1] != self._pre_vote_term or message[1] != core.term + 1 or core.leads:
            return
        self._pre_votes.add(peer)
        if len(self._pre_votes) + 1 == self._shared.majority:
            self._may_campaign = True
            core.campaign()
            self._shared.due = True

    def vote(self, peer: str, message: "Message") -> None:
        """Let the library vote, unless this member has a working leader."""
        _, term, last, last_term, transfer = message
        if self._rejoin.active:
            return
        loyal = self._shared.repairs.leader_stickiness and not transfer and self._has_leader()
        if not loyal:
            self._transport.receive(
                peer,
                {
                    "type": "request_vote",
                    "term": term,
                    "last_log_index": last,
                    "last_log_term": last_term,
                },
            )

    def vote_granted(self, peer: str, message: "Message") -> None:
        """Count a vote once."""
        shared, term = self._shared, message[1]
        if shared.repairs.votes_by_name:
            # C1: the library counts messages, not voters.
            if (peer, term) in self._voters:
                return
            self._voters.add((peer, term))
        # A6: a vote is valid only for this long. A voter that has lost its disk since waits longer
        # before it votes again, so its earlier vote has expired by then.
        if shared.now_s - self._campaign_s > shared.config.raft_max_s:
            return
        self._transport.receive(peer, {"type": "response_vote", "term": term})

    def higher_term(self, peer: str, message: "Message") -> None:
        """Step down to a later term, which the library would not notice (B3)."""
        if message[1] > self._shared.core.term:
            # A vote request that cannot be granted, so that only its term has an effect.
            self._transport.receive(
                peer,
                {
                    "type": "request_vote",
                    "term": message[1],
                    "last_log_index": 0,
                    "last_log_term": -1,
                },
            )

    def timeout_now(self, peer: str, message: "Message") -> None:
        """Campaign at once, because the leader transfers its leadership."""
        if not self._rejoin.active and not self._shared.journal.disk_hangs:
            self._asked_s = self._shared.now_s
            self._transport.receive(peer, {"type": "timeout_now", "term": message[1]})
            self._shared.due = True

    # --- leader stickiness -----------------------------------------------------------------------

    def _has_contact(self) -> bool:
        return self._shared.now_s - self._contact_s < self._shared.config.raft_min_s

    def _has_leader(self) -> bool:
        core = self._shared.core
        if core.leads:
            return self._acks.majority_answers()
        return core.leader is not None and self._has_contact()
