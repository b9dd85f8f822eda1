"""The follower's side of appends: filter the messages that the library receives.

The library deletes matching entries (B1), trusts commit indexes for entries that it has not
compared (B2) and backs up one entry at a time (B5). It receives only new entries, and only where
they fit its log; every other case is handled here.
"""

from typing import TYPE_CHECKING, Final

from beanpole.replication.pysyncobj import messages

if TYPE_CHECKING:
    from beanpole.replication.pysyncobj.acks import FollowerAcks
    from beanpole.replication.pysyncobj.elections import Elections
    from beanpole.replication.pysyncobj.messages import Message
    from beanpole.replication.pysyncobj.shared import Shared
    from beanpole.replication.pysyncobj.snapshots import Snapshots
    from beanpole.replication.pysyncobj.transport import LibraryTransport

# The entries of one term that one step back skips. A leader has far fewer in flight when it dies.
REWIND_ENTRIES_MAX: Final = 256


class Appends:
    """Handle the messages that a leader sends to this member."""

    def __init__(
        self,
        shared: "Shared",
        transport: "LibraryTransport",
        elections: "Elections",
        acks: "FollowerAcks",
        snapshots: "Snapshots",
    ) -> None:
        self._shared = shared
        self._transport = transport
        self._elections = elections
        self._acks = acks
        self._snapshots = snapshots

    def append(self, peer: str, message: "Message") -> None:
        """Handle an append or a heartbeat."""
        _, term, round_, commit, previous, previous_term, asked, flat = message
        if not self._accept(peer, term, round_):
            return
        journal = self._shared.journal
        first, last = journal.first, journal.last
        entries = [
            (flat[place + 1], previous + 1 + place // 2, flat[place])
            for place in range(0, len(flat), 2)
        ]
        full = self._shared.room.full or journal.is_choked
        if full and entries:
            # A write that fails would end this node, and the bytes that wait for a slow disk must
            # be bounded (the leader's window bounds them only within a term). The leader continues
            # without this member: a rewind would make it resend the entries at the full speed of
            # the link.
            self._keep_alive(peer, term, commit, 0)
            self._acks.alive(peer)
            return
        if previous > last:
            self._keep_alive(peer, term, commit, 0)
            if self._snapshots.fetching or full:
                self._acks.alive(peer)
            else:
                self._acks.rewind(peer, last + 1)
            return
        if previous < first:
            # The log begins inside a snapshot: entries below its beginning are committed.
            entries = [entry for entry in entries if entry[1] > first]
            previous, previous_term = first, journal.term_of(first)
            if not entries:
                self._keep_alive(peer, term, commit, 0)
                self._acks.matched(peer, self._shared.core.commit, False)
                return
        if journal.term_of(previous) != previous_term:
            self._conflict(peer, term, commit, previous)
            return
        self._take(peer, term, commit, previous, entries, asked)

    def offer(self, peer: str, message: "Message") -> None:
        """Accept the offer of a snapshot, if this member needs it."""
        _, term, round_, index, snapshot_term = message
        if not self._accept(peer, term, round_):
            return
        shared = self._shared
        commit = shared.core.commit
        self._keep_alive(peer, term, 0, 0)
        # F7: the library would clear the log for any snapshot, even for an older one.
        if index <= commit and shared.repairs.refuse_old_snapshots:
            self._acks.matched(peer, commit, False)
        elif shared.journal.term_of(index) == snapshot_term and index > commit:
            # Nothing to fetch: this log has the entries that the snapshot covers, and all of them
            # are committed.
            self._keep_alive(peer, term, index, index)
            self._acks.matched(peer, index, False)
        else:
            self._snapshots.fetch(peer, index)
            self._acks.alive(peer)

    def _accept(self, peer: str, term: int, round_: int) -> bool:
        """Check that the sender may be this member's leader."""
        shared = self._shared
        core = shared.core
        if term < core.term:
            # The library would not answer, and a stale leader would never learn of the new term.
            shared.post(peer, (messages.HIGHER_TERM, core.term))
            return False
        if term == core.term and core.leads and shared.repairs.halt_on_second_leader:
            # B8: the library would obey. Two leaders in one term violate every guarantee.
            shared.stop(f"{peer} and this node both lead term {term}")
            return False
        self._elections.note_leader_contact()
        self._acks.note_round(term, round_)
        return True

    def _keep_alive(self, peer: str, term: int, commit: int, verified: int) -> None:
        """Let the library note leader, term, deadline and commit index without touching its log.

        B2: the commit index is clipped to the entries verified to match the leader's log. The
        library would apply the leader's commit index to any entries in its own log.
        """
        if self._shared.repairs.commit_verified_only:
            commit = min(commit, verified)
        if self._shared.core.take(self._shared.members[peer], term, [], commit):
            return
        payload = {"type": "append_entries", "term": term, "commit_index": commit}
        self._transport.receive(peer, payload)

    def _conflict(self, peer: str, term: int, commit: int, previous: int) -> None:
        shared = self._shared
        journal, committed = shared.journal, shared.core.commit
        if previous <= committed:
            shared.stop(
                f"the log of {peer}, leader of term {term}, differs from this one at {previous},"
                f" which is committed here (up to {committed})"
            )
            return
        index = previous
        if shared.repairs.rewind_whole_terms:
            # B5: the entries of that term are from a deposed leader; skip them in one step instead
            # of one per entry. Most of them match after a start, which does not know what is
            # committed: the leader would send the whole term again.
            low = max(committed, journal.first, previous - REWIND_ENTRIES_MAX)
            wrong = journal.term_of(previous)
            while index - 1 > low and journal.term_of(index - 1) == wrong:
                index -= 1
        self._keep_alive(peer, term, commit, 0)
        self._acks.rewind(peer, index)

    def _take(
        self,
        peer: str,
        term: int,
        commit: int,
        previous: int,
        entries: list[tuple[bytes, int, int]],
        asked: int,
    ) -> None:
        """Skip the entries that the log has, and pass the rest to the library."""
        shared = self._shared
        journal = shared.journal
        known = 0
        if shared.repairs.keep_matching_entries:
            # B1: figure 2 of the paper deletes entries from a conflicting one on, never a matching
            # one.
            while known < len(entries) and journal.term_of(entries[known][1]) == entries[known][2]:
                known += 1
        matched = previous + known
        if known == len(entries) and shared.repairs.keep_matching_entries:
            self._keep_alive(peer, term, commit, matched)
            if asked:
                self._acks.matched(peer, matched, bool(entries))
            return
        committed = shared.core.commit
        if matched < min(committed, journal.last) and shared.repairs.keep_matching_entries:
            shared.stop(
                f"{peer}, leader of term {term}, replaces entry {matched + 1},"
                f" which is committed here (up to {committed})"
            )
            return
        self._cut_behind(matched)
        end = entries[-1][1] if entries else matched
        if shared.repairs.commit_verified_only:
            commit = min(commit, end)
        new = entries[known:]
        if shared.core.take(shared.members[peer], term, new, commit):
            self._acks.matched(peer, end, True)
            return
        self._transport.receive(
            peer,
            {
                "type": "append_entries",
                "term": term,
                "commit_index": commit,
                "prevLogIdx": matched,
                "prevLogTerm": journal.term_of(matched),
                "entries": new,
            },
        )

    def _cut_behind(self, matched: int) -> None:
        """Delete the entries of another leader after the last matching entry.

        The library searches for the conflict in one slice of the log only, and a slice ends after
        an entry of SLICE_BYTES_MAX. It then appended the next entry after a conflicting tail that
        was still in the log, and every later start failed in the same way.
        """
        journal = self._shared.journal
        if journal.last > matched:
            journal.deleteEntriesFrom(matched + 1 - journal.first)
