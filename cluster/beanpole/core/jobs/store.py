"""All jobs by their ids, in small lists, so that no put waits for the rebuild of a large table.

A dict that is filled at one end and emptied at the other is rebuilt from time to time. With a
million jobs that took 50 ms at every 400,000th put, at the same entry of the log on every node; a
dict of lists has a 64th of the entries. Transitions are in `core.jobs.queue`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from beanpole.core.jobs.job import Job

# Neighbouring ids share a list with a slot for each. Larger lists would keep more empty slots where
# a few jobs outlive their neighbours: about 700 bytes for each job that is left alone.
SHARD_BITS: Final = 6
SHARD_JOBS: Final = 1 << SHARD_BITS
PLACE_MASK: Final = SHARD_JOBS - 1
# A range of more shard numbers than SPARSE_MIN, and than SPARSE times the existing shards, is
# searched by listing the existing shards, not by trying each number.
SPARSE_MIN: Final = 4096
SPARSE: Final = 8


class Shard:
    """The jobs whose ids differ only in the low bits."""

    __slots__ = ("count", "places")

    def __init__(self) -> None:
        self.places: list[Job | None] = [None] * SHARD_JOBS
        self.count = 0


class Jobs:
    """Jobs by their ids. They are added in the order of their ids."""

    __slots__ = ("_count", "_shards")

    def __init__(self) -> None:
        # In the order of ids: only the newest shard can be removed and added again.
        self._shards: dict[int, Shard] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, job_id: int) -> Job:
        job = self.get(job_id)
        assert job is not None, f"there is no job {job_id}"
        return job

    def get(self, job_id: int) -> Job | None:
        """Return the job with this id; None if there is none."""
        shard = self._shards.get(job_id >> SHARD_BITS)
        return None if shard is None else shard.places[job_id & PLACE_MASK]

    def values(self) -> Iterator[Job]:
        """Yield the jobs in the order of ids; no job may be added or removed meanwhile."""
        for shard in self._shards.values():
            for job in shard.places:
                if job is not None:
                    yield job

    def add(self, job: Job) -> None:
        """Add a job whose id is above all that were added before."""
        number = job.id >> SHARD_BITS
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = Shard()
        shard.places[job.id & PLACE_MASK] = job
        shard.count += 1
        self._count += 1

    def remove(self, job_id: int) -> None:
        """Remove an existing job."""
        number = job_id >> SHARD_BITS
        shard = self._shards[number]
        shard.places[job_id & PLACE_MASK] = None
        shard.count -= 1
        self._count -= 1
        if not shard.count:
            del self._shards[number]

    def last_id(self) -> int:
        """Return the highest id; 0 if there are no jobs."""
        for shard in reversed(self._shards.values()):
            return max(job.id for job in shard.places if job is not None)
        return 0

    def ids_and_gaps(self) -> Iterator[int]:
        """Return an iterator over the present ids in order, and some neighbours without a job.

        Jobs may be added and removed meanwhile: the id of a removed job is still yielded, that of a
        new job is not.
        """
        last_id = self.last_id()
        numbers = list(reversed(self._shards))
        return _ids(numbers, last_id)

    def ids_behind(self, after_id: int) -> Iterator[int]:
        """Yield the ids above a given one likewise, without listing all shards first if possible.

        Where there are few jobs among many ids, all shards are listed first: 20 ms for 50 million
        jobs. Elsewhere every shard number is tried, and a missing shard yields one id.
        """
        last_id = self.last_id()
        first, end = (after_id + 1) >> SHARD_BITS, (last_id >> SHARD_BITS) + 1
        numbers: Iterable[int] = range(first, end)
        if end - first > SPARSE_MIN and end - first > SPARSE * len(self._shards):
            numbers = [number for number in self._shards if number >= first]
        for number in numbers:
            start = max(after_id + 1, number << SHARD_BITS)
            if number not in self._shards:
                yield start
                continue
            yield from range(start, min((number + 1) << SHARD_BITS, last_id + 1))


def _ids(numbers: list[int], last_id: int) -> Iterator[int]:
    """Yield the ids of shards, from the end of a list that is consumed meanwhile."""
    while numbers:
        first = numbers.pop() << SHARD_BITS
        yield from range(first, min(first + SHARD_JOBS, last_id + 1))
