"""Transfer of leadership: no new entries until the target has the whole log, then it campaigns.

C7: the library refuses a transfer unless the target has the very last entry, which never happens
under load.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.acks import LeaderAcks
    from beanpole.replication.pysyncobj.shared import Shared


class Transfer:
    """The transfer in progress, if any."""

    def __init__(self, shared: "Shared", acks: "LeaderAcks") -> None:
        self._shared = shared
        self._acks = acks
        self._to: str | None = None
        self._until_s = 0.0
        self._asked = False

    @property
    def active(self) -> bool:
        """Return whether new entries must wait."""
        return self._to is not None

    def begin(self, to: str | None) -> bool:
        """Choose the target and stop accepting entries; return False if there is no target."""
        shared, known = self._shared, self._acks.known
        if not shared.core.leads or self._to is not None:
            return False
        if to is None:
            able = [peer for peer in shared.peers if self._acks.can_lead(peer)]
            to = max(able, key=lambda peer: (known.get(peer, 0), peer), default=None)
        # Entries wait for raft_max, and callers repeat a transfer: one that cannot succeed must not
        # begin. The index of a member that has gone stays known, and may be the highest.
        if to not in known or to not in shared.peers or not self._acks.can_lead(to):
            return False
        self._to, self._asked = to, False
        # After this time the leader accepts entries again, if it still leads.
        self._until_s = shared.callbacks.now_s() + shared.config.raft_max_s
        return True

    def turn(self) -> None:
        """Ask the target to campaign once it has the whole log; give up after the timeout."""
        shared, to = self._shared, self._to
        if to is None:
            return
        if shared.now_s >= self._until_s or not shared.core.leads:
            self.end()
        elif not self._asked and self._acks.known.get(to, 0) == shared.journal.last:
            self._asked = shared.core.transfer_to(shared.members[to])

    def end(self) -> None:
        """Accept entries again (if this member still leads)."""
        self._to = None
