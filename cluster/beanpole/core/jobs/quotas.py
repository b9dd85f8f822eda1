"""Quotas of users: the jobs that a user has put and that exist, and how many they may be.

Belongs here: the counts, and whose a counted job is. Which limits a user has is in `core.users`;
when a put asks for room, in `core.operations.ruled`.

A job counts from its put until it is gone, whatever becomes of it meanwhile, if its user had a
quota when it was put. So a quota that is set later needs no look at the jobs that are there, and a
cluster without quotas has nothing to count. Jobs and templates of qless know themselves for whom
they count, since their data may grow; of the others it stands here.
"""

from typing import Final

# Neighbouring ids share a dict, as in `core.jobs.store`: one of a million jobs would be built anew
# in one step from time to time.
_SHARD_BITS: Final = 6


class Usage:
    """What one user has.

    Attributes:
        name: the user's.
        jobs: how many of its jobs count, templates of jobs included.
        bytes: of their bodies.
        jobs_max: 0 for no limit.
        bytes_max: 0 for no limit.
    """

    __slots__ = ("bytes", "bytes_max", "jobs", "jobs_max", "name")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.jobs = 0
        self.bytes = 0
        self.jobs_max = 0
        self.bytes_max = 0

    @property
    def is_limited(self) -> bool:
        """Whether the user has a quota; if not, its new jobs do not count."""
        return bool(self.jobs_max or self.bytes_max)

    def admits(self, size: int) -> bool:
        """Whether one more job fits, with a body of this size."""
        return not (0 < self.jobs_max <= self.jobs or 0 < self.bytes_max < self.bytes + size)

    def admits_growth(self, size: int) -> bool:
        """Whether a job that counts may have so many bytes more; fewer always fit."""
        return size <= 0 or not 0 < self.bytes_max < self.bytes + size


class Quotas:
    """All users that have a quota, or jobs that count.

    Attributes:
        usages: by the names of users. Empty in most clusters, which is asked first.
        counted: how many jobs count.
    """

    __slots__ = ("_shards", "counted", "usages")

    def __init__(self) -> None:
        self.usages: dict[bytes, Usage] = {}
        self.counted = 0
        self._shards: dict[int, dict[int, Usage]] = {}

    def limit(self, name: bytes, jobs_max: int, bytes_max: int) -> None:
        """Let a user have this quota from here on; 0 and 0 for none. What counts goes on to."""
        usage = self.usages.get(name)
        if usage is None:
            if not (jobs_max or bytes_max):
                return
            usage = self.usages[name] = Usage(name)
        usage.jobs_max = jobs_max
        usage.bytes_max = bytes_max
        self._drop_if_idle(usage)

    def of_user(self, name: bytes) -> Usage | None:
        """What a user has that has a quota; None if it has none."""
        usage = self.usages.get(name)
        return usage if usage is not None and usage.is_limited else None

    def of_job(self, job_id: int) -> bytes:
        """The name of the user for whom a job counts; empty if it counts for none."""
        shard = self._shards.get(job_id >> _SHARD_BITS)
        usage = None if shard is None else shard.get(job_id)
        return b"" if usage is None else usage.name

    def count(self, job_id: int, size: int, usage: Usage) -> None:
        """A job counts from here on."""
        number = job_id >> _SHARD_BITS
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = {}
        shard[job_id] = usage
        self.add(usage, 1, size)

    def in_image(self, name: bytes) -> Usage:
        """Return for whom a job of an image counts: a user that may be gone, or have no quota."""
        usage = self.usages.get(name)
        if usage is None:
            usage = self.usages[name] = Usage(name)
        return usage

    def forget(self, job_id: int, size: int) -> None:
        """A job is gone, which may be one that counts."""
        number = job_id >> _SHARD_BITS
        shard = self._shards.get(number)
        usage = None if shard is None else shard.pop(job_id, None)
        if usage is None:
            return
        if not shard:
            del self._shards[number]
        self.add(usage, -1, -size)

    def add(self, usage: Usage, jobs: int, size: int) -> None:
        """So many more jobs, and bytes of bodies, count for a user, or fewer if below 0."""
        usage.jobs += jobs
        usage.bytes += size
        self.counted += jobs
        self._drop_if_idle(usage)

    def _drop_if_idle(self, usage: Usage) -> None:
        if not (usage.jobs or usage.is_limited):
            del self.usages[usage.name]
