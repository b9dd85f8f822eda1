"""When jobs are due: an ordered set of (due time, job id).

A binary heap with lazy deletion would keep one stale entry for every job that was deleted before
its TTR ended: at 20,000 jobs a second and a TTR of a minute, a million. So times that are not near
lie in coarse buckets (a dict each, removal is O(1)), and only the buckets that have begun are in a
heap. The layout never shows: what is due, and in which order, depends on the set alone.
"""

from heapq import heapify, heappop, heappush
from typing import Final

# 2**16 us = 65 ms a bucket: few enough buckets for long TTRs, few enough jobs in one.
BUCKET_SHIFT: Final = 16


class Timers:
    """An ordered set of (due_us, job id); each id at most once."""

    __slots__ = ("_begun", "_bucket_heap", "_buckets", "_heap", "_near")

    def __init__(self) -> None:
        self._buckets: dict[int, dict[int, int]] = {}  # bucket -> {job id: due_us}
        self._bucket_heap: list[int] = []
        self._begun = -1  # buckets up to this one are in the heap
        self._heap: list[tuple[int, int]] = []
        self._near: dict[int, int] = {}  # job id -> due_us of what is in the heap and still valid

    def __len__(self) -> int:
        return len(self._near) + sum(map(len, self._buckets.values()))

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
            heappush(self._bucket_heap, bucket)
        else:
            jobs[job_id] = due_us

    def remove(self, due_us: int, job_id: int) -> None:
        """Take a job out; it must have been added with this due time."""
        bucket = due_us >> BUCKET_SHIFT
        if bucket <= self._begun:
            del self._near[job_id]  # its heap entry is stale now, and gone within a bucket's time
        else:
            del self._buckets[bucket][job_id]

    def pop(self, now_us: int) -> int:
        """Take out the first job that is due at `now_us`, by (due time, id); 0 if there is none."""
        self._begin(now_us >> BUCKET_SHIFT)
        heap = self._heap
        near = self._near
        while heap and heap[0][0] <= now_us:
            due_us, job_id = heappop(heap)
            if near.get(job_id) == due_us:
                del near[job_id]
                return job_id
        return 0

    def next_due_us(self, now_us: int) -> int | None:
        """When `pop` is worth calling again, or None if nothing is in the set.

        Exact within the bucket of `now_us`; beyond it, the start of the first bucket in use (so
        at most 65 ms too early, never too late).
        """
        self._begin(now_us >> BUCKET_SHIFT)
        heap = self._heap
        while heap:
            if self._near.get(heap[0][1]) == heap[0][0]:
                return heap[0][0]
            heappop(heap)
        waiting = self._bucket_heap
        while waiting:
            if self._buckets[waiting[0]]:
                return waiting[0] << BUCKET_SHIFT
            del self._buckets[heappop(waiting)]
        return None

    def _begin(self, bucket: int) -> None:
        """Move all buckets up to `bucket` into the heap."""
        if bucket <= self._begun:
            return
        self._begun = bucket
        waiting = self._bucket_heap
        if not waiting or waiting[0] > bucket:
            return
        near = self._near
        heap = [entry for entry in self._heap if near.get(entry[1]) == entry[0]]
        while waiting and waiting[0] <= bucket:
            jobs = self._buckets.pop(heappop(waiting))
            near.update(jobs)
            heap.extend((due_us, job_id) for job_id, due_us in jobs.items())
        heapify(heap)
        self._heap = heap
