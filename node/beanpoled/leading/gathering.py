"""When the leader's next entry leaves: it waits a moment for clients that are being answered.

Here is only how long, and for how many; what is proposed is in `leader`. No I/O, no clock.
An entry has costs of its own, whatever is in it (ADR 0013). Most clients send their next command
as soon as they have an answer, so after a commit a little patience makes one entry of what would
be two. Whether it is so is seen from each try: clients that come when they like, and not when they
are answered, are hardly ever waited for.
"""

from typing import Final

# Of what was answered or is there already, all but one in so many are waited for: among many, a
# few will have gone to work on their jobs.
EXPECTED_BUT: Final = 16
# An entry waits at most so many times half as long as the one before was in flight.
PATIENCE_HALVES: Final = 5
# ... and at most this, however slow a disk is: deadlines and idle clients have to go on.
PATIENCE_MAX_US: Final = 10_000
# If more than one in so many of those whom an entry answers are there already when it is
# committed, who sent that did not wait for an answer: gathering was no use.
LATE_SHARE: Final = 4
# After tries that were no use, so many entries leave at once before the next try: 1, 3, 7, ...
SKIPPED_MAX: Final = 127


class Gathering:
    """What the leader knows of how its clients come back. All times are of one clock.

    Attributes:
        target: how many are waited for; 0 if the next entry may leave with what is there.
    """

    __slots__ = (
        "_away",
        "_gathered",
        "_last",
        "_left_at_us",
        "_pause",
        "_skipped",
        "_until_us",
        "target",
    )

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew: leadership is lost, or not yet won."""
        self.target = 0
        self._until_us = 0
        self._away = False  # an entry was proposed since `committed` last looked
        self._last = 0  # clients whom the last entry answers
        self._left_at_us = 0
        self._gathered = False  # whether the last entry was waited for, with success
        self._skipped = 0  # entries that leave at once before the next try
        self._pause = 0  # how many those were the last time

    def proposed(self, clients: int, now_us: int) -> None:
        """An entry leaves that will answer so many clients."""
        self._away = True
        self._last = clients
        self._left_at_us = now_us
        self.target = 0

    def committed(self, waiting: int, late: int, now_us: int) -> bool:
        """Nothing is in flight any more.

        Args:
            waiting: how many wait for the next entry.
            late: how many of them came by themselves while the last one was in flight.
            now_us: the time.

        Returns:
            Whether that is news: False if no entry was proposed since the last call.
        """
        if not self._away:
            return False
        self._away = False
        if self._gathered:
            self._gathered = False
            if late * LATE_SHARE > self._last:
                self._was_no_use()
            else:
                self._pause = 0
        if self._skipped:
            self._skipped -= 1
            return True
        expected = self._last + waiting
        target = expected - expected // EXPECTED_BUT
        if waiting < target:
            self.target = target
            flight_us = now_us - self._left_at_us
            self._until_us = now_us + min(flight_us * PATIENCE_HALVES // 2, PATIENCE_MAX_US)
        return True

    def left_us(self, waiting: int, now_us: int) -> int:
        """For how long the next entry may still wait, in microseconds; 0 if it is to leave now."""
        if not self.target:
            return 0
        if waiting >= self.target:
            self.target = 0
            self._gathered = True
            return 0
        if now_us < self._until_us:
            return self._until_us - now_us
        self.target = 0
        self._was_no_use()
        return 0

    def _was_no_use(self) -> None:
        self._pause = min(SKIPPED_MAX, 2 * self._pause + 1)
        self._skipped = self._pause
