"""Adaptive batching: the leader's next entry waits a moment for clients that were just answered.

This module decides only how long to wait, and for how many clients; `proposing` decides what is
proposed. No I/O, no clock. An entry has a fixed cost, whatever it carries (ADR 0013). Most clients
send their next command as soon as they have an answer, so a short wait after a commit makes one
entry of what would be two. Each attempt measures whether the wait pays off: clients that send at
their own pace, and not upon an answer, are hardly ever waited for.
"""

from typing import Final

# All clients that were answered or are waiting already are expected, except one in this many: among
# many clients, a few start to work on their jobs.
EXPECTED_BUT: Final = 16
# An entry waits at most this many halves of the flight time of the previous entry.
PATIENCE_HALVES: Final = 5
# ... and at most this long, however slow a disk is: deadlines and idle clients must not stall.
PATIENCE_MAX_US: Final = 10_000
# After this many successful waits the next wait is twice as long. Clients that use TLS need longer
# to come back: one entry in three left with only part of them, and each entry costs the same.
USEFUL_MIN: Final = 4
# The upper limit of the count of successful waits. A failed wait halves the count: one failure
# among many does not end the longer wait, two in a row do.
USEFUL_MAX: Final = 8
# If more than one in this many of the clients that an entry answers have sent something else before
# the entry is committed, clients do not wait for answers, and the wait counts as failed.
EARLY_SHARE: Final = 4
# After failed waits, at most this many entries leave at once before the next attempt: 1, 3, 7, ...
SKIPPED_MAX: Final = 127


class AdaptiveBatching:
    """Predict when the clients of a leader come back. All times are of one clock.

    Attributes:
        expected: the number of clients to wait for; 0 if the next entry may leave at once.
    """

    __slots__ = (
        "_away",
        "_batched",
        "_last",
        "_left_at_us",
        "_pause",
        "_skipped",
        "_until_us",
        "_useful",
        "expected",
    )

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: leadership is lost, or not yet won."""
        self.expected = 0
        self._until_us = 0
        self._away = False  # an entry was proposed since `committed` last looked
        self._last = 0  # clients that the last entry answers
        self._left_at_us = 0
        self._batched = False  # whether the last entry was waited for, with success
        self._skipped = 0  # entries that leave at once before the next attempt
        self._pause = 0  # the number of such entries after the last failed wait
        self._useful = 0  # recent successful waits

    def proposed(self, clients: int, now_us: int) -> None:
        """Note that an entry leaves that will answer this many clients."""
        self._away = True
        self._last = clients
        self._left_at_us = now_us
        self.expected = 0

    def committed(self, waiting: int, early: int, now_us: int) -> bool:
        """Note that no entry is in flight any more.

        Args:
            waiting: how many clients wait for the next entry.
            early: how many of them sent something unprompted while the last entry was in flight.
            now_us: the present time.

        Returns:
            Whether an entry was proposed since the last call.
        """
        if not self._away:
            return False
        self._away = False
        if self._batched:
            self._batched = False
            if early * EARLY_SHARE > self._last:
                self._was_no_use()
            else:
                self._pause = 0
                self._useful = min(USEFUL_MAX, self._useful + 1)
        if self._skipped:
            self._skipped -= 1
            return True
        clients = self._last + waiting
        expected = clients - clients // EXPECTED_BUT
        if waiting < expected:
            self.expected = expected
            flight_us = now_us - self._left_at_us
            halves = PATIENCE_HALVES if self._useful < USEFUL_MIN else 2 * PATIENCE_HALVES
            self._until_us = now_us + min(flight_us * halves // 2, PATIENCE_MAX_US)
        return True

    def left_us(self, waiting: int, now_us: int) -> int:
        """The time the next entry may still wait, in microseconds; 0 if it must leave now."""
        if not self.expected:
            return 0
        if waiting >= self.expected:
            self.expected = 0
            self._batched = True
            return 0
        if now_us < self._until_us:
            return self._until_us - now_us
        self.expected = 0
        self._was_no_use()
        return 0

    def _was_no_use(self) -> None:
        self._useful //= 2
        self._pause = min(SKIPPED_MAX, 2 * self._pause + 1)
        self._skipped = self._pause
