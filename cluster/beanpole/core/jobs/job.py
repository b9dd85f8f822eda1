"""The records of a job, of its tube and of its holder, which refer to each other.

A tube keeps only the order and the counts of its jobs. Transitions between states, and their other
effects (timers, totals), are in `core.jobs.queue`; the other fields of a session are in
`core.sessions`.
"""

from collections import OrderedDict
from typing import Final

from beanpole.constants import U32_MAX
from beanpole.core.jobs.extension import Extension
from beanpole.core.jobs.order import Order
from beanpole.core.jobs.spaces import RANK_NORMAL, Space
from beanpole.events import NO_TIME

READY: Final = 1
RESERVED: Final = 2
DELAYED: Final = 3
BURIED: Final = 4
# Since machine version 3, of jobs with a TTL: they keep their result until the TTL ends.
DONE: Final = 5
FAILED: Final = 6
GONE: Final = 0

STATE_NAMES: Final = {
    READY: b"ready",
    RESERVED: b"reserved",
    DELAYED: b"delayed",
    BURIED: b"buried",
    DONE: b"done",
    FAILED: b"failed",
}

# Ready order is (rank, sequence), delayed order (due time, id). One integer holds both, because
# comparing two integers is several times cheaper than comparing two tuples, and it takes less
# memory: id < 2**53 < 2**56. A sequence is an id or a later number of the same counter.
ID_BITS: Final = 56
ID_MASK: Final = (1 << ID_BITS) - 1

# The reasons for which a tube is closed, one bit each.
PAUSED: Final = 1
RATE_SPENT: Final = 2

# The limits of a queue: of jobs with a rank before, at and after the middle of the scale.
NO_LIMITS: Final = (0, 0, 0)


class Holder:
    """A holder of jobs. Events identify it by its protocol, its origin and its number there.

    `host` is the number of the client's host (`core.hosts`), 0 if unknown; `place` is the origin
    and the host as encoded in event records. `serial` identifies the holder for all its life.
    `reserved` maps ids to its reserved jobs, in the order of reservation. `attached` has the ids of
    the jobs of which it is a client, and of whose ends it is notified. If it is `leased`, it holds
    the jobs that it reserves, in any queue; if not, these jobs have no holder.
    """

    __slots__ = (
        "attached",
        "host",
        "incarnation",
        "leased",
        "number",
        "origin",
        "place",
        "protocol",
        "reserved",
        "serial",
    )

    def __init__(
        self, serial: int, protocol: int, origin: int, incarnation: int, number: int
    ) -> None:
        self.serial = serial
        self.protocol = protocol
        self.origin = origin
        self.incarnation = incarnation
        self.number = number
        self.host = 0
        self.place = origin
        self.reserved: dict[int, Job] = {}
        self.attached = Order()
        self.leased = True

    def move(self, origin: int, incarnation: int, number: int, host: int) -> None:
        """Set the origin, the incarnation, the number and the host."""
        self.origin = origin
        self.incarnation = incarnation
        self.number = number
        self.host = host
        # Computed here and not for each event, where it would cost 2 % of each transition.
        self.place = origin | host << 8


class Job:
    """One job. Times are cluster time in microseconds.

    `rank` is its priority in the beanstalk protocol: lower is sooner. `ttr_us` is 0 if reservations
    do not time out. `due_us` is the end of the delay or of the TTR, or the time at which a policy
    deletes the job, 0 for none. `order` is the position among the buried jobs; of a reserved job,
    the time at which its TTR began; of a delayed job that a policy deletes at `due_us`, the end of
    its delay, negated.
    `holder` is the session that reserved it; None also if that session has no leases. `ready_us`
    and `reserved_us` are the times at which it last became ready and was last reserved, NO_TIME if
    never; a touch changes neither. `ext` is the extension, which few jobs have.

    An instance fills its size class of the allocator: one more slot costs 16 bytes per job.
    """

    __slots__ = (
        "body",
        "buries",
        "created_us",
        "delay_us",
        "due_us",
        "ext",
        "holder",
        "id",
        "kicks",
        "order",
        "rank",
        "ready_us",
        "releases",
        "reserved_us",
        "reserves",
        "state",
        "timeouts",
        "ttr_us",
        "tube",
    )

    def __init__(
        self,
        job_id: int,
        tube: "Tube",
        rank: int,
        delay_us: int,
        ttr_us: int,
        body: bytes,
        created_us: int,
    ) -> None:
        self.id = job_id
        self.tube = tube
        self.rank = rank
        self.delay_us = delay_us
        self.ttr_us = ttr_us
        self.body = body
        self.created_us = created_us
        self.state = GONE
        self.due_us = 0
        self.order = 0
        self.ready_us = NO_TIME
        self.reserved_us = NO_TIME
        self.holder: Holder | None = None
        self.ext: Extension | None = None
        self.reserves = 0
        self.timeouts = 0
        self.releases = 0
        self.buries = 0
        self.kicks = 0


def outcome(job: Job) -> int:
    """Return DONE or FAILED if a job has ended for clients that wait for its end, else GONE.

    A buried job of beanstalk has failed. Jobs of protocols that know no burial are only buried by
    administrators, and can still be done.
    """
    if job.state == BURIED and job.ext is None:
        return FAILED
    return job.state if job.state in (DONE, FAILED) else GONE


class Tube:
    """A named queue: its ready, delayed and buried jobs in order, and its counters.

    `users` and `watchers` count sessions; the lines of waiting clients are the leader's.

    `serial` numbers all tubes ever created: a tube that is dropped and created again gets another.
    `number` is its low 32 bits, as events have room for; no tube lives while four billion others
    are created.
    `closed` is 0 for a tube that may give out jobs, else the reasons (PAUSED, RATE_SPENT).
    `body_bytes` is the total of all its jobs.
    `finished_count` counts the jobs that are done or failed. `limits` bound the number of its jobs
    when another is submitted with a rank before, at and after the middle, 0 for no limit.
    """

    __slots__ = (
        "body_bytes",
        "buried",
        "closed",
        "delayed",
        "delayed_count",
        "deletes",
        "finished_count",
        "jobs_total",
        "limits",
        "name",
        "number",
        "pause_s",
        "paused_until_us",
        "pauses",
        "ready",
        "ready_count",
        "reserved_count",
        "serial",
        "space",
        "urgent_count",
        "users",
        "watchers",
    )

    def __init__(self, name: bytes, serial: int, space: Space) -> None:
        self.name = name
        self.space = space
        self.serial = serial
        self.number = serial & U32_MAX
        self.closed = 0
        self.body_bytes = 0
        self.ready = Order()
        self.ready_count = 0
        self.urgent_count = 0
        self.reserved_count = 0
        self.delayed = Order()
        self.delayed_count = 0
        self.finished_count = 0
        self.limits = NO_LIMITS
        # A linked list: removing the first item of a plain dict is O(n) after many removals.
        self.buried: OrderedDict[int, Job] = OrderedDict()
        self.jobs_total = 0
        self.users = 0
        self.watchers = 0
        self.deletes = 0
        self.pauses = 0
        self.pause_s = 0
        self.paused_until_us = 0

    def is_idle(self) -> bool:
        """Whether nothing refers to the tube any more, so that it is to be dropped."""
        return not (self.space.sticky or self.is_used())

    def is_used(self) -> bool:
        """Whether the tube has a job, or a session uses or watches it."""
        return bool(
            self.users
            or self.watchers
            or self.ready_count
            or self.reserved_count
            or self.delayed_count
            or self.buried
            or self.finished_count
        )

    def jobs_count(self) -> int:
        """Return the number of its jobs in all states."""
        waiting = self.ready_count + self.delayed_count + len(self.buried)
        return waiting + self.reserved_count + self.finished_count

    def is_full(self, rank: int, more: int = 0) -> bool:
        """Whether the tube's limit for jobs of a rank is reached once `more` jobs are added."""
        high, normal, low = self.limits
        limit = normal
        if rank != RANK_NORMAL:
            limit = high if rank < RANK_NORMAL else low
        return 0 < limit <= self.ready_count + self.delayed_count + self.reserved_count + more

    def push_ready(self, job: Job) -> None:
        """Add a job to the ready order."""
        ext = job.ext
        self.ready.add(job.rank << ID_BITS | (job.id if ext is None else ext.sequence))

    def first_ready(self) -> int:
        """Return the key (rank, sequence) of the first ready job; 0 if there is none."""
        return self.ready.first() or 0

    def drop_ready(self, job: Job) -> None:
        """Remove a job from the ready order."""
        ext = job.ext
        self.ready.remove(job.rank << ID_BITS | (job.id if ext is None else ext.sequence))

    def push_delayed(self, job: Job) -> None:
        """Add a job to the delayed order."""
        self.delayed.add(job.due_us << ID_BITS | job.id)

    def first_delayed(self) -> int:
        """Return the id of the first delayed job, by (due time, id); 0 if there is none."""
        return (self.delayed.first() or 0) & ID_MASK

    def drop_delayed(self, job: Job) -> None:
        """Remove a job from the delayed order."""
        self.delayed.remove(job.due_us << ID_BITS | job.id)

    def first_buried(self) -> Job | None:
        """Return the job that was buried first; None if there is none."""
        return next(iter(self.buried.values())) if self.buried else None
