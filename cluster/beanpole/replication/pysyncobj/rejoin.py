"""Rejoin after the loss of a disk: the member neither votes nor counts until a leader's proof.

A6: the same name with an empty log could vote a second time in a term, and help to elect a leader
that lacks entries acknowledged by the member's earlier life. A leader proves that a majority
confirmed it without this member, and names an index; with the log up to there, this member counts
again. The leader's half is in `acks.py`.
"""

from typing import TYPE_CHECKING, Final

from beanpole.replication.consensus import Callbacks, ReplicaConfig

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.messages import Message
    from beanpole.replication.pysyncobj.shared import Shared

# A candidacy that may have a vote from the lost disk ends after raft_max_s (see
# `Elections.vote_granted`), and this member must not vote again before. The factor of two allows
# for differences between clocks.
WAIT_RAFT_MAX: Final = 2


class Rejoin:
    """Tracks whether this member counts. The node stores that durably before a replica begins."""

    def __init__(self, config: ReplicaConfig, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._shared: Shared
        self._target: tuple[str, int, int] | None = None  # leader, term, index
        self._begun_s = callbacks.now_s()
        # Identifies this life, because a proof for an earlier one must not count. Never 0.
        self.nonce = 1 + int(callbacks.random() * 2**52) if config.rejoin else 0

    def wire(self, shared: "Shared") -> None:
        """Connect the parts."""
        self._shared = shared

    @property
    def active(self) -> bool:
        """Whether this member is rejoining."""
        return self.nonce != 0 and self._shared.repairs.rejoin_without_vote

    def proved(self, peer: str, message: "Message") -> None:
        """Accept the leader's proof that it leads and commits without this member."""
        _, term, nonce, index = message
        if nonce == self.nonce and nonce and term == self._shared.core.term:
            self._target = (peer, term, index)
            self._shared.due = True

    def check(self) -> None:
        """Count again once the log up to the index of the proof is applied and durable."""
        if self._target is None:
            return
        shared = self._shared
        core = shared.core
        leader, term, index = self._target
        if (leader, term) != (core.leader, core.term):
            self._target = None  # another leader must give its own proof
            return
        waited_s = shared.now_s - self._begun_s
        if (
            min(core.applied, shared.journal.durable) >= index
            and waited_s >= WAIT_RAFT_MAX * shared.config.raft_max_s
        ):
            self._callbacks.rejoined()
            self._target = None
            self.nonce = 0
