"""Timers: an ordered set of (due time, job id).

A binary heap with lazy deletion would keep one stale entry for every job that was deleted before
its TTR ended: at 20,000 jobs a second and a TTR of a minute, a million. So times that are not near
lie in coarse buckets (a dict each, removal is O(1)), and only one bucket at a time is in a heap:
the first, once its interval has begun. Where more jobs are due in one bucket than a heap is made of
in one step, as at a full hour, the others lie in an order of their own. The layout is not
observable: the timers that are due, and their order, depend on the set alone.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from beanpole.core.jobs.order import Order

# 2**16 us = 65 ms per bucket: few enough buckets for long TTRs, few enough jobs in each.
BUCKET_SHIFT: Final = 16
# Timers of one bucket that become a heap in one step, which takes 2 ms. Only jobs that are delayed
# until the same moment are more: 100,000 reservations a second are 6,500 in a bucket.
HEAP_MAX: Final = 8_192
# A dict keeps its largest table when keys are removed, and one long job of a bucket would keep that
# of 1,300 short ones: 51 KB. A table of its size has 100 bytes for a job, and 232 at least.
SPARSE_BYTES: Final = 256


class Timers:
    """An ordered set of (due_us, job id); each id at most once."""

    __slots__ = ("_begun", "_buckets", "_heap", "_late", "_near", "_others", "_waiting")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, int]] = {}  # bucket -> {job id: due_us}
        self._others: dict[int, Order] = {}  # bucket -> the keys for which the dict has no room
        # The buckets' numbers. A heap would keep those of emptied buckets, up to a million with
        # delays of days, and drop them all in one step.
        self._waiting = Order()
        self._begun = -1  # buckets up to this one are in the heap
        self._heap: list[tuple[int, int]] = []
        self._near: dict[int, int] = {}  # job id -> due_us of the heap's entries that are not stale
        self._late = Order()  # the others of the bucket in the heap

    def __len__(self) -> int:
        ordered = len(self._late) + sum(map(len, self._others.values()))
        return len(self._near) + sum(map(len, self._buckets.values())) + ordered

    def add(self, due_us: int, job_id: int) -> None:
        """Add a job that is not in the set."""
        bucket = due_us >> BUCKET_SHIFT
        if bucket <= self._begun:
            self._near[job_id] = due_us
            heappush(self._heap, (due_us, job_id))
            return
        jobs = self._buckets.get(bucket)
        if jobs is None:
            self._buckets[bucket] = {job_id: due_us}
            self._waiting.add(bucket)
        elif len(jobs) < HEAP_MAX:
            jobs[job_id] = due_us
        else:
            self._others.setdefault(bucket, Order()).add((due_us, job_id))

    def remove(self, due_us: int, job_id: int) -> None:
        """Remove a job; it must have been added with this due time."""
        bucket = due_us >> BUCKET_SHIFT
        if bucket <= self._begun:
            if job_id in self._near:
                del self._near[job_id]  # its heap entry is stale now, and dropped within 65 ms
            else:
                self._late.remove((due_us, job_id))
            return
        jobs = self._buckets[bucket]
        if job_id in jobs:
            del jobs[job_id]
            left = len(jobs)
            # Looked at where half are gone, so that all copies together are as many as the jobs.
            if left and not left & (left - 1) and jobs.__sizeof__() > SPARSE_BYTES * (left + 1):
                self._buckets[bucket] = dict(jobs)
        else:
            others = self._others[bucket]
            others.remove((due_us, job_id))
            if not others:
                del self._others[bucket]
        if not jobs and bucket not in self._others:
            # With a TTR of days, empty buckets would stay for days, fifteen more each second.
            del self._buckets[bucket]
            self._waiting.remove(bucket)

    def pop(self, now_us: int) -> int:
        """Remove and return the first job due at `now_us`, by (due time, id); 0 if none is due."""
        while True:
            first = self._first()
            if first is not None:
                due_us, job_id = first
                if due_us > now_us:
                    return 0
                if job_id in self._near:
                    heappop(self._heap)
                    del self._near[job_id]
                else:
                    self._late.pop_first()
                return job_id
            if not self._begin_next(now_us):
                return 0

    def _first(self) -> tuple[int, int] | None:
        """The first timer of the bucket in the heap, and of those that were due before it."""
        heap = self._heap
        near = self._near
        while heap and near.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        late: tuple[int, int] | None = self._late.first()
        if heap and (late is None or heap[0] < late):
            return heap[0]
        return late

    def next_due_us(self, now_us: int) -> int | None:
        """Return the time at which to call `pop` again, or None if the set is empty.

        The time is exact within the bucket of `now_us`; beyond it, the start of the first bucket in
        use (so at most 65 ms too early, never too late).
        """
        while True:
            first = self._first()
            if first is not None:
                return first[0]
            if not self._begin_next(now_us):
                break
        bucket: int | None = self._waiting.first()
        return None if bucket is None else bucket << BUCKET_SHIFT

    def _begin_next(self, now_us: int) -> bool:
        """Move the first bucket into the heap if it has begun; called when the heap has none due.

        One bucket at a time: after a jump of the clock all buckets have begun, and moving them at
        once would be unbounded work.
        """
        bucket: int | None = self._waiting.first()
        if bucket is None or bucket > now_us >> BUCKET_SHIFT:
            return False
        # The heap's timers are due before every waiting bucket, so none is left.
        assert not self._near and not self._late, "the bucket before it is empty"
        self._waiting.pop_first()
        self._begun = bucket
        self._near = self._buckets.pop(bucket)
        self._heap = [(due_us, job_id) for job_id, due_us in self._near.items()]
        heapify(self._heap)
        self._late = self._others.pop(bucket, Order())
        return True
