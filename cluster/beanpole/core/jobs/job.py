"""The records of a job, of the tube that it is in, and of what holds it. They know each other.

A tube keeps order and counts only. How jobs move between states, and what else that touches
(timers, totals), is in `core.jobs.queue`; what else a session is, in `core.sessions`.
"""

from collections import OrderedDict
from typing import Final

from beanpole.constants import U32_MAX
from beanpole.core.jobs.order import Order
from beanpole.events import NO_TIME

READY: Final = 1
RESERVED: Final = 2
DELAYED: Final = 3
BURIED: Final = 4
GONE: Final = 0

STATE_NAMES: Final = {
    READY: b"ready",
    RESERVED: b"reserved",
    DELAYED: b"delayed",
    BURIED: b"buried",
}

# Ready order is (priority, id), delayed order (due time, id). One integer holds both, because
# comparing two integers is several times cheaper than comparing two tuples, and it takes less
# memory: id < 2**53 < 2**56.
ID_BITS: Final = 56
ID_MASK: Final = (1 << ID_BITS) - 1


class Holder:
    """What may hold jobs. Events name it by its protocol, its origin and its number there.

    `serial` is its own for as long as it lives. `reserved` has its jobs by their ids, in the order
    in which they were reserved.
    """

    __slots__ = ("incarnation", "number", "origin", "protocol", "reserved", "serial")

    def __init__(
        self, serial: int, protocol: int, origin: int, incarnation: int, number: int
    ) -> None:
        self.serial = serial
        self.protocol = protocol
        self.origin = origin
        self.incarnation = incarnation
        self.number = number
        self.reserved: dict[int, Job] = {}


class Job:
    """One job. Times are cluster time in microseconds.

    `due_us` is the end of the delay or of the TTR, 0 when the job has neither. `order` is the
    place among the buried jobs; of a reserved job it is when its TTR began. `holder` is the
    session that reserved it. `ready_us` and `reserved_us` are when it last became ready and was
    last reserved, NO_TIME if never; a touch moves neither.
    """

    __slots__ = (
        "body",
        "buries",
        "created_us",
        "delay_s",
        "due_us",
        "holder",
        "id",
        "kicks",
        "order",
        "priority",
        "ready_us",
        "releases",
        "reserved_us",
        "reserves",
        "state",
        "timeouts",
        "ttr_s",
        "tube",
    )

    def __init__(
        self,
        job_id: int,
        tube: "Tube",
        priority: int,
        delay_s: int,
        ttr_s: int,
        body: bytes,
        created_us: int,
    ) -> None:
        self.id = job_id
        self.tube = tube
        self.priority = priority
        self.delay_s = delay_s
        self.ttr_s = ttr_s
        self.body = body
        self.created_us = created_us
        self.state = GONE
        self.due_us = 0
        self.order = 0
        self.ready_us = NO_TIME
        self.reserved_us = NO_TIME
        self.holder: Holder | None = None
        self.reserves = 0
        self.timeouts = 0
        self.releases = 0
        self.buries = 0
        self.kicks = 0


class Tube:
    """A named queue: its ready, delayed and buried jobs in order, and its counters.

    `users` and `watchers` count sessions; `waiting` lines are the leader's.

    `serial` counts the tubes that there were: one that vanished and came again has another. What
    events have room for is `number`. Nobody has a tube that is four billion tubes old.
    """

    __slots__ = (
        "buried",
        "delayed",
        "delayed_count",
        "deletes",
        "jobs_total",
        "name",
        "number",
        "pause_s",
        "paused_until_us",
        "pauses",
        "ready",
        "ready_count",
        "reserved_count",
        "serial",
        "urgent_count",
        "users",
        "watchers",
    )

    def __init__(self, name: bytes, serial: int) -> None:
        self.name = name
        self.serial = serial
        self.number = serial & U32_MAX
        self.ready = Order()
        self.ready_count = 0
        self.urgent_count = 0
        self.reserved_count = 0
        self.delayed = Order()
        self.delayed_count = 0
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
        return not (
            self.users
            or self.watchers
            or self.ready_count
            or self.reserved_count
            or self.delayed_count
            or self.buried
        )

    def push_ready(self, job: "Job") -> None:
        """Put a job into the ready order."""
        self.ready.add(job.priority << ID_BITS | job.id)

    def first_ready(self) -> int:
        """The key (priority, id) of the first ready job; 0 if there is none."""
        return self.ready.first() or 0

    def drop_ready(self, job: "Job") -> None:
        """Take a job out of the ready order."""
        self.ready.remove(job.priority << ID_BITS | job.id)

    def push_delayed(self, job: "Job") -> None:
        """Put a job into the delayed order."""
        self.delayed.add(job.due_us << ID_BITS | job.id)

    def first_delayed(self) -> int:
        """The id of the delayed job that is due first, by (due time, id); 0 if there is none."""
        return (self.delayed.first() or 0) & ID_MASK

    def drop_delayed(self, job: "Job") -> None:
        """Take a job out of the delayed order."""
        self.delayed.remove(job.due_us << ID_BITS | job.id)
