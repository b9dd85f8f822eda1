"""Every job of some queues, usually all of beanstalk's, computed a second time from its events.

Belongs here: the state, queue and order that a job must have by its events, and that no job is lost
or duplicated. The verdicts that follow the recount judge which events were right.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from beanpole import events as e
from beanpole.core.jobs.job import GONE, READY, RESERVED
from tests.sim.admin_log import Deed, Session
from tests.sim.cluster import Violation
from tests.sim.event_log import Row
from tests.sim.stories import FOREVER_S
from tests.sim.witness import Witness

# Names of queues of other spaces begin with a lower byte.
FIRST_NAME: Final = b" "


class Happened(NamedTuple):
    """One event. `before` is the state of the job by its earlier events."""

    row: Row
    kind: int
    reason: int
    session: Session
    job: int
    before: int
    state: int
    rank: int
    reserves: int
    timeouts: int
    releases: int
    buries: int
    delay_s: int
    ttr_s: int
    body_bytes: int
    at_s: float

    def __repr__(self) -> str:
        return (
            f"event {self.row.offset} of job {self.job} in {self.row.tube!r}: {self.kind}, reason "
            f"{self.reason}, {self.before} to {self.state}, by {self.session} at {self.at_s:.4f}"
        )


class Stay(NamedTuple):
    """A span in which a job was in one state and queue (true seconds)."""

    state: int
    queue: bytes
    session: Session
    from_s: float
    to_s: float


class Known:
    """A job as its events left it."""

    __slots__ = (
        *("buries", "job", "queue", "rank", "releases", "session", "since_s", "state"),
        *("stays", "timeouts"),
    )

    def __init__(self, job: int) -> None:
        self.job = job
        self.state = GONE
        self.queue = b""
        self.rank = self.releases = self.timeouts = self.buries = 0
        self.session: Session = (0, 0, 0)
        self.since_s = 0.0
        self.stays: list[Stay] = []


class Recount:
    """All jobs, event by event, with the commands of administrators between them."""

    def __init__(self, witness: Witness, queues: Collection[bytes] | None = None) -> None:
        """Begin; `queues` are those whose jobs are counted, None: all of beanstalk's."""
        self.witness = witness
        self._queues = queues
        self.jobs: dict[int, Known] = {}
        self.ready: dict[bytes, set[int]] = {}  # by queue

    def steps(self) -> Iterator[Deed | Happened]:
        """Yield the steps of the life; an event is counted when the next step is requested.

        A command of an administrator comes before its own events.
        """
        deeds = iter(self.witness.admin_log.deeds)
        deed = next(deeds, None)
        applied_s = self.witness.applied_s
        for row in self.witness.events.rows:
            while deed is not None and deed.first <= row.offset:
                yield deed
                deed = next(deeds, None)
            if not self._is_ours(row.tube):
                continue
            fields = dict(zip(e.FIELDS, e.RECORD.unpack(row.record), strict=True))
            known = self.jobs.get(fields["job"])
            if known is None:
                known = self.jobs[fields["job"]] = Known(fields["job"])
            happened = Happened(
                row,
                fields["kind"],
                fields["reason"],
                (fields["origin"], fields["incarnation"], fields["session"]),
                known.job,
                known.state,
                fields["state"],
                fields["priority"],
                fields["reserves"],
                fields["timeouts"],
                fields["releases"],
                fields["buries"],
                fields["delay_s"],
                fields["ttr_s"],
                fields["body_bytes"],
                applied_s[row.log_index],
            )
            self._check(known, happened, fields["state_before"])
            yield happened
            self._count(known, happened)
        while deed is not None:
            yield deed
            deed = next(deeds, None)
        for known in self.jobs.values():
            self._end_stay(known, FOREVER_S)

    def _is_ours(self, queue: bytes) -> bool:
        return queue >= FIRST_NAME if self._queues is None else queue in self._queues

    def _check(self, known: Known, happened: Happened, before: int) -> None:
        """Check that an event begins in the state and queue in which the previous one ended."""
        if before != known.state or (happened.kind == e.PUT) != (not known.queue):
            raise Violation(f"job {known.job} was {known.state} by its events: {happened}")
        arrives = happened.kind in (e.PUT, e.MOVED)
        if known.queue != happened.row.tube and not arrives:
            raise Violation(f"job {known.job} was in {known.queue!r}: {happened}")

    def _count(self, known: Known, happened: Happened) -> None:
        at_s, queue, state = happened.at_s, happened.row.tube, happened.state
        if known.state == READY:
            self.ready[known.queue].discard(known.job)
        if state == READY:
            self.ready.setdefault(queue, set()).add(known.job)
        if (state, queue) != (known.state, known.queue) or happened.kind != e.TOUCHED:
            self._end_stay(known, at_s)
            known.since_s = at_s
        if state == RESERVED:
            known.session = happened.session
        known.state, known.queue, known.rank = state, queue, happened.rank
        known.releases, known.timeouts = happened.releases, happened.timeouts
        known.buries = happened.buries

    def _end_stay(self, known: Known, at_s: float) -> None:
        if known.state != GONE and known.state != e.MOVING:
            stay = Stay(known.state, known.queue, known.session, known.since_s, at_s)
            known.stays.append(stay)

    def first_ready(self, queue: bytes) -> int:
        """Return the job that a reserve from a queue must get; 0 if there is none."""
        jobs = self.ready.get(queue, ())
        return min(jobs, key=lambda job: (self.jobs[job].rank, job), default=0)

    def check_end(self) -> None:
        """Check that at the end all jobs are where their events say, and no others exist."""
        queue = self.witness.machine.queue
        for known in self.jobs.values():
            job = queue.jobs.get(known.job)
            found = (GONE, known.queue) if job is None else (job.state, job.tube.name)
            if found != (known.state, known.queue):
                raise Violation(f"job {known.job} is {found}: {known.state} in {known.queue!r}")
        alive = sum(known.state != GONE for known in self.jobs.values())
        space = queue.beanstalk
        counted = space.ready + space.reserved + space.delayed + space.buried
        if alive != counted:
            raise Violation(f"{counted} jobs are in queues, {alive} were put and are not gone")
