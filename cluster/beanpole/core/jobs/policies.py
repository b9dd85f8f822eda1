"""Policies of queues, and notes on the jobs that a policy has taken out of their queue.

This module holds the tables, and selects the policy of a queue. Policies are enforced in
`core.jobs.attempts`, `states` (retention), `tubes` (rates) and `core.operations.policy_puts`
(puts). They are set in `core.operations.policies`.
"""

from bisect import bisect_right
from itertools import islice
from typing import Final, NamedTuple

from beanpole.core.jobs.prefixes import ANY, NONE, ranges_of
from beanpole.core.jobs.spaces import PREFIX_END

# An image holds all, and a change makes the ranges of all again: 0.2 ms.
POLICIES_MAX: Final[int] = 256
# Beyond this, the oldest notes are dropped; their jobs stay. An image copies all notes in one step,
# in 2 ms.
NOTES_MAX: Final[int] = 100_000
# This share is dropped at a time: to find the first key of a dict takes a step for each one that
# was removed before it.
_DROPPED_SHARE: Final[int] = 100
# Queues whose policy is cached. The bound keeps a million short-lived names from taking memory.
_KNOWN_MAX: Final[int] = 10_000
# After a change of the patterns, this many queues are looked up by the lengths of the patterns, and
# all others by ranges of names. To make the ranges takes as long as a few lookups by 189 lengths;
# an entry that sets policies and puts jobs in turns would make them for each put.
_WALKS_MAX: Final[int] = 16

# The effect of a put into a full queue: the put is refused, or the oldest ready jobs are dropped.
REFUSE: Final = 0
DROP_OLDEST: Final = 1
# Names of beanstalk tubes begin with this byte or a higher one, those of other spaces with a lower
# one.
_FIRST_BYTE: Final = bytes([PREFIX_END])


class Policy(NamedTuple):
    """The rules for the jobs of a queue. A field is 0 or empty for no such rule.

    Attributes:
        attempts_max: a job that was reserved this often, and came back, is not given out again.
        dead: the queue to which such a job is moved; if empty, it is buried where it is.
        jobs_max: of the jobs of the queue, in all states.
        bytes_max: of the total size of their bodies.
        when_full: REFUSE or DROP_OLDEST.
        ttr_s: the TTR of jobs that are put without one.
        priority: the priority of jobs that are put without one.
        retain_buried_us: a job that has been buried for this long is deleted.
        retain_delayed_us: a job that has been delayed for this long is deleted.
        unique_window_us: a put of a body that was put within this time before creates no job.
        rate: the number of jobs that are given out in `rate_period_us`.
        rate_period_us: 0 if and only if `rate` is.
    """

    attempts_max: int = 0
    dead: bytes = b""
    jobs_max: int = 0
    bytes_max: int = 0
    when_full: int = REFUSE
    ttr_s: int = 0
    priority: int = 0
    retain_buried_us: int = 0
    retain_delayed_us: int = 0
    unique_window_us: int = 0
    rate: int = 0
    rate_period_us: int = 0


class Note(NamedTuple):
    """The reason for which a policy took a job out of its queue, and the job's state then.

    Attributes:
        reason: how its last reservation ended (`events`).
        queue: the queue that it was in.
        reserves: its number of reservations until then: later attempts are counted from it.
    """

    reason: int
    queue: bytes
    reserves: int


class Policies:
    """All policies by pattern: the name of a queue, or a prefix of names before `ANY`.

    Attributes:
        rows: the policies. It is empty in most clusters, so callers test it first.
        notes: notes by the ids of the jobs, the oldest first.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, Policy] = {}
        self.notes: dict[int, Note] = {}
        self._lengths: list[int] = []  # of the prefixes before `ANY`, the longest first
        # Ranges of names, and the pattern of each; empty until they are needed.
        self._boundaries: list[bytes] = []
        self._patterns: list[bytes] = []
        self._known: dict[bytes, Policy | None] = {}

    def put(self, pattern: bytes, policy: Policy) -> None:
        """Set the policy of a pattern."""
        is_new = pattern not in self.rows
        self.rows[pattern] = policy
        self._known.clear()
        if is_new:
            self._patterns_changed()

    def drop(self, pattern: bytes) -> None:
        """Remove an existing policy; notes stay."""
        del self.rows[pattern]
        self._known.clear()
        self._patterns_changed()

    def _patterns_changed(self) -> None:
        lengths = {len(pattern) - len(ANY) for pattern in self.rows if pattern.endswith(ANY)}
        lengths.discard(0)
        self._lengths = sorted(lengths, reverse=True)
        self._boundaries = []
        self._patterns = []

    def of(self, queue: bytes) -> Policy | None:
        """Return the policy of a queue: that of its name, else of the longest matching pattern."""
        known = self._known
        if queue in known:
            return known[queue]
        if len(known) >= _KNOWN_MAX:
            known.clear()
        found = known[queue] = self._look_up(queue)
        return found

    def _look_up(self, queue: bytes) -> Policy | None:
        rows = self.rows
        found = rows.get(queue)
        if found is None:
            if not self._patterns and len(self._known) >= _WALKS_MAX:
                self._divide()
            if self._patterns:
                found = rows.get(self._patterns[bisect_right(self._boundaries, queue)])
            else:
                found = self._by_lengths(queue)
        # `ANY` alone matches all tubes of beanstalk, and no queue of another protocol.
        if found is None and queue[:1] >= _FIRST_BYTE:
            found = rows.get(ANY)
        return found

    def _by_lengths(self, queue: bytes) -> Policy | None:
        for length in self._lengths:
            if length <= len(queue):
                found = self.rows.get(queue[:length] + ANY)
                if found is not None:
                    return found
        return None

    def _divide(self) -> None:
        """Find the pattern of each range of names.

        A change of a policy looks up the queues of all buckets in one step, so a lookup has to be
        as cheap with many lengths of patterns as with one.
        """
        prefixes = sorted(
            [
                pattern[: -len(ANY)]
                for pattern in self.rows
                if pattern.endswith(ANY) and pattern != ANY
            ]
        )
        boundaries, longest_prefix, _ = ranges_of(prefixes)
        self._boundaries = boundaries
        # No policy has an empty pattern.
        self._patterns = [
            b"" if number == NONE else prefixes[number] + ANY for number in longest_prefix
        ]

    def note(self, job_id: int, note: Note) -> None:
        """Record why a job was taken out of its queue."""
        notes = self.notes
        notes.pop(job_id, None)  # so that the job's new note is the youngest
        if len(notes) >= NOTES_MAX:
            for oldest in list(islice(notes, max(1, NOTES_MAX // _DROPPED_SHARE))):
                del notes[oldest]
        notes[job_id] = note

    def begin_anew(self, job_id: int, reserves: int) -> None:
        """Give a job that is moved new attempts: those in the dead queue do not count any more."""
        note = self.notes.get(job_id)
        if note is not None:
            self.notes[job_id] = note._replace(reserves=reserves)

    def spent(self, job_id: int, reserves: int) -> int:
        """Return the number of attempts of a job since its last note."""
        note = self.notes.get(job_id)
        return reserves if note is None else max(0, reserves - note.reserves)
