"""A wrapper of the library's `SyncObj`: raw bytes instead of pickle, no threads or timers.

Only this file, `commit_path` and `library` use private names of the library (listed in
`pinned.py`); all other code goes through `Core`. The library handles elections, new terms and new
leaders. The known defects of the rest are listed in docs/replication.md.
"""

import logging
from collections.abc import Callable
from typing import Final

from pysyncobj import SyncObjConf
from pysyncobj.node import Node

from beanpole.replication.consensus import (
    CANDIDATE,
    ENTRY_MAX_BYTES,
    FOLLOWER,
    LEADER,
    MIB,
    ReplicaConfig,
    Role,
)
from beanpole.replication.pysyncobj import pinned, seam
from beanpole.replication.pysyncobj.commit_path import CommitPath
from beanpole.replication.pysyncobj.journal import Entry, LogJournal
from beanpole.replication.pysyncobj.library import Library, Member
from beanpole.replication.pysyncobj.messages import OURS
from beanpole.replication.pysyncobj.pinned import LEADING
from beanpole.replication.pysyncobj.repairs import ALL_REPAIRS, Repairs
from beanpole.replication.pysyncobj.transport_base import TransportBase

# Indexed by the library's role numbers.
_ROLES: Final[tuple[Role, ...]] = (FOLLOWER, CANDIDATE, LEADER)

# B6: the library would cut larger entries into pieces, which it pickles and reassembles wrongly.
# The limit is above ENTRY_MAX_BYTES, so that this never happens.
APPEND_BYTES_MAX: Final = 8 * MIB
assert APPEND_BYTES_MAX > ENTRY_MAX_BYTES + MIB, "an entry travels in one piece"
# D1: check-quorum. With the library's default, a leader that is cut off continues to lead for
# 30 s. Two of the longest election timeouts, so that a short pause deposes no leader.
FALLBACK_RAFT_MAX: Final = 2
_STOCK_FALLBACK_S: Final = 30.0
# Disables the library's own compaction and timers.
_NEVER: Final = 10**12

# The library's role number, leader, term, commit index, applied index.
Standing = tuple[int, Node | None, int, int, int]


class Core:
    """The library's object behind public names."""

    def __init__(
        self,
        config: ReplicaConfig,
        repairs: Repairs,
        members: dict[str, Member],
        transport: TransportBase,
        journal: LogJournal,
        before_apply: Callable[[], None],
        apply: Callable[[int, int, bytes], None],
    ) -> None:
        """Construct the library's object; `seam.enter` must have been called."""
        pinned.check()
        seam.install()
        # Silence the library's logger: a node logs its own line for each event.
        logging.getLogger("pysyncobj").setLevel(logging.CRITICAL + 1)
        self.journal = journal
        self.me = members[config.node_id]
        self.others = [node for name, node in members.items() if name != config.node_id]
        self._apply = apply
        self._library = Library(
            self.me,
            self.others,
            _configuration(config, repairs),
            transport,
            before_apply,
            self._apply_command,
        )
        self._library._SyncObj__needLoadDumpFile = False
        self._path = CommitPath(
            self._library,
            self.others,
            journal,
            transport,
            before_apply,
            self._apply_command,
            config,
            config.raft_max_s * FALLBACK_RAFT_MAX,
        )
        self._has_path = repairs == ALL_REPAIRS

    # --- reading ---------------------------------------------------------------------------------

    @property
    def term(self) -> int:
        """The current term."""
        return self._library._SyncObj__raftCurrentTerm

    def standing(self) -> Standing:
        """Return all state that `backend` watches in one call: it checks after every step."""
        library = self._library
        return (
            library._SyncObj__raftState,
            library._SyncObj__raftLeader,
            library._SyncObj__raftCurrentTerm,
            library._SyncObj__raftCommitIndex,
            library._SyncObj__raftLastApplied,
        )

    @property
    def role(self) -> Role:
        """The role, in terms of `consensus`."""
        return _ROLES[self._library._SyncObj__raftState]

    @property
    def leads(self) -> bool:
        """Whether this member is the leader of its term."""
        return self._library._SyncObj__raftState == LEADING

    @property
    def leader(self) -> str | None:
        """The leader of the current term, as far as known."""
        leader = self._library._SyncObj__raftLeader
        return None if leader is None else leader.id

    @property
    def applied(self) -> int:
        """The last applied index."""
        return self._library._SyncObj__raftLastApplied

    @property
    def first_of_term(self) -> int:
        """The index of the leader's own first entry, its proof of leadership when committed."""
        return self._library._SyncObj__noopIDx or 0

    @property
    def commit(self) -> int:
        """The last index known to be committed."""
        return self._library._SyncObj__raftCommitIndex

    @commit.setter
    def commit(self, index: int) -> None:
        self._library._SyncObj__raftCommitIndex = index

    def wants_tick(self, now_s: float) -> bool:
        """Return whether a tick has work: to lead, to apply or to campaign."""
        library = self._library
        return (
            library._SyncObj__raftState == LEADING
            or library._SyncObj__raftCommitIndex > library._SyncObj__raftLastApplied
            or library._SyncObj__raftElectionDeadline < now_s
        )

    # --- state that the repairs write ------------------------------------------------------------

    @property
    def next_index(self) -> dict[Node, int]:
        """The next index to send, by member (leader only)."""
        return self._library._SyncObj__raftNextIndex

    @property
    def match_index(self) -> dict[Node, int]:
        """The index that counts as replicated, by member (leader only)."""
        return self._library._SyncObj__raftMatchIndex

    @property
    def transferring(self) -> bool:
        """Whether the leader has asked this member to campaign now."""
        return self._library._SyncObj__transferInProgress

    @property
    def deadline_s(self) -> float:
        """The time at which a follower begins to campaign."""
        return self._library._SyncObj__raftElectionDeadline

    def campaign(self) -> None:
        """Let the next tick begin an election."""
        self._library._SyncObj__raftElectionDeadline = 0.0

    def postpone_election(self, now_s: float) -> None:
        """Restart the election timeout."""
        self._path.postpone_election(now_s)

    def forget_transfer(self) -> None:
        """Do not campaign for the leader any more."""
        self._library._SyncObj__transferInProgress = False

    def send_now(self) -> None:
        """Let the next tick send appends instead of waiting for the period."""
        self._library._SyncObj__newAppendEntriesTime = 0.0

    # --- doing -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """Run elections, the commit rule, the apply loop and the sending of appends once."""
        if not (self._has_path and self._path.tick()):
            self._library.doTick(0.0)

    def send_appends(self) -> None:
        """Send appends if they are due, as at the end of a tick, else notify members of commits."""
        library = self._library
        if not self.leads:
            return
        if library._SyncObj__newAppendEntriesTime >= seam.now_s():
            self._path.notify()
        elif self._has_path:
            self._path.send_appends()
        else:
            library._SyncObj__sendAppendEntries()

    @property
    def has_unsent(self) -> bool:
        """Whether a tick left entries that the next one sends (leader only)."""
        return bool(self._path.unsent)

    def tell_later(self, index: int, members: tuple[str, ...]) -> None:
        """Name the members that need not learn at once that an entry is committed."""
        if self._has_path:
            self._path.tell_later(index, members)

    def reached(self) -> int:
        """Return the index that a majority including this leader has; needs other members."""
        return self._path.reached()

    def commit_soon(self) -> None:
        """Let the next tick notify the members that must learn of its commit at once."""
        if not self._has_path:
            self.send_now()

    def count(self, node: Node, index: int) -> bool:
        """Count an acknowledgement at the leader; return False if the library must count it."""
        if self._has_path:
            self._path.acknowledged(node, index)
            return True
        return False

    def take(self, leader: Node, term: int, entries: list[Entry], commit: int) -> bool:
        """Append a leader's entries to the log's end; return False if the library must do it."""
        if self._has_path and self._path.follows(leader, term):
            self._path.take(entries, commit)
            return True
        return False

    def append(self, entry: bytes) -> int:
        """Append an entry to the leader's log, as the library does with the head of its queue."""
        index = self.journal.last + 1
        self.journal.add(OURS + entry, index, self.term)
        return index

    def load_snapshot(self) -> None:
        """Set index and log to the snapshot that the serializer represents (`snapshots.Dump`)."""
        self._library._SyncObj__loadDumpFile(clearJournal=True)
        assert self.applied == self.journal.last, "the library did not take the snapshot over"
        # The library leaves its commit index below the loaded index (B2).
        self.commit = max(self.commit, self.applied)

    def assume_applied(self, index: int) -> None:
        """Note at startup that the machine was loaded up to this index of the aligned log."""
        self._library._SyncObj__loadDumpFile(clearJournal=False)
        assert self.applied == index, "the library did not take the snapshot over"
        self.commit = index

    def transfer_to(self, peer: Node) -> bool:
        """Ask a member with the whole log to campaign; return False if the library refuses."""
        outcomes: list[int] = []
        self._library.transferLeadership(peer, lambda _, reason: outcomes.append(reason))
        return outcomes == [0]

    def _apply_command(self, command: bytes) -> None:
        index = self.applied + 1
        term = self.journal.term_of(index)
        assert term is not None, f"entry {index} is applied but not in the log"
        self._apply(index, term, command[1:])


def _configuration(config: ReplicaConfig, repairs: Repairs) -> SyncObjConf:
    fallback_s = config.raft_max_s * FALLBACK_RAFT_MAX
    return SyncObjConf(
        autoTick=False,
        # G1, G2: the library's membership changes may overlap, and take effect before they are
        # known.
        dynamicMembershipChange=False,
        commandsWaitLeader=False,
        raftMinTimeout=config.raft_min_s,
        raftMaxTimeout=config.raft_max_s,
        connectionTimeout=config.raft_max_s,
        appendEntriesPeriod=config.heartbeat_s,
        leaderFallbackTimeout=fallback_s if repairs.check_quorum else _STOCK_FALLBACK_S,
        # One append per tick and member with all new entries, instead of one per entry.
        appendEntriesUseBatch=True,
        appendEntriesBatchSizeBytes=APPEND_BYTES_MAX,
        logCompactionMinEntries=_NEVER,
        logCompactionMinTime=_NEVER,
        # If both callables are set, the library never collects its own attributes for a dump (F1).
        serializer=lambda *_: None,
        deserializer=lambda *_: None,
        fullDumpFile="none",
        useFork=False,
    )
