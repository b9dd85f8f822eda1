"""Workq's words for jobs and queues: their fields as commands have them, and as clients see them.

Belongs here: the arithmetic between the two. Who asks and when is in `connection` and `inspection`.
"""

from typing import Final

from beanpole import commands as c
from beanpole.core.jobs.job import DONE, FAILED, RESERVED, Job
from beanpole.core.jobs.spaces import RANK_NORMAL, SPACES
from beanpole.events import WORKQ
from beanpole.protocol.workq import replies

PREFIX: Final = SPACES[WORKQ].prefix
MS_US: Final = 1000

# --- states, by the numbers that clients see -----------------------------------------------------
STATE_NEW: Final = 0  # never leased; a scheduled job, too
STATE_COMPLETED: Final = 1
STATE_FAILED: Final = 2
STATE_PENDING: Final = 3  # to be leased once more
STATE_LEASED: Final = 4


def add_command(
    session: int,
    job: bytes,
    name: bytes,
    delay_us: int,
    ttr_ms: int,
    ttl_us: int,
    priority: int,
    attempts_max: int,
    fails_max: int,
    payload: bytes,
) -> c.Command:
    """The command that makes a job. A higher priority is a lower rank."""
    queue, rank = PREFIX + name, RANK_NORMAL - priority
    limits = (attempts_max, fails_max)
    return (c.ADD, session, queue, rank, delay_us, ttr_ms * MS_US, ttl_us, job, *limits, payload)


def external_id(job: Job) -> bytes:
    """The id that its client gave a job."""
    assert job.ext is not None, "every job of this space has its id"
    return job.ext.external_id


def leased(job: Job) -> bytes:
    """Answer a lease with a job."""
    name = job.tube.name[len(PREFIX) :]
    return replies.leased(external_id(job), name, job.ttr_us // MS_US, job.body)


def priority(job: Job) -> int:
    """The priority that its client gave a job."""
    return RANK_NORMAL - job.rank


def state(job: Job) -> int:
    """The state of a job, as clients see it."""
    if job.state == DONE:
        return STATE_COMPLETED
    if job.state == FAILED:
        return STATE_FAILED
    if job.state == RESERVED:
        return STATE_LEASED
    again = job.reserves > 0 or (job.ext is not None and job.ext.failures > 0)
    return STATE_PENDING if again else STATE_NEW
