"""Detect that this node's own disk falls behind, and act on it.

A disk that fails ends the node; a disk that hangs, or is far slower than those of the other
members, reports no error. A leader with such a disk hands over to a member that has on its disk
what this disk lacks, and the node stands for no election until its disk keeps up again. Time is the
loop's, so that a pause of this process is never mistaken for a pause of the disk.
"""

from typing import Final

from beanpole.replication.consensus import UNWRITTEN_BYTES_MAX
from beanpoled.host.seam import WARNING
from beanpoled.leading.saved_clock import SavedClock
from beanpoled.leading.term import Term
from beanpoled.peers.peers import Peers
from beanpoled.shared.context import Context

# A leader hands over when its own disk lacks more of the log than this. The limit is well below the
# point where the leader may propose nothing any more, and above the lag of a disk that keeps up.
BEHIND_BYTES_MAX: Final = UNWRITTEN_BYTES_MAX // 2
# A hand-over blocks proposals for at most raft_max; after one that failed, the next is tried after
# this multiple of raft_max.
TRANSFER_PAUSE_RAFT_MAX: Final = 10
# A disk that hangs twice within this multiple of raft_max is slow: it goes on when it has kept up
# for that long. Otherwise a disk with syncs of 1.5 s hangs and goes on in each of them.
STEADY_RAFT_MAX: Final = 10


class DiskHealth:
    """The state of the disk.

    Attributes:
        lag_us: a lower bound of the time for which the oldest pending write, or measurement of the
            free space, has waited.
        writes_hang: whether a write has waited for longer than `raft_max`, or too many bytes are
            pending: the disk is good for no leader. It changes at once in both directions: if all
            disks of a cluster are slow, one that has caught up for a moment must be able to lead.
        is_behind: what the operator is told about the writes: `writes_hang`, and for a disk that
            hangs again and again also the time between.
        is_silent: whether a measurement of the free space has waited for that long. The node works
            on, and its log uses up the space that was found before.
    """

    def __init__(self, context: Context, peers: Peers, term: Term, saved_clock: SavedClock) -> None:
        self._context = context
        self._peers = peers
        self._term = term
        self._saved_clock = saved_clock
        self.lag_us = 0
        self.writes_hang = False
        self.is_behind = False
        self.is_silent = False
        self._hung_us: int | None = None  # loop time at which writes last hung
        self._is_slow = False  # the disk hung again soon after it had gone on
        # Everything up to this position of the log, and one more save of the clock, was handed to
        # the disk at this time or earlier.
        self._log_end = 0
        self._log_us = 0
        self._saves = 0
        self._clock_us = 0
        # The measurement of the free space that was in progress, or began, at this time or earlier.
        self._look = -1
        self._look_us = 0
        self._writes_lag_us = 0
        self._next_transfer_us = 0

    def run_periodic(self) -> None:
        """Update the state of the disk; called every 100 ms of the loop's time."""
        context = self._context
        now_us = context.loop_us
        log = context.replica.log_on_disk()
        if log.written >= self._log_end:
            self._log_end, self._log_us = log.end, now_us
        saved = self._saved_clock
        if not saved.saving or saved.saves != self._saves:
            # In an idle cluster these saves are the only writes to the disk.
            self._saves, self._clock_us = saved.saves, now_us
        room = context.replica.room()
        look = room.looks if room.looking else -1
        if look < 0 or look != self._look:
            self._look, self._look_us = look, now_us
        self._writes_lag_us = now_us - min(self._log_us, self._clock_us)
        self.lag_us = max(self._writes_lag_us, now_us - self._look_us)
        self._judge(log.end - log.written)
        if self.writes_hang and self._term.number:
            self._hand_over(log.last)

    def _judge(self, behind_bytes: int) -> None:
        """Update whether the disk hangs, and tell it."""
        context = self._context
        lag_max_us = context.config.raft_max_ms * 1000
        writes_hang = self._writes_lag_us > lag_max_us or behind_bytes > BEHIND_BYTES_MAX
        if writes_hang != self.writes_hang:
            self.writes_hang = writes_hang
            context.replica.note_disk(writes_hang)
        self._tell_writes(behind_bytes)
        is_silent = context.loop_us - self._look_us > lag_max_us
        if is_silent != self.is_silent:
            self.is_silent = is_silent
            if is_silent:
                context.host.log("the disk does not tell its free space", WARNING)
            else:
                context.host.log("the disk tells its free space again")

    def _tell_writes(self, behind_bytes: int) -> None:
        """Update and log what the operator is told about the writes."""
        context = self._context
        now_us, hung_us = context.loop_us, self._hung_us
        steady_us = STEADY_RAFT_MAX * context.config.raft_max_ms * 1000
        hung_lately = hung_us is not None and now_us - hung_us <= steady_us
        if self.writes_hang:
            self._hung_us = now_us
            if not self.is_behind:
                self.is_behind, self._is_slow = True, hung_lately
                lag_s = self._writes_lag_us / 1e6
                words = f"the disk is behind: {behind_bytes} bytes, {lag_s:.1f} s"
                if hung_lately:
                    words += f"; again, so it must keep up for {steady_us / 1e6:g} s to go on"
                context.host.log(words, WARNING)
        elif self.is_behind and not (self._is_slow and hung_lately):
            self.is_behind = False
            context.host.log("the disk goes on")

    def _hand_over(self, last: int) -> None:
        """Transfer leadership to a member that has on disk what this disk lacks, if one exists."""
        context = self._context
        if context.loop_us < self._next_transfer_us or context.replica.commit_index <= last:
            return
        successor = self._peers.successor()
        if (
            successor is None
            or context.replica.match_index(successor) < context.replica.commit_index
        ):
            return
        if context.replica.transfer(successor):
            pause_ms = TRANSFER_PAUSE_RAFT_MAX * context.config.raft_max_ms
            self._next_transfer_us = context.loop_us + pause_ms * 1000
            words = f"this disk is too slow to lead: handing over to {successor}"
            context.host.log(words, WARNING)

    @property
    def hangs(self) -> bool:
        """Whether the disk does not answer now: clients should go to another node."""
        return self.writes_hang or self.is_silent

    def is_left_behind(self, after_us: int) -> bool:
        """Whether a majority has committed entries that this disk lacked for `after_us`."""
        if self._writes_lag_us <= after_us:
            return False
        replica = self._context.replica
        return replica.commit_index > replica.log_on_disk().last
