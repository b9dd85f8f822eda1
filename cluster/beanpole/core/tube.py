"""One tube: its ready, delayed and buried jobs in order, and its counters.

A tube keeps order and counts only. Which transition happens when, and what else it touches
(timers, sessions, totals), is in `core.queue`.
"""

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import Final

from beanpole.core.job import DELAYED, READY, Job
from beanpole.core.jobs import Jobs

# Ready order is (priority, id). One integer holds both, because comparing two integers is several
# times cheaper than comparing two tuples, and it takes less memory: id < 2**53 < 2**56.
ID_BITS: Final = 56
ID_MASK: Final = (1 << ID_BITS) - 1
# Lazily deleted entries are swept when they outnumber the live ones by more than this.
STALE_SLACK: Final = 64


class Tube:
    """A named queue. `users` and `watchers` count sessions; `waiting` lines are the leader's.

    `number` stands for the name in events. A tube that vanished and came again has another one.
    """

    __slots__ = (
        "buried",
        "delayed_count",
        "delayed_heap",
        "deletes",
        "jobs_total",
        "name",
        "number",
        "pause_s",
        "paused_until_us",
        "pauses",
        "ready_count",
        "ready_heap",
        "reserved_count",
        "urgent_count",
        "users",
        "watchers",
    )

    def __init__(self, name: bytes, number: int) -> None:
        self.name = name
        self.number = number
        self.ready_heap: list[int] = []
        self.ready_count = 0
        self.urgent_count = 0
        self.reserved_count = 0
        self.delayed_heap: list[tuple[int, int]] = []
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
        """Put a job, whose state is READY already, into the ready order."""
        heappush(self.ready_heap, job.priority << ID_BITS | job.id)

    def first_ready(self, jobs: Jobs) -> int:
        """The key (priority, id) of the first ready job; 0 if there is none."""
        heap = self.ready_heap
        while heap:
            key = heap[0]
            job = jobs.get(key & ID_MASK)
            if (
                job is not None
                and job.state == READY
                and job.priority == key >> ID_BITS
                and job.tube is self
            ):
                return key
            heappop(heap)
        return 0

    def drop_ready(self, gone: Job, jobs: Jobs) -> None:
        """Forget a job that was in the ready order; its state is another already.

        Most jobs leave from the front, which is cheap to tidy at once. Entries elsewhere go stale,
        and the order is rebuilt once most are (amortized O(1)).
        """
        if self.ready_heap[0] == gone.priority << ID_BITS | gone.id:
            heappop(self.ready_heap)
        if len(self.ready_heap) > 2 * self.ready_count + STALE_SLACK:
            live = {
                key
                for key in self.ready_heap
                if (job := jobs.get(key & ID_MASK)) is not None
                and job.state == READY
                and job.priority == key >> ID_BITS
            }
            self.ready_heap = list(live)
            heapify(self.ready_heap)

    def first_delayed(self, jobs: Jobs) -> Job | None:
        """The delayed job that is due first, by (due time, id)."""
        heap = self.delayed_heap
        while heap:
            due_us, job_id = heap[0]
            job = jobs.get(job_id)
            if job is not None and job.state == DELAYED and job.due_us == due_us:
                return job
            heappop(heap)
        return None

    def drop_delayed(self, gone: Job, jobs: Jobs) -> None:
        """Forget a job that was in the delayed order, as `drop_ready` does."""
        if self.delayed_heap[0] == (gone.due_us, gone.id):
            heappop(self.delayed_heap)
        if len(self.delayed_heap) > 2 * self.delayed_count + STALE_SLACK:
            live = {
                entry
                for entry in self.delayed_heap
                if (job := jobs.get(entry[1])) is not None
                and job.state == DELAYED
                and job.due_us == entry[0]
            }
            self.delayed_heap = list(live)
            heapify(self.delayed_heap)
