"""The fields that only the jobs of some protocols have: one optional object of a job.

Belongs here: the fields, and what they take. When they change is in `core.jobs.queue`, which
session may ask for it in `core.operations.extended`. A job of the beanstalk protocol has none, so
that it pays with one empty slot and one test in each transition.
"""

from typing import Final

from beanpole.core.jobs.order import Order
from beanpole.core.jobs.spaces import Space

# Beside its strings: the object, its numbers, and its places among TTLs and external ids. Measured
# as the growth of the process with 200,000 jobs: 65 bytes without either, 217 beside an external
# id; a job that moved to the end of its rank has a place in one more dict.
EXTENSION_BYTES: Final = 384
# A session that is attached to a job: a place in the job's dict, which takes 232 bytes with the
# first, and one in the session's order.
ATTACHMENT_BYTES: Final = 288
# No job has a client, as a rule: they share this, which is never changed.
_NOBODY: Final[dict[int, Order]] = {}


class Extension:
    """The rare fields of a job. Times are cluster time in microseconds.

    `home` is the space whose session made the job, and in which its `external_id` leads to it; its
    queue is of another one if that has an alias there. `sequence` is the job's place among those of
    its rank: its id, or a later number of the same counter. `external_id` is how its protocol calls
    it, empty for none. `expires_us` is when it is forgotten whatever its state, 0 for never.
    `attempts_max` and `failures_max` are bounds of its reservations and of its failures, 0 for
    none. `result` is what the job ended with. `extra` is what only its protocol reads.

    `clients` has the sessions that are attached to the job, by their serials, each with the ids of
    all jobs that it is attached to. If the job is not one in `background`, it lives only as long as
    it has a client.
    """

    __slots__ = (
        "attempts_max",
        "background",
        "clients",
        "expires_us",
        "external_id",
        "extra",
        "failures",
        "failures_max",
        "home",
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
        home: Space,
    ) -> None:
        self.home = home
        self.sequence = sequence
        self.external_id = external_id
        self.expires_us = expires_us
        self.attempts_max = attempts_max
        self.failures_max = failures_max
        self.failures = 0
        self.progress = b""
        self.result = b""
        self.extra = b""
        self.background = True
        self.clients: dict[int, Order] = _NOBODY

    def memory_bytes(self) -> int:
        """Return what it takes, for the limit of the cluster's bytes."""
        return (
            EXTENSION_BYTES
            + len(self.external_id)
            + len(self.progress)
            + len(self.result)
            + len(self.extra)
            + len(self.clients) * ATTACHMENT_BYTES
        )

    def attach(self, serial: int, attached: Order) -> None:
        """Add a client: its session's serial, and the order of the ids of its jobs."""
        if self.clients is _NOBODY:
            self.clients = {}
        self.clients[serial] = attached

    def detach_all(self, job_id: int) -> int:
        """Leave the job of this id without clients; returns how many it had."""
        clients, self.clients = self.clients, _NOBODY
        for attached in clients.values():
            attached.remove(job_id)
        return len(clients)

    @property
    def is_abandoned(self) -> bool:
        """Whether the job has lost its last client and was never submitted in background."""
        return not self.background and not self.clients
