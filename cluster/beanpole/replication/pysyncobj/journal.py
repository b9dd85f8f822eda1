"""The log of one replica: a window over the write-ahead log, with the interface of the library.

Replaces the library's `FileJournal` (A1 to A5: no sync, no checksums, a limit of 4 GiB, rewrites in
place, a commit index ahead of the log). The newest entries are held in memory, older ones are read
back. This module makes no decisions about elections or replication.

Positions: an *index* is Raft's; a *place* counts from the first entry that is still in the window;
an *at* is the byte position in the write-ahead log.
"""

from array import array
from bisect import bisect_left
from struct import Struct
from typing import Final, overload

from beanpole.errors import Damaged
from beanpole.replication.consensus import MIB, UNWRITTEN_BYTES_MAX, LogOnDisk, ReplicaConfig
from beanpole.replication.pysyncobj.messages import OURS_NUMBER
from beanpole.replication.pysyncobj.repairs import Repairs
from beanpole.storage.files import Files
from beanpole.storage.wal import Wal

# The kinds of records. They are stored on disk: never renumber them.
ADD: Final = 1
TRUNCATE: Final = 2  # index: the first of the deleted entries
TERM: Final = 3  # term; payload: the member that this member voted for, or empty
RESET: Final = 4  # index, term: the log restarts at a snapshot; payload: the term before it
_PREVIOUS_TERM: Final = Struct("<Q")

# The command of an entry of which only index and term are known, because a snapshot covers it. The
# library requires two entries in the log after a load; placeholders are never applied or sent.
PLACEHOLDER: Final = b""

# The limits of one slice. They bound an append message, one step of applying (F11) and the copying
# for both. A slice always holds at least one entry, of any size.
SLICE_BYTES_MAX: Final = MIB
SLICE_ENTRIES_MAX: Final = 256
# The number of entries that `newest` examines: after the newest proposed entry there may be first
# entries of terms in which nothing was proposed.
NEWEST_MAX: Final = 8

# With durability "memory" nothing waits for the disk, and a write for each entry took a fourth of
# the processor time of three nodes. So a write begins this long after the one before, or when so
# many bytes wait. A process that is killed loses as much of its log. beanstalkd syncs every 50 ms.
WRITE_BEHIND_S: Final = 0.01
WRITE_BEHIND_BYTES: Final = MIB

Entry = tuple[bytes, int, int]


class LogJournal:
    """One replica's log, term and vote.

    The library needs the methods of its journal class, not the class itself. Inheriting from it
    would lose the gain of compilation.
    """

    def __init__(self, config: ReplicaConfig, files: Files, repairs: Repairs) -> None:
        """Open the log and read it all.

        Raises:
            StorageError: the files are damaged or belong to another cluster or node.
            UnknownVersion: they have another version.
        """
        self._latest: list[Entry] = []  # the slice that was returned last
        self.slice_bytes_max = SLICE_BYTES_MAX if repairs.apply_in_slices else 2**62
        self.slice_entries_max = SLICE_ENTRIES_MAX if repairs.apply_in_slices else 2**62
        self._sync_votes = repairs.sync_votes
        self._in_memory_only = config.durability == "memory"
        self._memory_bytes_max = config.log_memory_bytes
        self._directory = f"{config.directory}/log"
        self.first = 0  # index of place 0
        self._commands: list[bytes | None] = []
        self._terms = array("Q")
        self._ats = array("Q")
        self._memory_bytes = 0
        self._spilled = 0  # places below this have no command in memory
        self._written_at = 2**64  # records before this position can be read back from a segment
        self._durable = 0
        self._head: Entry = (PLACEHOLDER, 0, 0)
        self._tail: Entry = (PLACEHOLDER, 0, 0)
        self._reset: list[Entry] | None = None
        self._term = 0
        self._voted_for: str | None = None
        self.disk_hangs = False  # set by the node when the disk completes no work
        self.term_at = 0  # term and vote are durable when the log is durable up to this position
        self._dropped_at = 0
        # (drop records before this position, once the log is durable up to this position)
        self._drop: tuple[int, int] | None = None
        self.wal = Wal.open(
            files,
            self._directory,
            config.identity,
            config.segment_bytes,
            replay=self._replay,
            newest=config.log_base,
            note=config.note_log,
        )
        self._durable = self.last
        self._written_at = self.wal.durable
        self.wal.writes_at_once = not self._in_memory_only
        self._write_due_s = 0.0

    # --- called by the library -------------------------------------------------------------------

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry. A later flush writes it."""
        if self._reset is not None:
            self._add_after_reset(command, idx, term)
            return
        assert command, "a placeholder can only follow a reset"
        at = self.wal.append(ADD, idx, term, command)
        self._append(command, idx, term, at)

    def clear(self) -> None:
        """Begin a reset: the next two entries stand for a snapshot."""
        self._forget_all()
        self._reset = []

    def deleteEntriesFrom(self, entryFrom: int) -> None:
        """Delete the entries from this place on."""
        index = self.first + entryFrom
        self.wal.append(TRUNCATE, index, 0, b"")
        self._truncate(index)

    def deleteEntriesTo(self, entryTo: int) -> None:
        """Refuse: the log is shortened by `trim`, never by the library (A3, F6)."""
        raise AssertionError("the library tried to shorten the log")

    @overload
    def __getitem__(self, item: int) -> Entry: ...
    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...
    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Return an entry, or a slice of at most SLICE_BYTES_MAX and SLICE_ENTRIES_MAX."""
        if item == -1:
            return self._tail
        if item == 0:
            return self._head
        if isinstance(item, slice):
            return self._slice(item.start, item.stop)
        return (self._command(item), self.first + item, self._terms[item])

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._terms)

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:
        """Ignore the commit index: after a crash a stored one may be ahead of the log (A5, F10)."""

    def getRaftCommitIndex(self) -> int:
        """Return the lowest commit index; the leader announces the actual one (F10)."""
        return 1

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:
        """Store term and vote; they are durable before any message reveals them (C2).

        This does not wait for a disk that hangs, or that is busy and may hang: waiting would block
        the node and all its clients. The messages are held instead (`Shared.post`).
        """
        assert term >= self._term, f"the term falls from {self._term} to {term}"
        if (term, votedForNodeId) == (self._term, self._voted_for):
            return
        self._term, self._voted_for = term, votedForNodeId
        self._write_term()
        if self._sync_votes:
            # Also with durability "memory": if a crash of the process loses a vote, two leaders may
            # be elected in one term, and elections are too rare for a sync to matter.
            if self.disk_hangs or self.wal.is_writing:
                self.term_at = self.wal.end
            else:
                self.wal.sync()

    def getCurrentTerm(self) -> int:
        """Return the current term."""
        return self._term

    def getVotedForNodeId(self) -> str | None:
        """Return the member that this member voted for in the current term."""
        return self._voted_for

    def onOneSecondTimer(self) -> None:
        """Do nothing: only the library's own files need this."""

    def _destroy(self) -> None:
        """Do nothing: the replica closes the log after its last flush."""

    # --- called by the replica -------------------------------------------------------------------

    @property
    def last(self) -> int:
        """Return the last index."""
        return self._tail[1]

    @property
    def last_term(self) -> int:
        """Return the term of the last entry."""
        return self._tail[2]

    @property
    def durable(self) -> int:
        """Return the last index up to which the log is durable on this disk (or need not be)."""
        last = self._tail[1]
        index = self._durable
        if index == last:
            return index
        if self._in_memory_only:
            self._durable = last
            return last
        durable_at = self.wal.durable
        ats, first = self._ats, self.first
        while index < last and ats[index + 1 - first] < durable_at:
            index += 1
        self._durable = index
        return index

    @property
    def is_choked(self) -> bool:
        """Return whether the disk lags too far behind for the log to grow."""
        return self.wal.end - self.wal.durable > UNWRITTEN_BYTES_MAX

    def on_disk(self) -> LogOnDisk:
        """Return the progress of the disk with the log."""
        written = self.wal.durable
        count = bisect_left(self._ats, written)
        return LogOnDisk(self.wal.end, written, self.first - 1 + count)

    def wants_write(self, now_s: float) -> bool:
        """Return whether there are new records that should be handed to the disk now."""
        wal = self.wal
        size = wal.buffered_bytes
        if not (size and self._in_memory_only):
            return size > 0
        return (
            now_s >= self._write_due_s
            or size >= WRITE_BEHIND_BYTES
            or self.term_at > wal.durable  # a vote waits for it
        )

    def flush(self, now_s: float) -> None:
        """Hand new records to the disk, if that is due."""
        if self.wants_write(now_s):
            self._write_due_s = now_s + WRITE_BEHIND_S
            self.wal.flush()

    def term_of(self, index: int) -> int | None:
        """Return the term of an entry, None if it is not in the window."""
        place = index - self.first
        if 0 <= place < len(self._terms):
            return self._terms[place]
        return None

    def newest(self) -> tuple[int, bytes] | None:
        """Return the term and the bytes of the newest entry that is not the library's own."""
        last = len(self._commands) - 1
        for place in range(last, max(-1, last - NEWEST_MAX), -1):
            command = self._commands[place]
            if command and command[0] == OURS_NUMBER:
                return self._terms[place], command[1:]
        return None

    def bytes_after(self, index: int) -> int:
        """Return the bytes of the log after this entry; all bytes if it is below the window."""
        place = index + 1 - self.first
        if place >= len(self._ats):
            return 0
        return self.wal.end - self._ats[max(place, 0)]

    def index_with_bytes_after(self, size: int) -> int:
        """Return the lowest index that is followed by at most `size` bytes of the log."""
        low, high = self.first, self.last
        while low < high:
            middle = (low + high) // 2
            if self.bytes_after(middle) <= size:
                high = middle
            else:
                low = middle + 1
        return low

    def joins(self, index: int, term: int) -> bool:
        """Return whether the log continues a snapshot that ends with this entry.

        A log without the entry belongs to a superseded history, or ends before the entry.

        Raises:
            Damaged: the log begins after the end of the snapshot.
        """
        if self.term_of(index) == term:
            return True
        if self.first > index:
            raise Damaged(
                f"{self._directory}: the log begins at {self.first}, the snapshot ends at {index}"
            )
        return False

    def align(self, index: int, term: int, previous_term: int) -> None:
        """Make the log begin at the entry before the snapshot's last one.

        F6: a crash between the publication of a snapshot and the trimming of the log leaves a log
        that begins elsewhere, and the library would then clear all of it.
        """
        if self.joins(index, term):
            if self.first == index:
                self._commands.insert(0, PLACEHOLDER)
                self._terms.insert(0, previous_term)
                self._ats.insert(0, self._ats[0])
                self.first = index - 1
                self._spilled += 1
            else:
                self._cut_head(index - 1)
            self._refresh_ends()
            return
        self.restart(index, term, previous_term)

    def restart(self, index: int, term: int, previous_term: int) -> None:
        """Replace the whole log by the two placeholders that stand for a snapshot."""
        self.clear()
        self.add(PLACEHOLDER, index - 1, previous_term)
        self.add(PLACEHOLDER, index, term)

    def check_begin(self) -> None:
        """Refuse a log without its beginning.

        Raises:
            Damaged: there is no snapshot, and the log begins later than at its first entry.
        """
        if len(self) and self.first > 1:
            raise Damaged(f"{self._directory}: the log begins at {self.first} without a snapshot")

    def trim(self, first: int) -> None:
        """Forget the entries below `first`, and later drop the segments that hold only older ones.

        Term and vote are written again before a segment is dropped, because their record may be in
        it.
        """
        if first > self.first:
            self._cut_head(first)
            self._refresh_ends()
        at = self._ats[0]
        if self._drop is None and at > self._dropped_at:
            self._write_term()
            self._drop = (at, self.wal.end)

    def after_durable(self) -> None:
        """Release what a finished write made obsolete: commands in memory, trimmed segments."""
        self._written_at = self.wal.durable
        self._spill()
        if self._drop is not None and self.wal.durable >= self._drop[1]:
            self._dropped_at, self._drop = self._drop[0], None
            self.wal.drop_before(self._dropped_at)

    # --- inside ----------------------------------------------------------------------------------

    def _replay(self, at: int, kind: int, index: int, term: int, payload: bytes) -> None:
        if kind == ADD:
            if len(self._terms) and index != self.last + 1:
                raise Damaged(f"{self._directory}: entry {index} follows {self.last} at {at}")
            self._append(payload, index, term, at)
        elif kind == TRUNCATE:
            self._truncate(index)
        elif kind == TERM:
            self._term = term
            self._voted_for = payload.decode() or None
        elif kind == RESET:
            self._forget_all()
            (previous_term,) = _PREVIOUS_TERM.unpack(payload)
            self._append(PLACEHOLDER, index - 1, previous_term, at)
            self._append(PLACEHOLDER, index, term, at)
        else:
            raise Damaged(f"{self._directory}: a record of unknown kind {kind} at {at}")

    def _write_term(self) -> None:
        self.wal.append(TERM, 0, self._term, (self._voted_for or "").encode())

    def _append(self, command: bytes, index: int, term: int, at: int) -> None:
        entry = (command, index, term)
        if not self._terms:
            self.first = index
            self._head = entry
            self._durable = index - 1
        assert index == self._tail[1] + 1 or not self._terms, f"{index} follows {self._tail[1]}"
        self._commands.append(command)
        self._terms.append(term)
        self._ats.append(at)
        self._tail = entry
        self._memory_bytes += len(command)
        if self._memory_bytes > self._memory_bytes_max:
            self._spill()

    def _add_after_reset(self, command: bytes, index: int, term: int) -> None:
        reset = self._reset
        assert reset is not None and command == PLACEHOLDER, "a reset is followed by placeholders"
        reset.append((command, index, term))
        if len(reset) == 2:
            self._reset = None
            (_, before, previous_term), _ = reset
            assert before == index - 1, "a snapshot stands for two entries in a row"
            at = self.wal.append(RESET, index, term, _PREVIOUS_TERM.pack(previous_term))
            self._append(PLACEHOLDER, before, previous_term, at)
            self._append(PLACEHOLDER, index, term, at)

    def _forget_all(self) -> None:
        self._commands.clear()
        del self._terms[:], self._ats[:]
        self._memory_bytes = self._spilled = 0
        self._head = self._tail = (PLACEHOLDER, 0, 0)

    def _truncate(self, index: int) -> None:
        place = index - self.first
        if place <= 0 or not self._terms:
            # Only during the replay at startup: the deleted entries were in segments that have been
            # dropped. The oldest segment may also begin with this record.
            self._forget_all()
            return
        self._memory_bytes -= sum(len(command or b"") for command in self._commands[place:])
        del self._commands[place:], self._terms[place:], self._ats[place:]
        self._spilled = min(self._spilled, len(self._terms))
        self._durable = min(self._durable, index - 1)
        self._refresh_ends()

    def _cut_head(self, first: int) -> None:
        count = first - self.first
        assert 0 <= count < len(self._terms), f"cannot begin at {first}"
        # The entries before `_spilled` have no command in memory: there may be a million of them.
        in_memory = self._commands[self._spilled : count]
        self._memory_bytes -= sum(len(command or b"") for command in in_memory)
        del self._commands[:count], self._terms[:count], self._ats[:count]
        self._spilled = max(0, self._spilled - count)
        self.first = first
        # A leader may have committed, and a snapshot may cover, entries that are not yet durable on
        # its own slow disk.
        self._durable = max(self._durable, first - 1)

    def _refresh_ends(self) -> None:
        # The library uses only index and term of the first and last entry, so their commands are
        # not read back.
        last = len(self._terms) - 1
        self._head = (self._commands[0] or PLACEHOLDER, self.first, self._terms[0])
        self._tail = (self._commands[last] or PLACEHOLDER, self.first + last, self._terms[last])

    def _spill(self) -> None:
        """Release the oldest commands in memory; the newest one always stays.

        Commands that are not yet written stay as well: the write-ahead log would have to search its
        buffers for them.
        """
        commands, place, end = self._commands, self._spilled, len(self._commands) - 1
        ats, written_at = self._ats, self._written_at
        while (
            place < end and self._memory_bytes > self._memory_bytes_max and ats[place] < written_at
        ):
            command = commands[place]
            if command:
                self._memory_bytes -= len(command)
                commands[place] = None
            place += 1
        self._spilled = place

    def _command(self, place: int) -> bytes:
        command = self._commands[place]
        if command is None:
            kind, index, _, command = self.wal.read(self._ats[place])
            assert (kind, index) == (ADD, self.first + place), "the log was read at a wrong place"
        return command

    def end_slice(self) -> None:
        """Empty the slice that was returned last, which ends the loop of a reader over it."""
        self._latest.clear()

    def entries(self, first: int, last: int) -> list[Entry]:
        """Return the entries of these indexes, up to the limits of a slice."""
        return self._slice(first - self.first, last + 1 - self.first)

    def _slice(self, start: int, stop: int | None) -> list[Entry]:
        end = len(self._terms)
        if stop is not None and stop < end:
            end = stop
        if end - start == 1:
            return [(self._command(start), self.first + start, self._terms[start])]
        if end - start > self.slice_entries_max:
            end = start + self.slice_entries_max
        entries: list[Entry] = []
        self._latest = entries
        size, first, terms = 0, self.first, self._terms
        for place in range(start, end):
            command = self._command(place)
            size += len(command)
            if size > self.slice_bytes_max and entries:
                break
            entries.append((command, first + place, terms[place]))
        return entries
