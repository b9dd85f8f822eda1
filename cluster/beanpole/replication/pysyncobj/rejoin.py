"""A member that lost its disk: it neither votes nor counts until a leader proved to need neither.

A6: the same name with an empty log would vote again in terms it has voted in and help to elect a
leader without what its earlier life had acknowledged. The leader's half is in `acks.py`.
"""

from typing import TYPE_CHECKING, Final

from beanpole.replication.consensus import Callbacks, ReplicaConfig
from beanpole.replication.pysyncobj.repairs import Repairs

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.messages import Message
    from beanpole.replication.pysyncobj.shared import Shared

# A candidacy for which the lost disk had a vote ends after raft_max_s (see
# `Elections.vote_granted`); only later may this member vote again. Two, for clocks that differ.
WAIT_RAFT_MAX: Final = 2


class Rejoin:
    """Whether this member counts. Its node remembers that, durably, before a replica begins."""

    def __init__(self, config: ReplicaConfig, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._shared: Shared
        self._target: tuple[str, int, int] | None = None  # leader, term, index
        self._begun_s = callbacks.now_s()
        # Of this life: proofs for an earlier one must not count. Never 0.
        self.nonce = 1 + int(callbacks.random() * 2**52) if config.rejoin else 0

    def wire(self, shared: "Shared") -> None:
        """Connect the parts."""
        self._shared = shared

    @property
    def active(self) -> bool:
        """Whether this member is rejoining."""
        return self.nonce != 0 and self._repairs().rejoin_without_vote

    def proved(self, peer: str, message: "Message") -> None:
        """Take the leader's proof that it leads and commits without this member."""
        _, term, nonce, index = message
        if nonce == self.nonce and nonce and term == self._shared.core.term:
            self._target = (peer, term, index)
            self._shared.due = True

    def check(self) -> None:
        """Count again when this disk has what the proof asks for."""
        if self._target is None:
            return
        shared = self._shared
        core = shared.core
        leader, term, index = self._target
        if (leader, term) != (core.leader, core.term):
            self._target = None  # another leader, another proof
            return
        waited_s = shared.now_s - self._begun_s
        if (
            min(core.applied, shared.journal.durable) >= index
            and waited_s >= WAIT_RAFT_MAX * shared.config.raft_max_s
        ):
            self._callbacks.rejoined()
            self._target = None
            self.nonce = 0

    def _repairs(self) -> Repairs:
        return self._shared.repairs
