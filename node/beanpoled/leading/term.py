"""One term of leadership: its number, its serving state, and the leader's own commands.

This module begins and ends a term; the contents of its entries are in `proposing`, the clients that
wait for jobs in `dispatching`. All state is volatile.
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
        epoch_is_due: whether the first entry, which carries the EPOCH, is not proposed yet.
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
        """Begin a term after the election of this node."""
        self.number = number
        self.epoch_is_due = True

    def end(self) -> None:
        """Forget everything of an earlier term: leadership is lost, or not yet won."""
        self.number = 0
        self.serving = False
        self.epoch_is_due = False
        self.commands.clear()
        self._downs.clear()

    def epoch(self, now_us: int) -> c.Command:
        """Return the EPOCH, which announces the limits of this leader to the cluster."""
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
        """Begin to serve: the EPOCH of this term, and so every earlier entry, is applied."""
        context = self._context
        self.serving = True
        # Entries of earlier terms that were not applied at the election may be later than the time
        # this node knew; its clock goes on from them, or time would stand still until it reaches
        # them.
        context.clock.lead(self.number, context.machine.queue.now_us)
        self.since_us = context.loop_us

    def node_down(self, origin: int, incarnation: int) -> None:
        """Propose once that an incarnation is dead."""
        if self.serving and (origin, incarnation) not in self._downs:
            self._downs.add((origin, incarnation))
            self.commands.append((c.NODE_DOWN, origin, incarnation))
