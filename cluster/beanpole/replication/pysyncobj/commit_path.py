"""Replicate, commit and apply entries in a settled term, in place of the interpreted library.

Here are the commit rule, the apply loop, appends at the leader and at a follower, the counting of
acknowledgements, and the election timeout that an append begins anew. Elections, a new term, a new
leader and a leader without a majority stay the library's. Both work on the library's own fields, so
each step may be either's; with a repair switched off (simulation only) the library takes all of
them, because its defects are in these steps. The rules are those of figure 2 of the Raft paper.
"""

from collections.abc import Callable
from typing import Final

from pysyncobj.node import Node

from beanpole.replication.consensus import ReplicaConfig
from beanpole.replication.pysyncobj import seam
from beanpole.replication.pysyncobj.journal import Entry, LogJournal
from beanpole.replication.pysyncobj.library import Library, Member
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.pinned import FOLLOWING, LEADING
from beanpole.replication.pysyncobj.transport_base import TransportBase

_OURS_NUMBER: Final = OURS[0]


class CommitPath:
    """The library's steady state. `seam.enter` comes before every call, as for the library."""

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
        """Stand beside the library.

        Args:
            library: whose fields these steps read and write.
            others: the other members.
            journal: the log.
            transport: the way to the other members.
            before_apply: called before entries are applied, also when there are none.
            apply: takes the command of the entry behind the last one applied.
            config: the times of heartbeats and elections.
            fallback_s: a leader without answers of a majority for so long steps down.
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
        # How many other members make a majority together with this one; 0 alone.
        self._needed = (len(others) + 1) // 2
        # By index, entries of this leadership of which some members may learn later.
        self._later: dict[int, tuple[str, ...]] = {}
        self._to_tell: list[Member] = []  # of what was committed in this tick

    # --- ticks -----------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Run one tick; False if it is one for the library."""
        library = self._library
        role = library._SyncObj__raftState
        if role != LEADING:
            self._later.clear()
        if role == LEADING and self._majority_answers():
            self._commit()
            self._apply_committed()
            # No callback of an apply changes the role: it needs no second look.
            if seam.now_s() > library._SyncObj__newAppendEntriesTime:
                self.send_appends()
            return True
        if role == FOLLOWING and library._SyncObj__raftElectionDeadline >= seam.now_s():
            self._apply_committed()
            return True
        return False

    def _majority_answers(self) -> bool:
        """Return whether a majority answered lately (D1)."""
        heard_s = self._library._SyncObj__lastResponseTime
        since_s = seam.now_s() - self._fallback_s
        answering = 0
        for node in self._others:
            if heard_s[node] > since_s:
                answering += 1
        return answering >= self._needed

    def _commit(self) -> None:
        """Commit what a majority has, if its last entry is of this term (section 5.4.2)."""
        library, journal = self._library, self._journal
        index = min(journal.last, self.reached()) if self._needed else journal.last
        if (
            index > library._SyncObj__raftCommitIndex
            and journal.term_of(index) == library._SyncObj__raftCurrentTerm
        ):
            self._to_tell = self._concerned(library._SyncObj__raftCommitIndex + 1, index)
            library._SyncObj__raftCommitIndex = index

    def _concerned(self, first: int, last: int) -> list[Member]:
        """Return the members that are to know at once that these entries are committed."""
        later = self._later
        if not later:
            return self._others
        patient = set(later.get(last, ()))
        for index in range(first, last):
            patient.intersection_update(later.get(index, ()))
        self._later = {index: later[index] for index in later if index > last}
        return [node for node in self._others if node.id not in patient]

    def reached(self) -> int:
        """Return the index that a majority with this leader has; only with other members."""
        matches = sorted(self._library._SyncObj__raftMatchIndex.values(), reverse=True)
        return matches[self._needed - 1]

    def _apply_committed(self) -> None:
        """Apply a slice of what is committed, and send before that."""
        self._before_apply()
        library, journal = self._library, self._journal
        applied, commit = library._SyncObj__raftLastApplied, library._SyncObj__raftCommitIndex
        if commit > applied:
            # `LogJournal.end_slice` may empty the list while it is gone through.
            for entry in journal.entries(applied + 1, commit):
                if entry[0][0] == _OURS_NUMBER:
                    self._apply(entry[0])
                applied += 1
                library._SyncObj__raftLastApplied = applied

    # --- the leader ------------------------------------------------------------------------------

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Say which members need not know at once that an entry is committed.

        It costs a packet, a wake-up of their process and a turn, and where no client waits for it
        the next append may bring it.
        """
        self._later[index] = members

    def send_appends(self) -> None:
        """Send every member what it lacks, or the commit index alone."""
        self._library._SyncObj__newAppendEntriesTime = seam.now_s() + self._heartbeat_s
        self._send(self._others)

    def tell(self) -> None:
        """Send the commit index to the members that are to know it at once."""
        if self._to_tell:
            self._send(self._to_tell)

    def _send(self, to: list[Member]) -> None:
        library, journal, transport = self._library, self._journal, self._transport
        connected, next_index = library._SyncObj__connectedNodes, library._SyncObj__raftNextIndex
        self._to_tell = []
        for node in to:
            is_first = True
            # A full peer is disconnected for the library (B7).
            while node in connected and (is_first or next_index[node] <= journal.last):
                is_first = False
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
        """Count a member's acknowledgement. Its next index never moves back (B4)."""
        library = self._library
        matches, next_index = library._SyncObj__raftMatchIndex, library._SyncObj__raftNextIndex
        if matches[node] < index:
            matches[node] = index
            next_index[node] = max(next_index[node], index + 1)
        library._SyncObj__lastResponseTime[node] = seam.now_s()

    # --- the follower ----------------------------------------------------------------------------

    def follows(self, leader: Node, term: int) -> bool:
        """Return whether an append changes neither leader nor term: then `take` may have it."""
        library = self._library
        return bool(
            library._SyncObj__raftState == FOLLOWING
            and library._SyncObj__raftCurrentTerm == term
            and library._SyncObj__raftLeader == leader
            and not library._SyncObj__transferInProgress
        )

    def postpone_election(self, now_s: float) -> None:
        """Begin a fresh election timeout (section 5.2)."""
        timeout_s = self._timeout_min_s + self._timeout_range_s * seam.random()
        self._library._SyncObj__raftElectionDeadline = now_s + timeout_s

    def take(self, entries: list[Entry], commit: int) -> None:
        """Add entries that follow the log's end, and take over the leader's commit index."""
        library, journal = self._library, self._journal
        self.postpone_election(seam.now_s())
        for command, index, term in entries:
            journal.add(command, index, term)
        if commit > library._SyncObj__raftCommitIndex:
            library._SyncObj__raftCommitIndex = min(commit, journal.last)
