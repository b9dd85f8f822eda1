"""The batches that reached the leader and are in no entry yet, in the order of their arrival.

This module decides which batches are taken and which are forgotten; `proposing` decides when they
leave. No I/O, no clock. An origin keeps every batch until it is applied, so a forgotten batch comes
again; a batch must never be in the inbox twice, or the bound below would not hold.
"""

from collections import deque
from typing import Final

from beanpoled.links import frames
from beanpoled.links.frames import BATCHES_IN_FLIGHT_MAX

# The limit for one origin. It numbers the next batch only when fewer than half of this are
# unapplied, and no batch is here twice. But entries of an earlier leader that are applied before
# this leader's first entry may contain up to that many of the batches that are here; the origin
# then goes on numbering, and the duplicates leave with that first entry.
INBOX_BATCHES_MAX: Final = 2 * BATCHES_IN_FLIGHT_MAX

# (origin, incarnation, number, number of clients that wait for its answers, hint, payload)
ReceivedBatch = tuple[int, int, int, int, frames.Hint, bytes]


class Inbox:
    """All waiting batches.

    Attributes:
        batches: the oldest first.
        bytes: of their payloads.
        clients: the number of clients that wait for their answers.
    """

    def __init__(self) -> None:
        self.batches: deque[ReceivedBatch] = deque()
        self.bytes = 0
        self.clients = 0
        self._expected: dict[int, int] = {}  # origin -> the next expected number on its link
        self._counts: dict[int, int] = {}  # origin -> the number of its batches here

    def add(self, batch: ReceivedBatch, first: bool) -> bool:
        """Take a batch if it is the next of its link; the origin resends missing ones.

        Args:
            batch: the batch that arrived.
            first: whether the origin resends everything, beginning with this batch.

        Returns:
            False if the inbox holds more batches of the origin than a correct origin ever has in
            flight.
        """
        origin, number = batch[0], batch[2]
        if first:
            self.forget(origin)
        elif self._expected.get(origin) != number:
            return True
        count = self._counts.get(origin, 0)
        if count >= INBOX_BATCHES_MAX:
            return False
        self._expected[origin] = number + 1
        self._counts[origin] = count + 1
        self.batches.append(batch)
        self.bytes += len(batch[5])
        self.clients += batch[3]
        return True

    def pop(self) -> ReceivedBatch:
        """Remove and return the oldest batch."""
        batch = self.batches.popleft()
        self._counts[batch[0]] -= 1
        self.bytes -= len(batch[5])
        self.clients -= batch[3]
        return batch

    def forget(self, origin: int) -> None:
        """Forget the batches of an origin: it resends them, on a new link or on this one."""
        self._expected.pop(origin, None)
        if self._counts.pop(origin, 0):
            kept = [batch for batch in self.batches if batch[0] != origin]
            self.batches.clear()
            self.batches.extend(kept)
            self.bytes = sum(len(batch[5]) for batch in kept)
            self.clients = sum(batch[3] for batch in kept)

    def clear(self) -> None:
        """Forget everything: leadership is lost."""
        self.batches.clear()
        self._expected.clear()
        self._counts.clear()
        self.bytes = 0
        self.clients = 0
