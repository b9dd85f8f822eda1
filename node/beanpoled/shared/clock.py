"""Cluster time: the leader's clock, and its continuation after a change of leader.

Cluster time never decides anything by itself: it is written into entries, and the machine advances
by their times alone. Rules and pitfalls: docs/consistency.md, "Time".
"""

from typing import Final

from beanpole.constants import SECOND_US

# A step of the loop that took longer than this was a pause (a stopped process, a suspended
# machine): no client could be served in it, so it does not count.
TURN_MAX_US: Final = 250_000
# The time over which the lateness of the loop is averaged.
LATENESS_MEAN_US: Final = 10 * SECOND_US
# A cold start counts at most this much of the time without a running node, so that a wall clock
# that is years ahead does not fire every delay.
DOWNTIME_MAX_US: Final = 7 * 24 * 3600 * SECOND_US
# An estimate that is set back by more than this is saved at once; less is the delay of a heartbeat.
BACK_MIN_US: Final = 100_000
# Nodes whose wall clocks differ by more than this cannot tell how much time has passed.
WALL_SKEW_MAX_US: Final = 60 * SECOND_US


class LoopTime:
    """Time as the loop has experienced it: at most TURN_MAX_US a turn."""

    def __init__(self, now_us: int) -> None:
        self.last_us = now_us
        self.step_us = 0
        self.paused_us = 0  # of the last turn's time, what does not count

    def turn(self, now_us: int) -> int:
        """Begin a new turn, and return how much of the time since the last one counts."""
        elapsed_us = now_us - self.last_us
        self.last_us = now_us
        self.step_us = max(0, min(elapsed_us, TURN_MAX_US))
        self.paused_us = max(0, elapsed_us - TURN_MAX_US)
        return self.step_us


class Lateness:
    """How late the timers of the loop are.

    Attributes:
        last_us: the lateness of the last timer.
        max_us: the worst one.
        mean_us: the lateness at a moment, on average; the weight of a moment decreases by half in
            seven tenths of LATENESS_MEAN_US. A process that is stopped for 450 ms of every 500 has
            many timers that are in time.
    """

    def __init__(self) -> None:
        self.last_us = self.max_us = 0
        self.mean_us = 0.0

    def note(self, late_us: int, passed_us: int) -> None:
        """Note the lateness of a timer, and the time since the one before."""
        self.last_us = max(0, late_us)
        self.max_us = max(self.max_us, self.last_us)
        weight_us = min(passed_us, LATENESS_MEAN_US)
        self.mean_us += (self.last_us - self.mean_us) * weight_us / LATENESS_MEAN_US


class ClusterClock:
    """This node's knowledge of cluster time.

    A follower's clock continues from the last time that the leader sent; a leader is the clock.
    """

    def __init__(self) -> None:
        self._base_us = 0
        self.term = 0  # of the leader that sent it, perhaps this node
        self.went_back = False  # since the last save: the saved time is too late
        self._received_at_us = -1  # monotonic; -1: this process has received no time
        self.leading = False

    def receive(self, term: int, cluster_us: int, now_us: int) -> None:
        """Take the time that the present leader, of this term, sent in a heartbeat or an entry.

        The time counts even if it is behind our estimate: the leader's clock stands still while the
        leader cannot serve, and our clock may be faster. An estimate that only ever grew would
        carry all of that into the next EPOCH, and TTRs would end early. Only a time older than an
        earlier one of the same leader is ignored; a new leader may be behind the previous one, and
        this node may have been the previous one.
        """
        if not self.leading and (cluster_us >= self._base_us or term > self.term):
            if cluster_us < self.estimate_us(now_us) - BACK_MIN_US:
                self.went_back = True
            self._base_us = cluster_us
            self.term = term
            self._received_at_us = now_us

    def knows(self, term: int, cluster_us: int) -> bool:
        """Whether the leader of this term sent this time or a later one, or a later leader did."""
        return term < self.term or (term == self.term and cluster_us <= self._base_us)

    def estimate_us(self, now_us: int) -> int:
        """Estimate the present cluster time."""
        if self.leading or self._received_at_us < 0:
            return self._base_us
        return self._base_us + now_us - self._received_at_us

    def was_up(self) -> bool:
        """Whether this process has received a leader's time, or was one."""
        return self._received_at_us >= 0

    def lead(self, term: int, start_us: int) -> None:
        """Become the clock of this term, from `start_us` (never earlier than the known time).

        The term is kept when the node follows again: its own entries of that term are older than
        the time that it counted since, and only the leader of a later term may be behind it.
        """
        self._base_us = max(self._base_us, start_us)
        self.term = term
        self.leading = True

    def follow(self, now_us: int) -> None:
        """Stop being the clock."""
        self.leading = False
        self._received_at_us = now_us

    def advance(self, step_us: int, majority_answers: bool) -> None:
        """Advance the leader's clock by a turn; time stands still while the leader cannot serve."""
        if self.leading and majority_answers:
            self._base_us += step_us


def is_trusted(skews_us: list[int]) -> bool:
    """Whether wall clocks that differ by these are good enough to tell how much time passed."""
    return all(abs(skew) <= WALL_SKEW_MAX_US for skew in skews_us)


def furthest_behind_us(wall_us: int, skews_us: list[int]) -> int:
    """Return the wall clock that is furthest behind: this node's, or one that differs by a skew."""
    return wall_us + min([0, *skews_us])


def downtime_us(saved_wall_us: int, wall_us: int, skews_us: list[int]) -> int:
    """Estimate how much time passed while no node of the cluster was running.

    Args:
        saved_wall_us: this node's own wall clock when it last saved cluster time; the same clock
            is read now, so that its skew cancels. 0 if nothing was saved.
        wall_us: this node's wall clock now.
        skews_us: how far the other nodes' wall clocks are from this one's.

    Returns:
        Microseconds since the pair was saved; 0 if the clocks cannot be trusted.
    """
    if saved_wall_us == 0 or not is_trusted(skews_us):
        return 0
    return max(0, min(wall_us - saved_wall_us, DOWNTIME_MAX_US))
