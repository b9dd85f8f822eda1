"""Follow the replica's role: begin and end terms, hand the clock over.

The replica only notes that its role changed, in the middle of its work. The parts act on the change
at the beginning of the next turn, or before a frame that already belongs to the new term.
"""

from beanpoled.leading.leader import Leader
from beanpoled.shared.context import Context


class Roles:
    """The role of this node, as its parts know it.

    Attributes:
        changed: whether role, leader or term may differ from what the parts know.
        leader_changes: how often a new leader, or a new term with a leader, was seen.
    """

    def __init__(self, context: Context, leader: Leader) -> None:
        self._context = context
        self._leader = leader
        self.changed = True
        self.leader_changes = 0
        self._known: tuple[str | None, int] = (None, 0)

    def follow(self) -> None:
        """Act on a change of role, leader or term."""
        self.changed = False
        context, leader = self._context, self._leader
        replica = context.replica
        if replica.role == "leader":
            if leader.term.number != replica.term:
                leader.begin(replica.term)
        elif leader.term.number:
            leader.end()
        if context.clock.leading and not leader.term.number:
            context.clock.follow(context.now_us)
        known = (replica.leader, replica.term)
        if known != self._known:
            if replica.leader is not None:
                self.leader_changes += 1
                context.host.log(f"leader is {replica.leader} in term {replica.term}")
            self._known = known
