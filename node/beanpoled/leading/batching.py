"""Adaptive batching: the leader's next entry waits a moment for clients that were just answered.

Here is only how long, and for how many; what is proposed is in `proposing`. No I/O, no clock.
An entry has costs of its own, whatever is in it (ADR 0013). Most clients send their next command
as soon as they have an answer, so after a commit a little patience makes one entry of what would
be two. Whether it is so is seen from each try: clients that come when they like, and not when they
are answered, are hardly ever waited for.
"""

from typing import Final

# Of the clients that were answered or are there already, all but one in this many are waited for:
# among many, a few will have gone to work on their jobs.
EXPECTED_BUT: Final = 16
# An entry waits at most this many times half as long as the one before was in flight.
PATIENCE_HALVES: Final = 5
# ... and at most this, however slow a disk is: deadlines and idle clients have to go on.
PATIENCE_MAX_US: Final = 10_000
# After so many tries that were of use it waits twice as long. Clients that use TLS need longer to
# come back: an entry in three left with a part of them, and each costs the same.
USEFUL_MIN: Final = 4
# The count of those tries ends here, and one that was no use takes half of it away: one failure
# among many does not end the longer wait, two in a row do.
USEFUL_MAX: Final = 8
# If more than one in this many of the clients that an entry answers have sent something else before
# it is committed, they do not wait for answers: the wait was no use.
EARLY_SHARE: Final = 4
# After tries that were no use, at most this many entries leave at once before the next try: 1, 3,
# 7, ...
SKIPPED_MAX: Final = 127


class AdaptiveBatching:
    """How the clients of a leader come back. All times are of one clock.

    Attributes:
        expected: how many clients are waited for; 0 if the next entry may leave at once.
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
        self._skipped = 0  # entries that leave at once before the next try
        self._pause = 0  # how many those were the last time
        self._useful = 0  # tries that were of use of late

    def proposed(self, clients: int, now_us: int) -> None:
        """An entry leaves that will answer this many clients."""
        self._away = True
        self._last = clients
        self._left_at_us = now_us
        self.expected = 0

    def committed(self, waiting: int, early: int, now_us: int) -> bool:
        """Nothing is in flight any more.

        Args:
            waiting: how many wait for the next entry.
            early: how many of them came by themselves while the last one was in flight.
            now_us: the time.

        Returns:
            Whether that is news: False if no entry was proposed since the last call.
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
        """For how long the next entry may still wait, in microseconds; 0 if it is to leave now."""
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
