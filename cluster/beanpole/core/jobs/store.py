"""All jobs by their ids, in small lists, so that no put has to wait until a large table is rebuilt.

A dict that is filled at one end and emptied at the other is built anew from time to time. With a
million jobs that was 50 ms at every 400,000th put, at the same entry of the log on every node; a
dict of lists has a 64th of the entries. Transitions are the queue's business.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from beanpole.core.jobs.job import Job

# Neighbouring ids share a list with a place for each. Larger ones keep more empty places where a
# few jobs outlive their neighbours: some 700 bytes for each that is left alone.
SHARD_BITS: Final = 6
SHARD_JOBS: Final = 1 << SHARD_BITS
PLACE_MASK: Final = SHARD_JOBS - 1
# From so many shards on, and so many for each that is there, those are listed and not tried.
SPARSE_MIN: Final = 4096
SPARSE: Final = 8


class Shard:
    """The jobs whose ids are the same but for the last bits."""

    __slots__ = ("count", "places")

    def __init__(self) -> None:
        self.places: list[Job | None] = [None] * SHARD_JOBS
        self.count = 0


class Jobs:
    """Jobs by their ids. They are added in the order of their ids."""

    __slots__ = ("_count", "_shards")

    def __init__(self) -> None:
        # In the order of ids: only the newest can go and come back.
        self._shards: dict[int, Shard] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, job_id: int) -> Job:
        job = self.get(job_id)
        assert job is not None, f"there is no job {job_id}"
        return job

    def get(self, job_id: int) -> Job | None:
        """Return a job; None if there is none of this id."""
        shard = self._shards.get(job_id >> SHARD_BITS)
        return None if shard is None else shard.places[job_id & PLACE_MASK]

    def values(self) -> Iterator[Job]:
        """The jobs in the order of their ids; nothing may be added or removed meanwhile."""
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
        """Remove a job that is there."""
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
        """The ids that are here now, in their order, and some of their neighbours.

        Jobs may be added and removed meanwhile: an id that has gone comes all the same, one that is
        new does not.
        """
        last_id = self.last_id()
        numbers = list(reversed(self._shards))
        return _ids(numbers, last_id)

    def ids_behind(self, after_id: int) -> Iterator[int]:
        """The same for the ids above one, and it begins at once, however many jobs there are.

        Where there are few jobs among many ids, all shards are listed first: 20 ms for 50 million
        jobs. Elsewhere each shard that is not there any more is looked for, and gives one id.
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
    """The ids of shards, from the end of a list that is freed on the way."""
    while numbers:
        first = numbers.pop() << SHARD_BITS
        yield from range(first, min(first + SHARD_JOBS, last_id + 1))
