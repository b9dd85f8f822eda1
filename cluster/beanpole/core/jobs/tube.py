"""One tube: its ready, delayed and buried jobs in order, and its counters.

A tube keeps order and counts only. Which transition happens when, and what else it touches
(timers, sessions, totals), is in `core.jobs.queue`.
"""

from collections import OrderedDict
from typing import Final

from beanpole.constants import U32_MAX
from beanpole.core.jobs.job import Job
from beanpole.core.jobs.order import Order

# Ready order is (priority, id), delayed order (due time, id). One integer holds both, because
# comparing two integers is several times cheaper than comparing two tuples, and it takes less
# memory: id < 2**53 < 2**56.
ID_BITS: Final = 56
ID_MASK: Final = (1 << ID_BITS) - 1


class Tube:
    """A named queue. `users` and `watchers` count sessions; `waiting` lines are the leader's.

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

    def push_ready(self, job: Job) -> None:
        """Put a job into the ready order."""
        self.ready.add(job.priority << ID_BITS | job.id)

    def first_ready(self) -> int:
        """The key (priority, id) of the first ready job; 0 if there is none."""
        return self.ready.first() or 0

    def drop_ready(self, job: Job) -> None:
        """Take a job out of the ready order."""
        self.ready.remove(job.priority << ID_BITS | job.id)

    def push_delayed(self, job: Job) -> None:
        """Put a job into the delayed order."""
        self.delayed.add(job.due_us << ID_BITS | job.id)

    def first_delayed(self) -> int:
        """The id of the delayed job that is due first, by (due time, id); 0 if there is none."""
        return (self.delayed.first() or 0) & ID_MASK

    def drop_delayed(self, job: Job) -> None:
        """Take a job out of the delayed order."""
        self.delayed.remove(job.due_us << ID_BITS | job.id)
