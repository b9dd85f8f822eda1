"""Size accounting of the machine: bytes of memory, which puts are charged for, and of an image.

The sizes are constants per object, so that every node computes the same: the decisions of `apply`
must not depend on an interpreter. They were measured as the growth of the process without bodies,
names and keys (CPython 3.11, glibc, 100,000 to 500,000 objects of each kind), and rounded up.
"""

from typing import Final

from beanpole.core.qless import sizes
from beanpole.core.state import MachineState

# A job without its body: 336 to 352 bytes when ready, 420 reserved, 466 buried, 488 delayed; more
# if it outlives the jobs with neighbouring ids (`core.jobs.store`).
JOB_BYTES: Final = 512
# A tube with a name of average length: 610. With one job, its heap adds about 100.
TUBE_BYTES: Final = 768
# A session that watches one tube: 514 bytes.
SESSION_BYTES: Final = 768
# Each tube that a session watches: 84 on average with a thousand of them.
WATCH_BYTES: Final = 96
# A deduplication key of 32 bytes and the id of its job: 153.
KEY_BYTES: Final = 192
# A host with the longest address without a zone, in both directions: 191.
HOST_BYTES: Final = 256
# An alias of 40 bytes for a name of 40, in both directions, its dict included: 474.
ALIAS_BYTES: Final = 640

# The same objects in an image. A job has 37 to 60 bytes of numbers beside its body, when the
# numbers are small.
JOB_IMAGE_BYTES: Final = 96
TUBE_IMAGE_BYTES: Final = 192
SESSION_IMAGE_BYTES: Final = 192
WATCH_IMAGE_BYTES: Final = 5
KEY_IMAGE_BYTES: Final = 80
HOST_IMAGE_BYTES: Final = 66
ALIAS_IMAGE_BYTES: Final = 400
# A policy with the longest names, and the queues for which it is cached.
POLICY_BYTES: Final = 2_048
# A note on a job: 300.
NOTE_BYTES: Final = 384
NOTE_IMAGE_BYTES: Final = 230
# The bucket of a queue with a delivery rate and a name of average length; with the longest name it
# takes 550 in an image.
BUCKET_BYTES: Final = 512
# A job that counts towards a user's quota: 37 among neighbouring ids that count, 254 alone.
COUNTED_BYTES: Final = 96
COUNTED_IMAGE_BYTES: Final = 66
# The usage record of a user with a name of average length.
USAGE_BYTES: Final = 256


def jobs_bytes(machine: MachineState) -> int:
    """Return the memory of all jobs; those of qless include their indexes."""
    queue = machine.queue
    return (
        queue.body_bytes + queue.extension_bytes + len(queue.jobs) * JOB_BYTES + machine.qless.bytes
    )


def jobs_count(machine: MachineState) -> int:
    """Return the number of jobs, templates of jobs included."""
    qless = machine.qless
    return len(machine.queue.jobs) + len(qless.by_id) + len(qless.recurring)


def beside_jobs_bytes(machine: MachineState) -> int:
    """Return the memory of everything but jobs."""
    return (
        len(machine.queue.tubes) * TUBE_BYTES
        + machine.sessions * SESSION_BYTES
        + machine.watches * WATCH_BYTES
        + machine.keys.count * KEY_BYTES
        + len(machine.hosts.names) * HOST_BYTES
        + len(machine.queue.aliases.queues) * ALIAS_BYTES
        + len(machine.queue.policies.rows) * POLICY_BYTES
        + len(machine.queue.policies.notes) * NOTE_BYTES
        + machine.equal_puts.count * KEY_BYTES
        + len(machine.queue.rates.buckets) * BUCKET_BYTES
        + machine.users.bytes
        + machine.queue.quotas.counted * COUNTED_BYTES
        + len(machine.queue.quotas.usages) * USAGE_BYTES
        + sizes.beside_jobs(machine.qless)
    )


def memory_bytes(machine: MachineState) -> int:
    """Return the bytes that count against `queue_bytes_max`."""
    return jobs_bytes(machine) + beside_jobs_bytes(machine)


def image_bytes(machine: MachineState) -> int:
    """Return an estimate of the size of an image, which errs on the high side."""
    queue = machine.queue
    return (
        queue.body_bytes
        + queue.extension_bytes
        + len(queue.jobs) * JOB_IMAGE_BYTES
        + len(queue.tubes) * TUBE_IMAGE_BYTES
        + machine.sessions * SESSION_IMAGE_BYTES
        + machine.watches * WATCH_IMAGE_BYTES
        + machine.keys.count * KEY_IMAGE_BYTES
        + len(machine.hosts.names) * HOST_IMAGE_BYTES
        + len(queue.aliases.queues) * ALIAS_IMAGE_BYTES
        + len(queue.policies.rows) * POLICY_BYTES
        + len(queue.policies.notes) * NOTE_IMAGE_BYTES
        + machine.equal_puts.count * KEY_IMAGE_BYTES
        + len(queue.rates.buckets) * BUCKET_BYTES
        + machine.users.bytes
        + queue.quotas.counted * COUNTED_IMAGE_BYTES
        + machine.qless.bytes  # an upper bound: an image omits derived data
        + sizes.beside_jobs(machine.qless)
    )
