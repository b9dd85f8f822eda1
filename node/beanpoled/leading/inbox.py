"""The batches that came to the leader and are in no entry yet, in the order of their arrival.

Here is which batches are taken and which are forgotten; when they leave is decided in `proposing`.
No I/O, no clock. An origin keeps every batch until it is applied, so what is forgotten here comes
again; what is kept here must never be there twice, or the bound below would not be one.
"""

from collections import deque
from typing import Final

from beanpoled.links import frames
from beanpoled.links.frames import BATCHES_IN_FLIGHT_MAX

# Of one origin. It numbers the next batch only when fewer than half of this are not applied, and
# what is here is not here twice. But entries of an earlier leader, applied before the first of this
# one, may hold as many of those that are here: the origin goes on then, and they leave with that
# entry.
INBOX_BATCHES_MAX: Final = 2 * BATCHES_IN_FLIGHT_MAX

# (origin, incarnation, number, how many clients wait for its answers, hint, payload)
ReceivedBatch = tuple[int, int, int, int, frames.Hint, bytes]


class Inbox:
    """All waiting batches.

    Attributes:
        batches: the oldest first.
        bytes: of their payloads.
        clients: how many clients wait for their answers.
    """

    def __init__(self) -> None:
        self.batches: deque[ReceivedBatch] = deque()
        self.bytes = 0
        self.clients = 0
        self._expected: dict[int, int] = {}  # origin -> the next number of its link
        self._counts: dict[int, int] = {}  # origin -> how many of its batches are here

    def add(self, batch: ReceivedBatch, first: bool) -> bool:
        """Take a batch if it is the next of its link; the origin sends again what is missing.

        Args:
            batch: what arrived.
            first: the origin sends everything again, from this one on.

        Returns:
            False if a correct origin never has more batches on their way than are here.
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
        """Remove the oldest batch."""
        batch = self.batches.popleft()
        self._counts[batch[0]] -= 1
        self.bytes -= len(batch[5])
        self.clients -= batch[3]
        return batch

    def forget(self, origin: int) -> None:
        """All of an origin that is in no entry comes again: on a new link, or on this one."""
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
