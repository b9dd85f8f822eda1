"""Jobs of qless by their numbers, in small dicts, so that a copy need not list them all at once.

Numbers come from the counter of all jobs of the cluster, so they have gaps. The index of jobs by
jid, and the other indexes, are in `core.qless.tables`.
"""

from collections.abc import Iterator
from typing import Final

from beanpole.core.qless.job import QlessJob

# Neighbouring numbers share a dict: a million jobs are 4,000 of them, listed in 50 us.
SHARD_BITS: Final = 8


class JobsById:
    """Jobs by their numbers. They are added in the order of numbers."""

    __slots__ = ("_count", "_shards")

    def __init__(self) -> None:
        self._shards: dict[int, dict[int, QlessJob]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def get(self, number: int) -> QlessJob | None:
        """Return the job with this number; None if there is none."""
        shard = self._shards.get(number >> SHARD_BITS)
        return None if shard is None else shard.get(number)

    def add(self, job: QlessJob) -> None:
        """Add a job whose number is above all that were added before."""
        place = job.id >> SHARD_BITS
        shard = self._shards.get(place)
        if shard is None:
            shard = self._shards[place] = {}
        shard[job.id] = job
        self._count += 1

    def remove(self, number: int) -> None:
        """Remove an existing job."""
        place = number >> SHARD_BITS
        shard = self._shards[place]
        del shard[number]
        self._count -= 1
        if not shard:
            del self._shards[place]

    def values(self) -> Iterator[QlessJob]:
        """Yield the jobs in the order of numbers; no job may be added or removed meanwhile."""
        for shard in self._shards.values():
            yield from shard.values()

    def last(self) -> int:
        """Return the highest number; 0 if there are no jobs."""
        for shard in reversed(self._shards.values()):
            return next(reversed(shard))
        return 0

    def shards(self) -> list[int]:
        """Return the present shards, the first at the end, from which a copy pops them."""
        return list(reversed(self._shards))

    def numbers(self, shard: int) -> list[int]:
        """Return the numbers of a shard, which may have been removed meanwhile."""
        return list(self._shards.get(shard, ()))


def shard_of(number: int) -> int:
    """Return the shard of a number."""
    return number >> SHARD_BITS
