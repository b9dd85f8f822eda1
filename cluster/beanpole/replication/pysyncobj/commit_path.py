"""Replicate, commit and apply entries in a settled term, in place of the interpreted library.

Belongs here: the commit rule, the apply loop, appends at the leader and at a follower, the counting
of acknowledgements, and the restart of the election timeout by an append. The library handles
elections, a new term, a new leader and a leader without a majority. Both operate on the library's
own fields, so either may take any step; with a repair switched off (simulation only) the library
takes all of them, because its defects are in these steps. The rules are those of figure 2 of the
Raft paper.
"""

from collections.abc import Callable
from typing import Final

from pysyncobj.node import Node

from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj import seam
from beanpole.replication.pysyncobj.journal import Entry, LogJournal
from beanpole.replication.pysyncobj.library import Library, Member
from beanpole.replication.pysyncobj.messages import OURS_NUMBER
from beanpole.replication.pysyncobj.pinned import FOLLOWING, LEADING
from beanpole.replication.pysyncobj.transport_base import TransportBase

# The slices of the log that one turn sends to one member. For a member that comes back far behind,
# the turn of a leader took 0.2 s, and 2.5 s where small entries are read back from segments: longer
# than the others wait for a heartbeat. A slice takes 0.5 ms, or 10 ms from segments.
SLICES_PER_TURN_MAX: Final = 2


class CommitPath:
    """The steady state of Raft. `seam.enter` precedes every call, as for the library.

    Attributes:
        unsent: the members for which the last turn has left entries for the next one.
    """

    def __init__(
        self,
        library: Library,
        others: list[Member],
        journal: LogJournal,
        transport: TransportBase,
        before_apply: Callable[[], None],
        apply: Callable[[bytes], None],
        config: ReplicaConfig,
        fallback_s: float,
    ) -> None:
        """Attach to the library.

        Args:
            library: the object whose fields these steps read and write.
            others: the other members.
            journal: the log.
            transport: sends to the other members.
            before_apply: called before entries are applied, even if there are none.
            apply: applies the command of the entry after the last one applied.
            config: the times of heartbeats and elections.
            fallback_s: a leader without answers of a majority for this long steps down.
        """
        self._library = library
        self._others = others
        self._journal = journal
        self._transport = transport
        self._before_apply = before_apply
        self._apply = apply
        self._heartbeat_s = config.heartbeat_s
        self._timeout_min_s = config.raft_min_s
        self._timeout_range_s = config.raft_max_s - config.raft_min_s
        self._fallback_s = fallback_s
        # The number of other members that form a majority with this one; 0 for a single node.
        self._needed = (len(others) + 1) // 2
        # By index, the members that may learn later of the commit of an entry of this leadership.
        self._later: dict[int, tuple[str, ...]] = {}
        self._to_notify: list[Member] = []  # the members to notify of the commits of this tick
        self.unsent: list[Member] = []

    # --- ticks -----------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Run one tick; return False if the library must run it."""
        library = self._library
        role = library._SyncObj__raftState
        if role != LEADING:
            self._later.clear()
        if role == LEADING and self._majority_answers():
            self._commit()
            self._apply_committed()
            # No callback of an apply changes the role, so it is not checked again.
            if seam.now_s() > library._SyncObj__newAppendEntriesTime:
                self.send_appends()
            return True
        if role == FOLLOWING and library._SyncObj__raftElectionDeadline >= seam.now_s():
            self._apply_committed()
            return True
        return False

    def _majority_answers(self) -> bool:
        """Return whether a majority answered recently (D1)."""
        heard_s = self._library._SyncObj__lastResponseTime
        since_s = seam.now_s() - self._fallback_s
        answering = 0
        for node in self._others:
            if heard_s[node] > since_s:
                answering += 1
        return answering >= self._needed

    def _commit(self) -> None:
        """Commit the entries that a majority has, if the last is of this term (section 5.4.2)."""
        library, journal = self._library, self._journal
        index = min(journal.last, self.reached()) if self._needed else journal.last
        if (
            index > library._SyncObj__raftCommitIndex
            and journal.term_of(index) == library._SyncObj__raftCurrentTerm
        ):
            self._to_notify = self._concerned(library._SyncObj__raftCommitIndex + 1, index)
            library._SyncObj__raftCommitIndex = index

    def _concerned(self, first: int, last: int) -> list[Member]:
        """Return the members that must learn at once that these entries are committed."""
        later = self._later
        if not later:
            return self._others
        patient = set(later.get(last, ()))
        for index in range(first, last):
            patient.intersection_update(later.get(index, ()))
        self._later = {index: later[index] for index in later if index > last}
        return [node for node in self._others if node.id not in patient]

    def reached(self) -> int:
        """Return the index that a majority including this leader has; needs other members."""
        matches = sorted(self._library._SyncObj__raftMatchIndex.values(), reverse=True)
        return matches[self._needed - 1]

    def _apply_committed(self) -> None:
        """Send, then apply a slice of the committed entries."""
        self._before_apply()
        library, journal = self._library, self._journal
        applied, commit = library._SyncObj__raftLastApplied, library._SyncObj__raftCommitIndex
        if commit > applied:
            # `LogJournal.end_slice` may empty this list during the iteration, which ends it.
            for entry in journal.entries(applied + 1, commit):
                if entry[0][0] == OURS_NUMBER:
                    self._apply(entry[0])
                applied += 1
                library._SyncObj__raftLastApplied = applied

    # --- the leader ------------------------------------------------------------------------------

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Name the members that need not learn at once that an entry is committed.

        A notification costs a packet, a wake-up of the peer's process and a turn. If no client of
        the peer waits for the entry, the next append can carry the commit index.
        """
        self._later[index] = members

    def send_appends(self) -> None:
        """Send every member the entries that it lacks, or only the commit index."""
        self._library._SyncObj__newAppendEntriesTime = seam.now_s() + self._heartbeat_s
        self._send(self._others)

    def notify(self) -> None:
        """Send the commit index to the members that must learn it at once, and unsent entries."""
        to = self._to_notify
        if self.unsent:
            to = self.unsent + [node for node in to if node not in self.unsent]
        if to:
            self._send(to)

    def _send(self, to: list[Member]) -> None:
        library, journal, transport = self._library, self._journal, self._transport
        connected, next_index = library._SyncObj__connectedNodes, library._SyncObj__raftNextIndex
        self._to_notify, self.unsent = [], []
        for node in to:
            slices = 0
            # A full peer is marked as disconnected in the library (B7).
            while node in connected and (not slices or next_index[node] <= journal.last):
                if slices == SLICES_PER_TURN_MAX:
                    self.unsent.append(node)
                    break
                slices += 1
                index = next_index[node]
                previous_term = journal.term_of(index - 1)
                if index <= journal.first or previous_term is None:
                    transport.withhold(node)
                    continue
                entries: list[Entry] = []
                if index <= journal.last:
                    entries = journal.entries(index, journal.last)
                    next_index[node] = entries[-1][1] + 1
                transport.append(node, entries, index - 1, previous_term)

    def acknowledged(self, node: Node, index: int) -> None:
        """Count a member's acknowledgement. Its next index never decreases (B4)."""
        library = self._library
        matches, next_index = library._SyncObj__raftMatchIndex, library._SyncObj__raftNextIndex
        if matches[node] < index:
            matches[node] = index
            next_index[node] = max(next_index[node], index + 1)
        library._SyncObj__lastResponseTime[node] = seam.now_s()

    # --- the follower ----------------------------------------------------------------------------

    def follows(self, leader: Node, term: int) -> bool:
        """Return whether an append keeps leader and term, so that `take` may handle it."""
        library = self._library
        return bool(
            library._SyncObj__raftState == FOLLOWING
            and library._SyncObj__raftCurrentTerm == term
            and library._SyncObj__raftLeader == leader
            and not library._SyncObj__transferInProgress
        )

    def postpone_election(self, now_s: float) -> None:
        """Restart the election timeout (section 5.2)."""
        timeout_s = self._timeout_min_s + self._timeout_range_s * seam.random()
        self._library._SyncObj__raftElectionDeadline = now_s + timeout_s

    def take(self, entries: list[Entry], commit: int) -> None:
        """Append entries that follow the end of the log, and adopt the leader's commit index."""
        library, journal = self._library, self._journal
        self.postpone_election(seam.now_s())
        for command, index, term in entries:
            journal.add(command, index, term)
        if commit > library._SyncObj__raftCommitIndex:
            library._SyncObj__raftCommitIndex = min(commit, journal.last)
