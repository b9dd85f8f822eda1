"""The record of clients under faults, and its verdict: jobs lost, invented or duplicated.

A command whose connection ended before its reply is unknown: it took effect once or not at all.
The clients are in `load`.
"""

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

INSERTED: Final = "INSERTED"
DELETED: Final = "DELETED"
UNKNOWN: Final = "unknown"


class Put(NamedTuple):
    """One put with a unique body; the id is 0 unless it was INSERTED."""

    body: bytes
    outcome: str
    job: int


class Delivery(NamedTuple):
    """One job that a client reserved."""

    job: int
    body: bytes


class Delete(NamedTuple):
    """One delete of a job that the client had reserved."""

    job: int
    outcome: str


@dataclass
class History:
    """The record of one client, or of several joined."""

    puts: list[Put] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)
    # Not allowed while a majority lives: errors, closed connections, other replies.
    errors: list[str] = field(default_factory=list)
    reply_times_s: list[float] = field(default_factory=list)
    longest_wait_s: float = 0.0  # of one client for one reply

    def join(self, other: "History") -> None:
        self.puts += other.puts
        self.deliveries += other.deliveries
        self.deletes += other.deletes
        self.errors += other.errors
        self.reply_times_s += other.reply_times_s
        self.longest_wait_s = max(self.longest_wait_s, other.longest_wait_s)

    def longest_gap_s(self) -> float:
        """Return the longest time in which no client got a reply, in seconds."""
        times = sorted(self.reply_times_s)
        return max((later - sooner for sooner, later in itertools.pairwise(times)), default=0)


class Verdict(NamedTuple):
    """Counts in the words of Jepsen's queue checkers; the lists are empty when all is well."""

    attempts: int
    acknowledged: int
    delivered: int
    deleted: int
    recovered: int  # unacknowledged but delivered, which is allowed
    lost: list[int]
    unexpected: list[str]
    doubled: list[str]

    @property
    def good(self) -> bool:
        return not (self.lost or self.unexpected or self.doubled)


def judge(history: History) -> Verdict:
    """Judge the whole history of a queue that was empty before and was emptied at the end."""
    put_by_body = {put.body: put for put in history.puts}
    assert len(put_by_body) == len(history.puts), "every put needs a body of its own"
    # Puts and not ids, because a queue that forgot jobs gives their ids to later ones.
    acknowledged = [put for put in history.puts if put.outcome == INSERTED]
    delivered = {delivery.job for delivery in history.deliveries}
    seen = {(delivery.job, delivery.body) for delivery in history.deliveries}
    deleted = Counter(delete.job for delete in history.deletes if delete.outcome == DELETED)
    unsure = {delete.job for delete in history.deletes if delete.outcome == UNKNOWN}
    unexpected: list[str] = []
    jobs_by_body: dict[bytes, set[int]] = {}
    for job, body in set(history.deliveries):
        jobs_by_body.setdefault(body, set()).add(job)
        put = put_by_body.get(body)
        if put is None:
            unexpected.append(f"job {job} has a body that nobody put: {body!r}")
        elif put.outcome not in (INSERTED, UNKNOWN):
            unexpected.append(f"job {job} was refused with {put.outcome}")
        elif put.outcome == INSERTED and put.job != job:
            unexpected.append(f"job {job} has the body of job {put.job}")
    doubled = [
        f"job {job} was DELETED {count} times" for job, count in deleted.items() if count > 1
    ]
    doubled += [
        f"one put made the jobs {sorted(jobs)}" for jobs in jobs_by_body.values() if len(jobs) > 1
    ]
    for number, count in Counter(put.job for put in history.puts if put.job).items():
        if count > 1:
            doubled.append(f"{count} puts got the id {number}")
    # A delivered job is done only if its delete was answered, or may have been done.
    done = deleted.keys() | unsure
    lost = [p.job for p in acknowledged if p.job not in done or (p.job, p.body) not in seen]
    return Verdict(
        attempts=len(history.puts),
        acknowledged=len(acknowledged),
        delivered=len(delivered),
        deleted=len(deleted),
        recovered=len(delivered - {put.job for put in acknowledged}),
        lost=sorted(lost),
        unexpected=unexpected,
        doubled=doubled,
    )
