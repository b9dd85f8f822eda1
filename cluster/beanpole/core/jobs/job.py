"""The records of a job, of the tube that it is in, and of what holds it. They know each other.

A tube keeps order and counts only. How jobs move between states, and what else that touches
(timers, totals), is in `core.jobs.queue`; what else a session is, in `core.sessions`.
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
# Since machine version 3, of jobs with a TTL: they keep their result until it ends.
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

# Why a tube is no source of jobs: a bit for each.
PAUSED: Final = 1
RATE_SPENT: Final = 2

# The limits of a queue: of jobs with a rank before the middle of the scale, in it, and behind it.
NO_LIMITS: Final = (0, 0, 0)


class Holder:
    """What may hold jobs. Events name it by its protocol, its origin and its number there.

    `host` is the number of the client's host (`core.hosts`), 0 if it is not known; `place` is the
    origin and the host as records of events have them. `serial` is its own for as long as it lives.
    `reserved` has its jobs by their ids, in the order in which they were reserved. `attached` has
    the ids of the jobs of which it is a client: it wants to hear of their ends. If it is `leased`,
    a job that it reserves belongs to it, whatever the queue; if not, to nobody.
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
        """Give it another number, at an origin and with a host."""
        self.origin = origin
        self.incarnation = incarnation
        self.number = number
        self.host = host
        # Here and not with each event, which would make each transition 2 % dearer.
        self.place = origin | host << 8


class Job:
    """One job. Times are cluster time in microseconds.

    `rank` is its priority in the beanstalk protocol: lower is sooner. `ttr_us` is 0 if a
    reservation has no end. `due_us` is the end of the delay or of the TTR, 0 when the job has
    neither; also when a policy deletes it. `order` is the place among the buried jobs; of a
    reserved job it is when its TTR began; of a delayed one that a policy deletes at `due_us`, it is
    the end of its delay, negative.
    `holder` is the session that reserved it; None also if that session has no leases. `ready_us`
    and `reserved_us` are when it last became ready and was last reserved, NO_TIME if never; a touch
    moves neither. `ext` is what few jobs have.

    An instance fills its size class of the allocator: one more slot costs 16 bytes a job.
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


class Tube:
    """A named queue: its ready, delayed and buried jobs in order, and its counters.

    `users` and `watchers` count sessions; `waiting` lines are the leader's.

    `serial` counts the tubes that there were: one that vanished and came again has another. What
    events have room for is `number`. No tube is as old as four billion tubes.
    `closed` is 0 for a tube that may give out jobs, else why not (PAUSED, RATE_SPENT).
    `body_bytes` is of all its jobs.
    `finished_count` is of the jobs that are done or failed. `limits` are how many jobs it may have
    for one more to be submitted with a rank above, in and below the middle, 0 for no limit.
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
        # A linked order: taking from the front of a plain dict is O(n) after many removals.
        self.buried: OrderedDict[int, Job] = OrderedDict()
        self.jobs_total = 0
        self.users = 0
        self.watchers = 0
        self.deletes = 0
        self.pauses = 0
        self.pause_s = 0
        self.paused_until_us = 0

    def is_idle(self) -> bool:
        """Whether nothing refers to the tube any more, so that it vanishes."""
        return not (self.space.sticky or self.is_used())

    def is_used(self) -> bool:
        """Whether a job is there, or a session names it."""
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
        """How many jobs it has, whatever their state."""
        waiting = self.ready_count + self.delayed_count + len(self.buried)
        return waiting + self.reserved_count + self.finished_count

    def is_full(self, rank: int) -> bool:
        """Whether the tube's limit for jobs of a rank is reached."""
        high, normal, low = self.limits
        limit = normal
        if rank != RANK_NORMAL:
            limit = high if rank < RANK_NORMAL else low
        return 0 < limit <= self.ready_count + self.delayed_count + self.reserved_count

    def push_ready(self, job: "Job") -> None:
        """Put a job into the ready order."""
        ext = job.ext
        self.ready.add(job.rank << ID_BITS | (job.id if ext is None else ext.sequence))

    def first_ready(self) -> int:
        """The key (rank, sequence) of the first ready job; 0 if there is none."""
        return self.ready.first() or 0

    def drop_ready(self, job: "Job") -> None:
        """Take a job out of the ready order."""
        ext = job.ext
        self.ready.remove(job.rank << ID_BITS | (job.id if ext is None else ext.sequence))

    def push_delayed(self, job: "Job") -> None:
        """Put a job into the delayed order."""
        self.delayed.add(job.due_us << ID_BITS | job.id)

    def first_delayed(self) -> int:
        """The id of the delayed job that is due first, by (due time, id); 0 if there is none."""
        return (self.delayed.first() or 0) & ID_MASK

    def drop_delayed(self, job: "Job") -> None:
        """Take a job out of the delayed order."""
        self.delayed.remove(job.due_us << ID_BITS | job.id)
