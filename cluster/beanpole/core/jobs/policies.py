"""Policies of queues, and notes on the jobs that one of them has taken out of their queue.

Belongs here: the tables, and which policy counts for a queue. What a policy does is where it is
done: `core.jobs.attempts`, `states` (retention), `tubes` (rates), `core.operations.ruled` (puts).
How one is set is in `core.operations.policies`.
"""

from typing import Final, NamedTuple

from beanpole.core.jobs.spaces import PREFIX_END

# Each is looked at when a queue is first met, and an image holds them all.
POLICIES_MAX: Final[int] = 256
# The oldest note is forgotten first; its job stays. An image copies them in one step, in 2 ms.
NOTES_MAX: Final[int] = 100_000
# Queues whose policy is remembered: so that a million names that come and go take no memory.
_KNOWN_MAX: Final[int] = 10_000
# At the end of a pattern: all names that begin with what is before it.
ANY: Final = b"*"


# What a put into a full queue does: it is refused, or the oldest ready jobs go.
REFUSE: Final = 0
DROP_OLDEST: Final = 1
# Names of beanstalk begin with this byte or a later one, those of other spaces before it.
_FIRST_BYTE: Final = bytes([PREFIX_END])


class Policy(NamedTuple):
    """What becomes of the jobs of a queue. Each field is 0 or empty for no such rule.

    Attributes:
        attempts_max: a job that was reserved so often, and came back, is not given out again.
        dead: the queue into which it is moved; empty: it is buried where it is.
        jobs_max: how many jobs, of whatever state, it may have for one more to be put.
        bytes_max: how many bytes of bodies they may have with that one.
        when_full: REFUSE or DROP_OLDEST.
        ttr_s: the TTR of jobs that are put without one.
        priority: the priority of jobs that are put without one.
        retain_buried_us: a job that has been buried for so long is deleted.
        retain_delayed_us: the same of one that is delayed.
        unique_window_us: a put of a body that was put in this time before makes no job.
        rate: so many jobs are given out in `rate_period_us`.
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
        of_beanstalk = queue[:1] >= _FIRST_BYTE
        for pattern, policy in self.rows.items():
            # `ANY` alone means all tubes of beanstalk, and no queue of another protocol.
            if not of_beanstalk and pattern == ANY:
                continue
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
