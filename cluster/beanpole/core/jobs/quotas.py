"""Quotas of users: the number and the bytes of the existing jobs that each user has put.

This module holds the counts, and the users of counted jobs. The limits are in `core.users`; puts
are checked in `core.operations.policy_puts`.

A job counts from its put until its end, in all states, if its user had a quota when it was put. So
setting a quota later needs no scan of existing jobs, and a cluster without quotas has nothing to
count. Jobs and templates of qless record their user themselves, because their data may grow; the
users of other jobs are recorded here.
"""

from typing import Final

# Neighbouring ids share a dict, as in `core.jobs.store`: a single dict of a million jobs would from
# time to time be rebuilt in one step.
_SHARD_BITS: Final = 6


class Usage:
    """The usage and the quota of one user.

    Attributes:
        name: the user's name.
        jobs: the number of its counted jobs, templates of jobs included.
        bytes: the total size of their bodies.
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
        """Whether the user has a quota; if not, its new jobs are not counted."""
        return bool(self.jobs_max or self.bytes_max)

    def admits(self, size: int) -> bool:
        """Whether one more job fits into the quota, with a body of this size."""
        return not (0 < self.jobs_max <= self.jobs or 0 < self.bytes_max < self.bytes + size)

    def admits_growth(self, size: int) -> bool:
        """Whether a counted job may grow by this many bytes; it may always shrink."""
        return size <= 0 or not 0 < self.bytes_max < self.bytes + size


class Quotas:
    """All users that have a quota or counted jobs.

    Attributes:
        usages: usages by user names. It is empty in most clusters, so callers test it first.
        counted: the number of counted jobs.
    """

    __slots__ = ("_shards", "counted", "usages")

    def __init__(self) -> None:
        self.usages: dict[bytes, Usage] = {}
        self.counted = 0
        self._shards: dict[int, dict[int, Usage]] = {}

    def limit(self, name: bytes, jobs_max: int, bytes_max: int) -> None:
        """Set the quota of a user; 0 and 0 for none. Jobs that are counted stay counted."""
        usage = self.usages.get(name)
        if usage is None:
            if not (jobs_max or bytes_max):
                return
            usage = self.usages[name] = Usage(name)
        usage.jobs_max = jobs_max
        usage.bytes_max = bytes_max
        self._drop_if_idle(usage)

    def of_user(self, name: bytes) -> Usage | None:
        """Return the usage of a user that has a quota; None if it has none."""
        usage = self.usages.get(name)
        return usage if usage is not None and usage.is_limited else None

    def of_job(self, job_id: int) -> bytes:
        """Return the name of the user for whom a job is counted; empty if it is not counted."""
        shard = self._shards.get(job_id >> _SHARD_BITS)
        usage = None if shard is None else shard.get(job_id)
        return b"" if usage is None else usage.name

    def count(self, job_id: int, size: int, usage: Usage) -> None:
        """Count a job for a user."""
        number = job_id >> _SHARD_BITS
        shard = self._shards.get(number)
        if shard is None:
            shard = self._shards[number] = {}
        shard[job_id] = usage
        self.add(usage, 1, size)

    def in_image(self, name: bytes) -> Usage:
        """Return the usage for a job of an image; its user may be gone, or have no quota."""
        usage = self.usages.get(name)
        if usage is None:
            usage = self.usages[name] = Usage(name)
        return usage

    def forget(self, job_id: int, size: int) -> None:
        """Stop counting a job that has ended; it may be one that is not counted."""
        number = job_id >> _SHARD_BITS
        shard = self._shards.get(number)
        usage = None if shard is None else shard.pop(job_id, None)
        if usage is None:
            return
        if not shard:
            del self._shards[number]
        self.add(usage, -1, -size)

    def add(self, usage: Usage, jobs: int, size: int) -> None:
        """Add jobs and bytes of bodies to a user's usage; negative numbers subtract."""
        usage.jobs += jobs
        usage.bytes += size
        self.counted += jobs
        self._drop_if_idle(usage)

    def _drop_if_idle(self, usage: Usage) -> None:
        if not (usage.jobs or usage.is_limited):
            del self.usages[usage.name]
