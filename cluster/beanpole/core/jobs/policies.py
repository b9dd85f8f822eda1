"""Policies of queues, and notes on the jobs that one of them has taken out of their queue.

Belongs here: the tables, and which policy counts for a queue. What a policy does to a job is in
`core.jobs.attempts`, who may set one in `core.operations.policies`.
"""

from typing import Final, NamedTuple

# Each is looked at when a queue is first met, and an image holds them all.
POLICIES_MAX: Final[int] = 256
# The oldest note is forgotten first; its job stays. An image copies them in one step, in 2 ms.
NOTES_MAX: Final[int] = 100_000
# Queues whose policy is remembered: so that a million names that come and go take no memory.
_KNOWN_MAX: Final[int] = 10_000
# At the end of a pattern: all names that begin with what is before it.
ANY: Final = b"*"


class Policy(NamedTuple):
    """What becomes of the jobs of a queue.

    Attributes:
        attempts_max: a job that was reserved so often, and came back, is not given out again.
        dead: the queue into which it is moved; empty: it is buried where it is.
    """

    attempts_max: int
    dead: bytes


class Note(NamedTuple):
    """Why a job was taken out of its queue, and what it had then.

    Attributes:
        reason: of its last attempt, as in `events`: how the reservation ended.
        queue: in which it was.
        reserves: how often it had been reserved: attempts count from there on.
    """

    reason: int
    queue: bytes
    reserves: int


class Policies:
    """All policies, by their patterns: the name of a queue, or the beginning of one before `ANY`.

    Attributes:
        rows: the policies. Empty in most clusters, which is asked first.
        notes: by the ids of the jobs, the oldest first.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, Policy] = {}
        self.notes: dict[int, Note] = {}
        self._known: dict[bytes, Policy | None] = {}

    def put(self, pattern: bytes, policy: Policy) -> None:
        """Set the policy of a pattern."""
        self.rows[pattern] = policy
        self._known.clear()

    def drop(self, pattern: bytes) -> None:
        """Remove a policy that there is; notes stay."""
        del self.rows[pattern]
        self._known.clear()

    def of(self, queue: bytes) -> Policy | None:
        """Return what counts for a queue: its own, else that of the longest beginning."""
        known = self._known
        if queue in known:
            return known[queue]
        if len(known) >= _KNOWN_MAX:
            known.clear()
        found = known[queue] = self._look_up(queue)
        return found

    def _look_up(self, queue: bytes) -> Policy | None:
        found = self.rows.get(queue)
        if found is not None:
            return found
        best = -1
        for pattern, policy in self.rows.items():
            if pattern.endswith(ANY) and len(pattern) > best and queue.startswith(pattern[:-1]):
                found, best = policy, len(pattern)
        return found

    def note(self, job_id: int, note: Note) -> None:
        """Remember why a job was taken out of its queue."""
        notes = self.notes
        notes.pop(job_id, None)  # it stands at its new place then
        if len(notes) >= NOTES_MAX:
            del notes[next(iter(notes))]
        notes[job_id] = note

    def spent(self, job_id: int, reserves: int) -> int:
        """Return how many attempts a job has had since it was noted last."""
        note = self.notes.get(job_id)
        return reserves if note is None else max(0, reserves - note.reserves)
