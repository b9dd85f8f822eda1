"""The fields that only the jobs of some protocols have: one optional object of a job.

Belongs here: the fields, and what they take. When they change is in `core.jobs.queue`, which
session may ask for it in `core.operations.extended`. A job of the beanstalk protocol has none, so
that it pays with one empty slot and one test in each transition.
"""

from typing import Final

# Beside its strings: the object, its numbers, and its places among TTLs and external ids. Measured
# as the growth of the process with 200,000 jobs: 65 bytes without either, 217 beside an external
# id; a job that moved to the end of its rank has a place in one more dict.
EXTENSION_BYTES: Final = 384


class Extension:
    """The rare fields of a job. Times are cluster time in microseconds.

    `sequence` is the job's place among those of its rank: its id, or a later number of the same
    counter. `external_id` is how its protocol calls it, empty for none. `expires_us` is when it is
    forgotten whatever its state, 0 for never. `attempts_max` and `failures_max` are bounds of its
    reservations and of its failures, 0 for none. `result` is what the job ended with.
    """

    __slots__ = (
        "attempts_max",
        "expires_us",
        "external_id",
        "failures",
        "failures_max",
        "progress",
        "result",
        "sequence",
    )

    def __init__(
        self,
        sequence: int,
        external_id: bytes,
        expires_us: int,
        attempts_max: int,
        failures_max: int,
    ) -> None:
        self.sequence = sequence
        self.external_id = external_id
        self.expires_us = expires_us
        self.attempts_max = attempts_max
        self.failures_max = failures_max
        self.failures = 0
        self.progress = b""
        self.result = b""

    def memory_bytes(self) -> int:
        """Return what it takes, for the limit of the cluster's bytes."""
        return EXTENSION_BYTES + len(self.external_id) + len(self.progress) + len(self.result)
