"""Continue cluster time when this node becomes the clock, even after the whole cluster was down.

For this purpose each node saves the cluster time together with its own wall clock. The rules are in
docs/consistency.md, "Time"; the running clock is in `shared.clock`.
"""

from struct import Struct
from typing import Final

from beanpole import commands as c
from beanpole.constants import SECOND_US
from beanpole.errors import Damaged, StorageError
from beanpole.storage.format import Identity
from beanpole.storage.small_files import read_checked, write_atomic
from beanpoled.host.seam import WARNING
from beanpoled.peers.peers import Peers
from beanpoled.shared.clock import (
    WALL_SKEW_MAX_US,
    downtime_us,
    furthest_behind_us,
    is_trusted,
)
from beanpoled.shared.context import Context

# The period of saves of the (cluster time, own wall clock) pair. The estimate of the downtime after
# a crash does not depend on the age of the pair, because both grow together.
CLOCK_PERIOD_US: Final = SECOND_US

_PAIR: Final = Struct("<qq")
CLOCK_FILE: Final = "clock"
CLOCK_REMEDY: Final = (
    "remove it: without it, time in which no node ran does not count for delays and TTRs; see "
    "whether the disk has more damage"
)


class SavedClock:
    """Cluster time as this disk knows it.

    Attributes:
        saving: whether a save is in progress.
        saves: the number of finished saves, successful or not.
    """

    def __init__(self, context: Context, peers: Peers) -> None:
        self._context = context
        self._peers = peers
        self.saving = False
        self.saves = 0
        self._failure = ""  # why the last save failed
        self._next_us = CLOCK_PERIOD_US
        self._pair: tuple[int, int] = (0, 0)

    def load(self) -> None:
        """Read the cluster time that an earlier process saved.

        Raises:
            StorageError: the file is damaged, cannot be read or belongs to another node.
        """
        try:
            pair = read_checked(self._context.host.files, self._path, self._identity)
        except Damaged as error:
            raise Damaged(f"{error}; {CLOCK_REMEDY}") from error
        except OSError as refusal:
            cause = refusal.strerror or refusal
            raise StorageError(f"{self._path} cannot be read: {cause}; {CLOCK_REMEDY}") from refusal
        if pair is not None:
            self._pair = _PAIR.unpack(pair)

    @property
    def _path(self) -> str:
        return f"{self._context.config.data_dir}/{CLOCK_FILE}"

    @property
    def _identity(self) -> Identity:
        return Identity(self._context.config.cluster, self._context.name)

    def run_periodic(self) -> None:
        """Save the pair once a second while it is known; called every 100 ms of loop time.

        A pair that is later than the leader's clock is replaced at once: a node that starts from it
        would count the time during which that clock stood still.
        """
        self._learn()
        clock, loop_us = self._context.clock, self._context.loop_us
        if clock.went_back and not self.saving and not clock.leading:
            clock.went_back = False
            self._next_us = loop_us
        if loop_us >= self._next_us and self._peers.has_contact():
            self._next_us = loop_us + CLOCK_PERIOD_US
            self._save()

    def _learn(self) -> None:
        """Learn from the log the time of a leader that fell before its heartbeat arrived.

        That leader's clock may be behind this node's estimate, because it stood still while no
        majority answered or while its process paused; jobs that were delayed under it would end
        early under this node. An applied entry has already set the clock; an entry that is not
        applied yet may be the only message of a leader that came back from a pause and fell.
        """
        context = self._context
        clock = context.clock
        if clock.leading or not clock.was_up():
            return
        newest = context.replica.newest_entry()
        if newest is None or newest[0] < clock.term:
            return
        time_us = c.entry_times_us(newest[1])[0]
        if time_us and not clock.knows(newest[0], time_us):
            clock.receive(newest[0], time_us, context.now_us)

    def _save(self) -> None:
        context = self._context
        clock, host = context.clock, context.host
        if self.saving or not (clock.leading or clock.was_up()):
            return  # an older saved pair is better than an unknown time
        self.saving = True
        pair = _PAIR.pack(clock.estimate_us(context.now_us), host.wall_us())
        path, identity = self._path, self._identity

        def work() -> None:
            write_atomic(host.files, path, identity, pair)

        def done(error: OSError | None) -> None:
            self.saving = False
            self.saves += 1
            failure = "" if error is None else error.strerror or str(error)
            if failure and failure != self._failure:
                # Once: on a full disk each second's save fails, for as long as it is full.
                host.log(f"cannot write {path}: {failure}", WARNING)
            self._failure = failure

        host.files.submit(work, done)

    def begin_epoch(self, term: int) -> int:
        """Become the cluster's clock in a term, and return the time of its EPOCH."""
        self._learn()
        context = self._context
        clock = context.clock
        if clock.was_up():
            start_us = clock.estimate_us(context.now_us)
        else:
            # This node was not up, but other members may have been: they know when time stood
            # still.
            told_us = self._peers.cluster_us()
            start_us = self._cold_start_us() if told_us is None else self._bounded_us(told_us)
        # Later than every reservation that is known or in the log, so that the floor protects all
        # of them.
        latest_us = max(context.machine.queue.now_us, self._newest_times_us()[0])
        clock.lead(term, max(start_us, latest_us + 1))
        return clock.estimate_us(context.now_us)

    def _bounded_us(self, told_us: int) -> int:
        """Bound the time that other members tell by the newest entry of this log and its own pair.

        The last leader's clock may have been behind theirs, and they need not know of that leader:
        it may have fallen after its first entry (the simulator's seed 13424), or while they were
        cut off. The entry has the wall clock of another node, perhaps of the one that is furthest
        behind (seed 95026), or of one that this process has not heard; the pair has that of this
        node (seed 94173). Clocks that differ too much bound nothing.
        """
        skews_us = self._peers.skews_us()
        if not is_trusted(skews_us):
            return told_us
        wall_us = self._context.host.wall_us()
        at_most_us = [told_us]
        entry_us, entry_wall_us = self._newest_times_us()
        if entry_wall_us:
            behind_us = furthest_behind_us(wall_us, skews_us)
            at_most_us.append(_moved_on_us(entry_us, entry_wall_us, behind_us))
        saved_us, saved_wall_us = self._pair
        if saved_wall_us:
            at_most_us.append(_moved_on_us(saved_us, saved_wall_us, wall_us))
        return min(at_most_us)

    def _cold_start_us(self) -> int:
        """Cluster time as this node estimates it after the whole cluster was down.

        The newest entry of its log may be later than the pair on its disk, and the leader's clock
        may have stood still in between. Both give an elapsed time, and the smaller one is used: a
        late end does no harm, and TTRs must not end early. The entry has the wall clock of another
        node, perhaps of the one whose clock is furthest behind (seed 92839 of the simulator).
        """
        host = self._context.host
        wall_us, skews_us = host.wall_us(), self._peers.skews_us()
        cluster_us, saved_wall_us = self._pair
        passed_us = downtime_us(saved_wall_us, wall_us, skews_us)
        entry_us, entry_wall_us = self._newest_times_us()
        if entry_us > cluster_us:
            passed_us = min(
                max(0, cluster_us + passed_us - entry_us),
                downtime_us(entry_wall_us, furthest_behind_us(wall_us, skews_us), skews_us),
            )
            cluster_us = entry_us
        elif entry_wall_us:
            # This node's wall clock may have been days behind when the pair was saved: the estimate
            # is at most that from the entry, plus a minute for clocks that differed.
            behind_us = furthest_behind_us(wall_us, skews_us)
            at_most_us = _moved_on_us(entry_us, entry_wall_us, behind_us) + WALL_SKEW_MAX_US
            passed_us = min(passed_us, max(0, at_most_us - cluster_us))
        if passed_us:
            host.log(f"counting {passed_us // SECOND_US} s in which no node was running")
        elif cluster_us and not is_trusted(skews_us):
            line = "not counting the time in which no node was running: the clocks differ"
            host.log(line, WARNING)
        return cluster_us + passed_us

    def _newest_times_us(self) -> tuple[int, int]:
        """The cluster time of the newest entry in the log and its leader's wall clock, or zeros."""
        newest = self._context.replica.newest_entry()
        return (0, 0) if newest is None else c.entry_times_us(newest[1])


def _moved_on_us(cluster_us: int, then_wall_us: int, wall_us: int) -> int:
    """Cluster time that was `cluster_us` at one wall clock, at a later one."""
    return cluster_us + max(0, wall_us - then_wall_us)
