"""The interpreter's garbage collector in a node: what it traverses, and when.

Most objects break their cycles when they end. This is for the rest, and for a replaced machine:
its jobs refer to their tubes and sessions, and these to them.
"""

import gc
from typing import Final

from beanpoled.shared.context import Context

# A collection of the oldest generation traverses every job: half a second for a million jobs. So it
# never runs by itself. A collection of a younger generation traverses at most 25,000 objects: with
# 100,000, a growing queue stood still for 15 to 47 ms at every 100,000th job, on all nodes at the
# same entry of the log.
COLLECT_AFTER: Final = (5_000, 3, 1_000_000_000)
# A full collection with that many jobs, tubes and sessions takes some 30 ms.
SMALL_MAX: Final = 50_000
PERIOD_S: Final = 3600.0


class Collector:
    """Runs full collections: after a snapshot has replaced the machine, and while it is small."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._loads = context.loads
        self._due_s = 0.0

    def begin(self, now_s: float) -> None:
        """Leave out all objects of the start, until the first full collection."""
        self._loads = self._context.loads
        self._due_s = now_s + PERIOD_S
        gc.freeze()

    def look(self, now_s: float) -> None:
        """Run a full collection if one is due; call this every few seconds."""
        loads = self._context.loads
        is_replaced, self._loads = loads != self._loads, loads
        if not is_replaced and now_s < self._due_s:
            return
        self._due_s = now_s + PERIOD_S
        machine = self._context.machine
        size = len(machine.queue.jobs) + len(machine.queue.tubes) + machine.sessions
        if is_replaced or size + len(machine.qless.by_id) <= SMALL_MAX:
            gc.unfreeze()  # a machine that was loaded at the start is among them
            gc.collect()
            gc.freeze()
