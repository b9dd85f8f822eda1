"""The optional object of a job with the fields that only some protocols need.

This module holds the fields and their size. The transitions that change them are in
`core.jobs.queue`, the permission to do so in `core.operations.extended`. A job of the beanstalk
protocol has no extension: it pays only one empty slot, and one test in each transition.
"""

from typing import Final

from beanpole.core.jobs.order import Order
from beanpole.core.jobs.spaces import Space

# Without its strings: the object, its numbers, and its entries among TTLs and external ids.
# Measured as the growth of the process with 200,000 jobs: 65 bytes without these entries, 217 with
# an external id; a job that moved to the end of its rank has an entry in one more dict.
EXTENSION_BYTES: Final = 384
# A session that is attached to a job: an entry in the job's dict, which takes 232 bytes with the
# first entry, and one in the session's order.
ATTACHMENT_BYTES: Final = 288
# Most jobs have no client: they share this dict, which is never changed.
_NOBODY: Final[dict[int, Order]] = {}


class Extension:
    """The rare fields of a job. Times are cluster time in microseconds.

    `home` is the space whose session created the job, and in which its `external_id` is found; the
    job's queue is of another space if that queue has an alias in `home`. `sequence` orders the job
    among those of its rank: its id, or a later number of the same counter. `external_id` is its id
    in its protocol, empty for none. `expires_us` is the end of its TTL, at which it is deleted in
    any state, 0 for never. `attempts_max` and `failures_max` bound its reservations and its
    failures, 0 for no bound. `result` is set when the job ends. `extra` is opaque to all but its
    protocol.

    `clients` maps the serials of the sessions that are attached to the job to the ids of all jobs
    that the session is attached to. A job that is not in `background` lives only as long as it has
    a client.
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
        """Return the memory of the extension, for the cluster's limit of bytes."""
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
        """Remove all clients of the job with this id; returns how many it had."""
        clients, self.clients = self.clients, _NOBODY
        for attached in clients.values():
            attached.remove(job_id)
        return len(clients)

    @property
    def is_abandoned(self) -> bool:
        """Whether the job has lost its last client and was never submitted in background."""
        return not self.background and not self.clients
