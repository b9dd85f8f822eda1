"""One term of leadership: its number, whether this node serves in it, and its own commands.

Here is what a term begins and ends with; what travels in its entries is in `proposing`, the clients
that wait for jobs are in `dispatching`. All of it is volatile.
"""

from typing import Final

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpoled.shared.context import Context

# After a change of leader no reservation ends before this, so that workers can touch again.
FLOOR_GRACE_US: Final = 2 * SECOND_US


class Term:
    """The present term of this node as the leader.

    Attributes:
        number: the term that this node leads, or 0.
        serving: whether the EPOCH of this term is applied.
        since_us: the loop time since which it serves.
        commands: the leader's own, for the next entries.
        epoch_is_due: whether the first entry, which has the EPOCH, is not proposed yet.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self.number = 0
        self.serving = False
        self.since_us = 0
        self.commands: list[c.Command] = []
        self.epoch_is_due = False
        self._downs: set[tuple[int, int]] = set()

    def begin(self, number: int) -> None:
        """This node was elected."""
        self.number = number
        self.epoch_is_due = True

    def end(self) -> None:
        """Leadership is lost, or not yet won: nothing of an earlier term survives."""
        self.number = 0
        self.serving = False
        self.epoch_is_due = False
        self.commands.clear()
        self._downs.clear()

    def epoch(self, now_us: int) -> c.Command:
        """Return the EPOCH, which tells the cluster the limits of this leader."""
        config = self._context.config
        self.epoch_is_due = False
        return (
            c.EPOCH,
            self.number,
            now_us + FLOOR_GRACE_US,
            config.jobs_max,
            config.tubes_max,
            config.sessions_max,
            config.queue_bytes_max,
        )

    def serve(self) -> None:
        """The EPOCH of this term is applied: everything of earlier terms is, too."""
        context = self._context
        self.serving = True
        # Entries of earlier terms that were not applied when it was elected may be later than what
        # this node knew; its clock goes on from them, or time would stand until then.
        context.clock.lead(context.machine.queue.now_us)
        self.since_us = context.loop_us

    def node_down(self, origin: int, incarnation: int) -> None:
        """Propose that an incarnation is dead, once."""
        if self.serving and (origin, incarnation) not in self._downs:
            self._downs.add((origin, incarnation))
            self.commands.append((c.NODE_DOWN, origin, incarnation))
